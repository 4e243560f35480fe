//! Durations as a histogram with fixed bounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Upper bounds, in seconds; longer durations have a bucket of their own.
pub const BOUNDS_SECONDS: [f64; 14] = [
    0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 300.0,
];

/// Counts durations.
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BOUNDS_SECONDS.len() + 1],
    nanos: AtomicU64,
}

/// The counts of [`Durations`] at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct DurationCounts {
    /// The number of durations up to each bound and above the bound before; last, the durations above all bounds.
    pub counts: [u64; BOUNDS_SECONDS.len() + 1],
    /// The sum of all durations.
    pub sum: Duration,
}

impl Durations {
    /// Counts a duration.
    pub fn observe(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts the time since `begun`.
    pub fn observe_since(&self, begun: Instant) {
        self.observe(begun.elapsed());
    }

    /// The counts so far.
    pub fn counts(&self) -> DurationCounts {
        DurationCounts {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_bounds() {
        let durations = Durations::default();
        for micros in [50, 100, 101, 400_000_000] {
            durations.observe(Duration::from_micros(micros));
        }
        let counts = durations.counts();
        assert_eq!(counts.counts[..3], [2, 1, 0]);
        assert_eq!(counts.counts.last(), Some(&1), "longer than all bounds");
        assert_eq!(counts.counts.iter().sum::<u64>(), 4);
        assert_eq!(counts.sum, Duration::from_micros(400_000_251));
    }
}
