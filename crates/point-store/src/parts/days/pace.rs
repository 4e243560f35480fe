//! The pace of work in the background: a rate limit that also ends the work.

use std::fmt;
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

/// How often a check looks whether it must end.
const STEPS_PER_SECOND: u64 = 10;

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

/// The pace of a check: a rate of its own. It ends with the store, and when the caller's callback ends it.
pub struct CheckPacer<'a> {
    store: &'a RatePacer,
    own: RatePacer,
    bytes_per_second: u64,
    state: Mutex<CheckState<'a>>,
}

struct CheckState<'a> {
    bytes: u64,
    progress: &'a mut (dyn FnMut(u64) -> bool + Send),
}

impl<'a> CheckPacer<'a> {
    /// A rate, or none if it is 0; `progress` gets the bytes so far and returns whether to go on.
    pub fn new(
        store: &'a RatePacer,
        bytes_per_second: u64,
        progress: &'a mut (dyn FnMut(u64) -> bool + Send),
    ) -> Self {
        Self {
            store,
            own: RatePacer::new(bytes_per_second),
            bytes_per_second,
            state: Mutex::new(CheckState { bytes: 0, progress }),
        }
    }
}

impl fmt::Debug for CheckPacer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckPacer")
    }
}

impl Pacer for CheckPacer<'_> {
    fn pace(&self, bytes: u64) -> Result<(), Stopped> {
        let step = match self.bytes_per_second {
            0 => bytes.max(1),
            rate => (rate / STEPS_PER_SECOND).max(1),
        };
        let mut left = bytes;
        loop {
            // Without bytes: only whether the store stops.
            self.store.pace(0)?;
            let now = left.min(step);
            self.own.pace(now)?;
            let mut state = self.state.lock();
            state.bytes += now;
            let bytes = state.bytes;
            if !(state.progress)(bytes) {
                return Err(Stopped);
            }
            left -= now;
            if left == 0 {
                return Ok(());
            }
        }
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
    fn a_check_ends_when_its_caller_says_so() {
        let (store, mut calls) = (RatePacer::new(1), Vec::new());
        let mut progress = |bytes| {
            calls.push(bytes);
            bytes < 3 << 20
        };
        let pacer = CheckPacer::new(&store, 1 << 30, &mut progress);
        assert_eq!(pacer.pace(1 << 20), Ok(()));
        assert_eq!(pacer.pace(2 << 20), Err(Stopped));
        assert_eq!(calls, [1 << 20, 3 << 20]);
        store.stop();
        assert_eq!(CheckPacer::new(&store, 0, &mut |_| true).pace(1), Err(Stopped));
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
