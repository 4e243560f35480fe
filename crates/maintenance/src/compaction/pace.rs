//! How fast a pass runs.

use std::time::{Duration, Instant};

use oxtsdb_resources::Admission;

/// The longest pause for queries after a batch: a pass beside queries that never end is slow, but completes.
const LONGEST_COURTESY: Duration = Duration::from_secs(1);

/// How often a pause for queries looks for the end of them.
const COURTESY_STEP: Duration = Duration::from_millis(20);

/// Limits of speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rate {
    /// Rows read per second at most; `None`: no limit.
    pub rows_per_second: Option<u64>,
    /// Bytes of rows read per second at most; `None`: no limit.
    pub bytes_per_second: Option<u64>,
}

/// Whether a pass gives way to queries.
#[derive(Clone, Debug)]
pub enum Courtesy {
    /// No: it runs at its rate.
    None,
    /// After each batch it waits until none runs, for a second at most.
    ToQueries(Admission),
}

/// Keeps a pass at its rate.
#[derive(Debug)]
pub(super) struct Pace {
    rate: Rate,
    courtesy: Courtesy,
    /// The end of the time that the work so far should have taken.
    due: Instant,
}

impl Pace {
    pub(super) fn new(rate: Rate, courtesy: Courtesy) -> Self {
        Self {
            rate,
            courtesy,
            due: Instant::now(),
        }
    }

    /// Waits after a batch.
    pub(super) async fn pause(&mut self, rows: u64, bytes: u64) {
        // A pass that is behind its rate does not catch up.
        self.due = self.due.max(
            Instant::now()
                .checked_sub(Duration::from_secs(1))
                .unwrap_or(self.due),
        );
        self.due += self.rate.time_of(rows, bytes);
        tokio::time::sleep_until(self.due.into()).await;
        if let Courtesy::ToQueries(queries) = &self.courtesy {
            let end = Instant::now() + LONGEST_COURTESY;
            while queries.usage().running > 0 && Instant::now() < end {
                tokio::time::sleep(COURTESY_STEP).await;
            }
        }
    }
}

impl Rate {
    /// How long this takes at the rate.
    fn time_of(self, rows: u64, bytes: u64) -> Duration {
        let time = |amount: u64, per_second: Option<u64>| match per_second {
            None => Duration::ZERO,
            Some(per_second) => {
                let nanos = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
        };
        time(rows, self.rows_per_second).max(time(bytes, self.bytes_per_second))
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_resources::{AdmissionLimits, ClientId};

    use super::*;

    #[test]
    fn the_slower_limit_counts() {
        let rate = Rate {
            rows_per_second: Some(100),
            bytes_per_second: Some(1 << 20),
        };
        assert_eq!(rate.time_of(50, 1000), Duration::from_millis(500));
        assert_eq!(rate.time_of(50, 2 << 20), Duration::from_secs(2));
        assert_eq!(Rate::default().time_of(u64::MAX, u64::MAX), Duration::ZERO);
    }

    #[tokio::test]
    async fn keeps_to_the_rate_over_many_batches() {
        let rate = Rate {
            rows_per_second: Some(1000),
            bytes_per_second: None,
        };
        let begun = Instant::now();
        let mut pace = Pace::new(rate, Courtesy::None);
        for _ in 0..10 {
            pace.pause(20, 0).await;
        }
        assert!(
            begun.elapsed() >= Duration::from_millis(200),
            "{:?}",
            begun.elapsed()
        );
    }

    #[tokio::test]
    async fn waits_for_queries_but_not_forever() {
        let queries = Admission::new(AdmissionLimits {
            running: 4,
            queued: 4,
            wait: Duration::from_secs(1),
        });
        let mut pace = Pace::new(Rate::default(), Courtesy::ToQueries(queries.clone()));
        let permit = queries.admit(ClientId::Local).await.unwrap();
        let begun = Instant::now();
        pace.pause(1, 1).await;
        assert!(begun.elapsed() >= LONGEST_COURTESY, "{:?}", begun.elapsed());
        drop(permit);
        let begun = Instant::now();
        pace.pause(1, 1).await;
        assert!(begun.elapsed() < LONGEST_COURTESY, "{:?}", begun.elapsed());
    }
}
