//! Outages of the UID service, as writes see them.
//!
//! A write with a name that is not cached waits for the UID service. Without a bound, an unavailable UID service
//! would block every batch that has one such name, and with it the points of cached series. So:
//!
//! ```text
//!   available ── UNAVAILABLE, or longer than its patience ────────► outage: calls fail at once
//!       ▲                                                              │
//!       └───────────── the same call succeeds, repeated in the background
//! ```
//!
//! The call that began the outage is the probe: it is awaited, or repeated, in the background. An attempt that hangs is
//! given up after its patience, which doubles with each: a response may be lost although the service is back. The
//! results are cached like any others, so a client that retries finds its names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use oxtsdb_server::telemetry::in_request;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::UidsError;

/// How long a call for few names may take before it begins an outage. New names on a busy HBase take seconds;
/// a service that hangs is noticed earlier by the pings of its connection.
const PATIENCE: Duration = Duration::from_secs(30);

/// A call for more names may take [`PATIENCE`] for each of this number.
const NAMES_PER_PATIENCE: usize = 1024;

/// The pause before the first repetition; each following is twice as long, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Whether the UID service is available to writes. Cloning is cheap, clones share the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Outage(Arc<Mutex<Option<UidsError>>>);

/// An outage. Its end, also by a panic of the probe, lets calls pass again.
#[must_use]
struct Begun<'o>(&'o Outage);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = None;
    }
}

/// Makes one attempt of a call.
type Attempt<T> = dyn Fn() -> BoxFuture<'static, Result<T, UidsError>> + Send + Sync;

impl Outage {
    /// Whether there is one.
    pub(super) fn is_on(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Makes a call for `names` names. It is not cancelled when the returned future is dropped.
    ///
    /// Must be called within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// The call's own; [`UidsError::Unavailable`] at once during an outage, and when the patience ends;
    /// [`UidsError::DeadlineExceeded`] when the deadline does.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        names: usize,
        deadline: Option<Instant>,
        attempt: impl Fn() -> BoxFuture<'static, Result<T, UidsError>> + Send + Sync + 'static,
    ) -> Result<T, UidsError> {
        if let Some(error) = &*self.0.lock() {
            return Err(error.clone());
        }
        let (sender, receiver) = oneshot::channel();
        let patience = PATIENCE * u32::try_from(names.div_ceil(NAMES_PER_PATIENCE)).unwrap_or(u32::MAX);
        tokio::spawn(in_request(self.clone().supervise(
            patience,
            Box::new(attempt),
            sender,
        )));
        let result = match deadline {
            None => receiver.await,
            Some(deadline) => match tokio::time::timeout_at(deadline.into(), receiver).await {
                Ok(result) => result,
                Err(_elapsed) => return Err(UidsError::DeadlineExceeded),
            },
        };
        // The task sends before it ends, unless it panicked.
        result.unwrap_or_else(|_| Err(unavailable("the call ended without a result")))
    }

    /// Makes the first attempt and sends its result. If that is the beginning of an outage, repeats the
    /// call until it succeeds.
    async fn supervise<T: Send + 'static>(
        self,
        patience: Duration,
        attempt: Box<Attempt<T>>,
        sender: oneshot::Sender<Result<T, UidsError>>,
    ) {
        let mut call = attempt();
        let (_outage, in_flight) = match tokio::time::timeout(patience, &mut call).await {
            Ok(Err(error)) if error.is_outage() => {
                let begun = self.begin(&error);
                let _ = sender.send(Err(away(error)));
                let Some(begun) = begun else { return };
                (begun, None)
            }
            Ok(result) => {
                let _ = sender.send(result);
                return;
            }
            Err(_elapsed) => {
                let error = unavailable(&format!("no response within {patience:?}"));
                let begun = self.begin(&error);
                let _ = sender.send(Err(error));
                let Some(begun) = begun else { return };
                (begun, Some(call))
            }
        };
        self.probe(patience, in_flight, &attempt).await;
        info!("UID service is available again");
    }

    /// Begins an outage, which lasts until the result is dropped; `None` if there is one already.
    fn begin(&self, error: &UidsError) -> Option<Begun<'_>> {
        let mut state = self.0.lock();
        if state.is_some() {
            return None;
        }
        warn!(%error, "writes to new series are rejected until the UID service is available");
        *state = Some(away(error.clone()));
        Some(Begun(self))
    }

    /// Waits for the call in flight, or repeats it, until the service responds.
    async fn probe<T: Send + 'static>(
        &self,
        mut patience: Duration,
        mut in_flight: Option<BoxFuture<'static, Result<T, UidsError>>>,
        attempt: &Attempt<T>,
    ) {
        let mut pause = FIRST_PAUSE;
        loop {
            let call = match in_flight.take() {
                Some(call) => call,
                None => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                    attempt()
                }
            };
            patience = patience.saturating_mul(2);
            match tokio::time::timeout(patience, call).await {
                Err(_elapsed) => {}
                Ok(Err(error)) if error.is_outage() => {}
                // The service is available, even if it rejects the names.
                Ok(Ok(_) | Err(_)) => return,
            }
        }
    }
}

/// The error for the caller: an attempt's own time-out is not the caller's deadline.
fn away(error: UidsError) -> UidsError {
    match error {
        UidsError::DeadlineExceeded => unavailable(&error.to_string()),
        error => error,
    }
}

fn unavailable(detail: &str) -> UidsError {
    UidsError::Unavailable {
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use tokio::sync::Semaphore;

    use super::*;

    /// Attempts that fail until the count of failures is used up.
    fn failing(
        failures: usize,
    ) -> (
        Arc<AtomicUsize>,
        impl Fn() -> BoxFuture<'static, Result<u8, UidsError>>,
    ) {
        let attempts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&attempts);
        let attempt = move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if number < failures {
                    return Err(unavailable("unreachable"));
                }
                Ok(7)
            }
            .boxed()
        };
        (attempts, attempt)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_fail_at_once_until_the_failed_one_succeeds() {
        let outage = Outage::default();
        let (attempts, attempt) = failing(3);
        assert_eq!(
            outage.call(1, None, attempt).await,
            Err(unavailable("unreachable"))
        );
        let ok = || async { Ok(1) }.boxed();
        let began = tokio::time::Instant::now();
        let rejected = outage.call(1, None, ok).await;
        assert!(
            matches!(rejected, Err(UidsError::Unavailable { .. })),
            "{rejected:?}"
        );
        assert!(began.elapsed().is_zero(), "no attempt is made");
        while outage.call(1, None, ok).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(
            attempts.load(Ordering::Relaxed),
            4,
            "the first, and three repetitions"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_begins_an_outage_and_ends_it() {
        let outage = Outage::default();
        let responses = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&responses);
        let hangs = move || {
            let gate = Arc::clone(&gate);
            async move {
                let _permit = gate.acquire().await;
                Ok(1)
            }
            .boxed()
        };
        let began = tokio::time::Instant::now();
        let rejected = outage.call(1, None, hangs).await;
        assert!(
            matches!(rejected, Err(UidsError::Unavailable { .. })),
            "{rejected:?}"
        );
        assert_eq!(began.elapsed(), PATIENCE);
        let ok = || async { Ok(2) }.boxed();
        assert!(outage.call(1, None, ok).await.is_err());
        responses.add_permits(1);
        while outage.call(1, None, ok).await != Ok(2) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Whether calls pass within an hour.
    async fn ends_within_an_hour(outage: &Outage) -> bool {
        let began = tokio::time::Instant::now();
        while outage.is_on() && began.elapsed() < Duration::from_secs(3600) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        !outage.is_on()
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_is_repeated() {
        let outage = Outage::default();
        let attempts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&attempts);
        let hangs_twice = move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move {
                if number < 2 {
                    return std::future::pending().await;
                }
                Ok(1)
            }
            .boxed()
        };
        assert!(outage.call(1, None, hangs_twice).await.is_err());
        assert!(outage.is_on());
        assert!(ends_within_an_hour(&outage).await);
        assert_eq!(attempts.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_panics_ends_the_outage() {
        let outage = Outage::default();
        let (attempts, attempt) = failing(1);
        let panics = move || {
            assert_eq!(attempts.load(Ordering::Relaxed), 0, "a panic of the test");
            attempt()
        };
        assert!(outage.call(1, None, panics).await.is_err());
        assert!(outage.is_on());
        assert!(ends_within_an_hour(&outage).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_ends_the_wait_only() {
        let outage = Outage::default();
        let deadline = (tokio::time::Instant::now() + Duration::from_secs(1)).into_std();
        let hangs = || futures::future::pending::<Result<u8, UidsError>>().boxed();
        assert_eq!(
            outage.call(1, Some(deadline), hangs).await,
            Err(UidsError::DeadlineExceeded)
        );
        let ok = || async { Ok(1) }.boxed();
        assert_eq!(outage.call(1, None, ok).await, Ok(1), "no outage is known yet");
        tokio::time::sleep(PATIENCE).await;
        assert!(outage.call(1, None, ok).await.is_err(), "the call never ended");
    }

    fn rejected(code: oxtsdb_client::Code) -> UidsError {
        UidsError::from_client(tonic::Status::new(code, "busy").into())
    }

    #[tokio::test]
    async fn an_overloaded_service_is_no_outage() {
        use oxtsdb_client::Code;

        for code in [Code::ResourceExhausted, Code::Aborted, Code::Cancelled] {
            let outage = Outage::default();
            let rejects = move || async move { Err::<u8, _>(rejected(code)) }.boxed();
            let error = outage.call(1, None, rejects).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
            let ok = || async { Ok(1) }.boxed();
            assert_eq!(outage.call(1, None, ok).await, Ok(1), "{code:?}");
        }
        for code in [Code::Unavailable, Code::DeadlineExceeded] {
            let outage = Outage::default();
            let fails = move || async move { Err::<u8, _>(rejected(code)) }.boxed();
            outage.call(1, None, fails).await.unwrap_err();
            let ok = || async { Ok(1) }.boxed();
            assert!(outage.call(1, None, ok).await.is_err(), "{code:?}");
        }
    }

    #[tokio::test]
    async fn a_rejected_request_is_no_outage() {
        let outage = Outage::default();
        let rejection = UidsError::Rejected {
            detail: "bad".to_owned(),
        };
        let error = rejection.clone();
        let rejects = move || {
            let error = error.clone();
            async move { Err::<u8, _>(error) }.boxed()
        };
        assert_eq!(outage.call(1, None, rejects).await, Err(rejection));
        assert_eq!(outage.call(1, None, || async { Ok(1) }.boxed()).await, Ok(1));
    }
}
