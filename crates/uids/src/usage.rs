//! Usage of each kind's number space, and when it will be exhausted.
//!
//! The service samples the usage each hour, and forecasts from the samples of the last week. It warns in its log when
//! a kind or a quota is nearly used up, or will be soon; its health does not change, because existing names are served
//! as before.

mod forecast;
mod samples;
mod warnings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::TryStreamExt as _;
use oxtsdb_row_store::Scan;
use oxtsdb_schema::{PerKind, UidKind};
use tracing::warn;

use crate::error::UidServiceError;
use crate::layout::UidLayout;
use crate::state::StateTable;
use crate::table::{FIRST_NAME_ROW, ID, UidTable, column};

use samples::Sample;

pub use forecast::Forecast;
pub(crate) use warnings::Warner;

/// Usage of one kind's number space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KindUsage {
    /// The kind.
    pub kind: UidKind,
    /// The counter, which is the highest reserved number. With random UIDs: the count of names.
    pub used: u64,
    /// The count of numbers that can still be reserved.
    pub available: u64,
    /// When the store was read.
    pub read_time: SystemTime,
    /// When no number will be left.
    pub forecast: Forecast,
}

impl KindUsage {
    fn sample(&self) -> Sample {
        Sample {
            time: self.read_time,
            used: self.used,
        }
    }

    /// The part of the number space that is used, in percent; rounded up.
    fn percent(&self) -> u64 {
        percent_of(self.used, self.used.saturating_add(self.available))
    }
}

/// Time to live of a count of random UIDs, which takes a scan of the table.
const COUNT_AGE: Duration = Duration::from_secs(60);

/// Reads the usage.
#[derive(Debug)]
pub(crate) struct Usage {
    table: UidTable,
    state: StateTable,
    /// The hour of the last sample, in hours since the epoch.
    sampled_hour: AtomicU64,
    counted: tokio::sync::Mutex<Option<KindUsage>>,
}

impl Usage {
    pub(crate) fn new(table: UidTable, state: StateTable) -> Self {
        Self {
            table,
            state,
            sampled_hour: AtomicU64::new(0),
            counted: tokio::sync::Mutex::default(),
        }
    }

    /// Returns the usage of all kinds, with their forecasts. Counters are read now; a count of random UIDs may be up
    /// to [`COUNT_AGE`] old.
    pub(crate) async fn read(&self, now: SystemTime) -> Result<Vec<KindUsage>, UidServiceError> {
        let mut usages = self.read_counters(now).await?;
        for usage in &mut usages {
            let samples = samples::read(&self.state, usage.kind).await?;
            usage.forecast = Forecast::new(&samples, usage.sample(), usage.available);
        }
        Ok(usages)
    }

    /// Adds a sample of all kinds, unless this hour has one. Returns whether it had none.
    pub(crate) async fn sample(&self, now: SystemTime) -> Result<bool, UidServiceError> {
        let hour = samples::hour(now);
        if self.sampled_hour.load(Ordering::Relaxed) == hour {
            return Ok(false);
        }
        let usages = self.read_counters(now).await?;
        let samples: Vec<(UidKind, Sample)> =
            usages.iter().map(|usage| (usage.kind, usage.sample())).collect();
        samples::add(&self.state, &samples).await?;
        self.sampled_hour.store(hour, Ordering::Relaxed);
        Ok(true)
    }

    async fn read_counters(&self, now: SystemTime) -> Result<Vec<KindUsage>, UidServiceError> {
        let mut usages = Vec::with_capacity(UidKind::ALL.len());
        for kind in UidKind::ALL {
            let usage = if self.table.layout().kinds.get(kind).random {
                self.counted(kind, now).await?
            } else {
                self.usage(kind, self.table.counter(kind).await?.number, now)
            };
            usages.push(usage);
        }
        Ok(usages)
    }

    fn usage(&self, kind: UidKind, used: u64, read_time: SystemTime) -> KindUsage {
        let available = self.table.layout().width(kind).max_number().saturating_sub(used);
        KindUsage {
            kind,
            used,
            available,
            read_time,
            forecast: Forecast::default(),
        }
    }

    async fn counted(&self, kind: UidKind, now: SystemTime) -> Result<KindUsage, UidServiceError> {
        let mut counted = self.counted.lock().await;
        let is_fresh = |usage: &KindUsage| {
            now.duration_since(usage.read_time)
                .is_ok_and(|age| age < COUNT_AGE)
        };
        if let Some(usage) = counted.filter(is_fresh) {
            return Ok(usage);
        }
        let mut scan = Scan::range(FIRST_NAME_ROW, []);
        scan.columns = column(ID, kind);
        scan.batch_rows = 1024;
        let mut rows = self.table.store().scan(self.table.name(), scan).await?;
        let mut names = 0;
        while let Some(batch) = rows.try_next().await? {
            names += batch.len() as u64;
        }
        Ok(*counted.insert(self.usage(kind, names, now)))
    }
}

/// Warns before a number space is exhausted.
#[derive(Debug)]
pub(crate) struct Scarcity {
    layout: UidLayout,
    /// The highest percentage that was logged.
    warned: PerKind<AtomicU64>,
}

/// Each percent above this one is logged once.
const SCARCE_PERCENT: u64 = 95;

impl Scarcity {
    pub(crate) fn new(layout: UidLayout) -> Self {
        Self {
            layout,
            warned: PerKind::default(),
        }
    }

    /// Records that a number was assigned.
    pub(crate) fn note(&self, kind: UidKind, number: u64) {
        if self.layout.kinds.get(kind).random {
            return;
        }
        let width = self.layout.width(kind);
        let percent = percent_of(number, width.max_number());
        if percent > SCARCE_PERCENT && self.warned.get(kind).fetch_max(percent, Ordering::Relaxed) < percent {
            let available = width.max_number().saturating_sub(number);
            warn!(%kind, %width, used = number, available, percent, "UIDs are running out: new names will be rejected");
        }
    }
}

/// Rounds up, so that the last percent is logged before the space is exhausted.
fn percent_of(number: u64, max: u64) -> u64 {
    if max == 0 {
        return 100;
    }
    u64::try_from((u128::from(number) * 100).div_ceil(u128::from(max))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    #[test]
    fn logs_each_percent_above_95_once() {
        let mut layout = UidLayout::default();
        layout.kinds.tagv.width = UidWidth::new(1).unwrap();
        let scarcity = Scarcity::new(layout);
        let warned = |number| {
            scarcity.note(UidKind::Tagv, number);
            scarcity.warned.tagv.load(Ordering::Relaxed)
        };
        assert_eq!(warned(242), 0, "95 % of 255 are 242.25");
        assert_eq!(warned(243), 96);
        assert_eq!(warned(255), 100);
        assert_eq!(warned(243), 100, "a smaller number is not logged again");
        assert_eq!(percent_of(i64::MAX as u64, i64::MAX as u64), 100);
    }
}
