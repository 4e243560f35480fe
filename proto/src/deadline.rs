//! Deadlines of calls.

use std::time::{Duration, Instant};

use tonic::{Code, Request, Status};

use crate::common::v1::ErrorReason;
use crate::error;

/// The time that a hop reserves when it propagates a deadline, so that its own response is in time.
const MARGIN: Duration = Duration::from_millis(2);

/// Sets `grpc-timeout` to what is left until `deadline`, less a margin for this hop's own answer.
///
/// # Errors
///
/// DEADLINE_EXCEEDED if nothing is left.
pub fn hand_on<T>(request: &mut Request<T>, deadline: Option<Instant>) -> Result<(), Status> {
    if let Some(deadline) = deadline {
        let left = deadline
            .saturating_duration_since(Instant::now())
            .saturating_sub(MARGIN);
        if left.is_zero() {
            return Err(exceeded());
        }
        request.set_timeout(left);
    }
    Ok(())
}

/// DEADLINE_EXCEEDED, as our services say it.
pub fn exceeded() -> Status {
    error::status(
        Code::DeadlineExceeded,
        ErrorReason::DeadlineExceeded,
        "the deadline of the call passed before it was done",
        &[],
    )
}

/// tonic reports a time-out of its client as CANCELLED; this gives it the code that gRPC says.
pub fn correct_timeout(status: Status) -> Status {
    let timed_out = status.code() == Code::Cancelled && status.message() == "Timeout expired";
    if timed_out { exceeded() } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_handed_on_less_a_margin() {
        let mut request = Request::new(());
        hand_on(&mut request, Some(Instant::now() + Duration::from_secs(10))).unwrap();
        let timeout = request.metadata().get("grpc-timeout").unwrap().to_str().unwrap();
        let microseconds: u64 = timeout.strip_suffix('u').unwrap().parse().unwrap();
        assert!((9_000_000..9_998_000).contains(&microseconds), "{timeout}");
    }

    #[test]
    fn a_deadline_that_passed_is_not_handed_on() {
        let error = hand_on(&mut Request::new(()), Some(Instant::now())).unwrap_err();
        assert_eq!(error.code(), Code::DeadlineExceeded);
    }

    #[test]
    fn a_time_out_of_tonic_gets_its_code() {
        assert_eq!(
            correct_timeout(Status::cancelled("Timeout expired")).code(),
            Code::DeadlineExceeded
        );
        assert_eq!(
            correct_timeout(Status::cancelled("by the caller")).code(),
            Code::Cancelled
        );
    }
}
