//! Back-pressure: slows appends down while a flush runs.
//!
//! ```text
//!   used │                 ........ limit
//!        │         ....────
//!        │     ──── slower the less is free
//!        │ ────
//!        └─────────────────────────► time
//!          flush begins       ends
//! ```
//!
//! A flush gives memory and journal back at its end, all at once. Appends that go on at their own rate until nothing is
//! free would then wait for seconds. Instead each group of appends waits for a share of the remaining time of the flush
//! equal to its share of the free resource, so that both run out together. If the flush takes longer than estimated,
//! appends approach the limit ever slower; only there they wait.

use std::time::{Duration, Instant};

/// Time to write a byte of a head, until the flush has measured it.
const NANOS_PER_BYTE: u64 = 16;

/// Time to make parts durable.
const FINISH: Duration = Duration::from_millis(100);

/// The longest time that a group of appends takes, unless nothing is free.
const LONGEST_DELAY: Duration = Duration::from_millis(300);

/// How far the flush of a head is.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlushProgress {
    since: Instant,
    expected: Duration,
    done: u64,
    total: u64,
}

impl FlushProgress {
    /// A flush of a head of `bytes` bytes that begins now.
    pub(super) fn begin(bytes: usize) -> Self {
        Self {
            since: Instant::now(),
            expected: Duration::from_nanos((bytes as u64).saturating_mul(NANOS_PER_BYTE)),
            done: 0,
            total: 1,
        }
    }

    /// Notes that `total` steps follow, of about equal length.
    pub(super) fn plan(&mut self, total: u64) {
        self.since = Instant::now();
        self.total = total.max(1);
    }

    /// Notes that steps are done, and estimates the time from them once they are enough.
    pub(super) fn advance(&mut self, steps: u64) {
        self.done = self.total.min(self.done + steps);
        if self.done > self.total / 8 {
            self.expected = scale(self.since.elapsed(), self.total, self.done);
        }
    }

    fn remaining(&self) -> Duration {
        scale(self.expected, self.total - self.done, self.total) + FINISH
    }
}

/// A resource that a flush gives back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resource {
    pub(super) used: u64,
    pub(super) limit: u64,
}

impl Resource {
    pub(super) const fn is_full(&self) -> bool {
        self.used >= self.limit
    }

    /// The time for taking `taken` of the resource while a flush runs.
    pub(super) fn delay(&self, taken: u64, progress: &FlushProgress) -> Duration {
        let free = self.limit.saturating_sub(self.used);
        scale(progress.remaining(), taken, free.max(1)).min(LONGEST_DELAY)
    }
}

/// A fraction or a multiple of a duration.
fn scale(duration: Duration, by: u64, of: u64) -> Duration {
    let nanos = duration.as_nanos() * u128::from(by) / u128::from(of);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Used and free halves of a limit, a flush of a second.
    fn half() -> (Resource, FlushProgress) {
        let mut progress = FlushProgress::begin(0);
        progress.plan(100);
        progress.expected = Duration::from_secs(1) - FINISH;
        (
            Resource {
                used: 500,
                limit: 1000,
            },
            progress,
        )
    }

    #[test]
    fn appends_take_the_time_that_is_left_for_what_is_free() {
        let (resource, mut progress) = half();
        assert_eq!(resource.delay(50, &progress), Duration::from_millis(100));
        assert_eq!(resource.delay(500, &progress), LONGEST_DELAY);
        progress.done = 90;
        assert_eq!(resource.delay(50, &progress), Duration::from_millis(19));
        let full = Resource {
            used: 1001,
            limit: 1000,
        };
        assert!(full.is_full() && !resource.is_full());
        assert_eq!(full.delay(2, &progress), LONGEST_DELAY);
    }

    #[test]
    fn a_late_flush_is_approached_and_not_reached() {
        let (mut resource, progress) = half();
        let mut time = Duration::ZERO;
        while time < Duration::from_secs(3) {
            time += resource.delay(10, &progress);
            resource.used += 10;
        }
        assert!(!resource.is_full(), "{resource:?}");
        assert!(resource.used > 900, "{resource:?}");
    }

    #[test]
    fn the_time_is_estimated_from_the_steps_that_are_done() {
        let mut progress = FlushProgress::begin(1 << 30);
        progress.plan(100);
        assert!(progress.remaining() > Duration::from_secs(10));
        progress.since = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        progress.advance(50);
        let remaining = progress.remaining();
        assert!(
            remaining > Duration::from_secs(1) && remaining < Duration::from_secs(2),
            "{remaining:?}"
        );
        progress.advance(200);
        assert_eq!(progress.remaining(), FINISH);
    }
}
