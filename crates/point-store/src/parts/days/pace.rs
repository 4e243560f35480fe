//! The pace of work in the background: a rate limit that also ends the work.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Limits the bytes per second of merges and checks.
pub trait Pacer: Send + Sync {
    /// Accounts for bytes that were read or written, and blocks for as long as they take at the allowed rate.
    ///
    /// # Errors
    ///
    /// If the work must end.
    fn pace(&self, bytes: u64) -> Result<(), Stopped>;
}

/// The work must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

/// No limit.
#[derive(Clone, Copy, Debug)]
pub struct Unpaced;

impl Pacer for Unpaced {
    fn pace(&self, _bytes: u64) -> Result<(), Stopped> {
        Ok(())
    }
}

/// A limit of bytes per second that several threads share.
#[derive(Debug)]
pub struct RatePacer {
    state: Mutex<Rate>,
    changed: Condvar,
}

#[derive(Debug)]
struct Rate {
    bytes_per_second: u64,
    /// When everything that was accounted for is paid.
    paid_at: Instant,
    stopped: bool,
}

impl RatePacer {
    /// A limit; 0 is none.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            state: Mutex::new(Rate {
                bytes_per_second,
                paid_at: Instant::now(),
                stopped: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Ends all work that is under this pacer, now and later.
    pub fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }
}

impl Pacer for RatePacer {
    fn pace(&self, bytes: u64) -> Result<(), Stopped> {
        let mut state = self.state.lock();
        if state.bytes_per_second > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a duration of nanoseconds")]
            let seconds = bytes as f64 / state.bytes_per_second as f64;
            // Unused time is not saved up: no burst after a pause.
            let paid_at = state.paid_at.max(Instant::now()) + Duration::from_secs_f64(seconds);
            state.paid_at = paid_at;
            while !state.stopped && !self.changed.wait_until(&mut state, paid_at).timed_out() {}
        }
        if state.stopped { Err(Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn blocks_for_as_long_as_the_bytes_take() {
        let pacer = RatePacer::new(1 << 20);
        let begin = Instant::now();
        for _ in 0..4 {
            pacer.pace(1 << 14).unwrap();
        }
        assert!(
            begin.elapsed() >= Duration::from_millis(62),
            "{:?}",
            begin.elapsed()
        );
        assert_eq!(RatePacer::new(0).pace(u64::MAX), Ok(()));
    }

    #[test]
    fn stop_ends_a_wait() {
        let pacer = Arc::new(RatePacer::new(1));
        let waiting = std::thread::spawn({
            let pacer = Arc::clone(&pacer);
            move || pacer.pace(1 << 20)
        });
        pacer.stop();
        assert_eq!(waiting.join().unwrap(), Err(Stopped));
        assert_eq!(pacer.pace(0), Err(Stopped));
    }
}
