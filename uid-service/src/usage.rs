//! How much of each number space is in use.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::TryStreamExt as _;
use oxtsdb_row_store::Scan;
use oxtsdb_schema::UidKind;
use tracing::warn;

use crate::error::UidServiceError;
use crate::layout::{PerKind, UidLayout};
use crate::table::{FIRST_NAME_ROW, ID, UidTable, column};

/// How much of one kind's number space is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindUsage {
    /// The kind.
    pub kind: UidKind,
    /// The counter: the highest number handed out. With random UIDs: how many names there are.
    pub used: u64,
    /// How many more can be handed out.
    pub available: u64,
    /// When the store was asked.
    pub read_time: SystemTime,
}

/// How long a count of random UIDs is good: it takes a scan of the table.
const COUNT_AGE: Duration = Duration::from_secs(60);

/// Tells how much is in use.
#[derive(Debug)]
pub(crate) struct Usage {
    table: UidTable,
    counted: tokio::sync::Mutex<Option<KindUsage>>,
}

impl Usage {
    pub(crate) fn new(table: UidTable) -> Self {
        Self {
            table,
            counted: tokio::sync::Mutex::default(),
        }
    }

    /// The usage of all kinds. Counters are read now; names with random UIDs were counted at most
    /// [`COUNT_AGE`] before `now`.
    pub(crate) async fn read(&self, now: SystemTime) -> Result<Vec<KindUsage>, UidServiceError> {
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
        }
    }

    async fn counted(&self, kind: UidKind, now: SystemTime) -> Result<KindUsage, UidServiceError> {
        let mut counted = self.counted.lock().await;
        let is_good = |usage: &KindUsage| {
            now.duration_since(usage.read_time)
                .is_ok_and(|age| age < COUNT_AGE)
        };
        if let Some(usage) = counted.filter(is_good) {
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

/// Warns while there is time when a number space is about to run out.
#[derive(Debug)]
pub(crate) struct Scarcity {
    layout: UidLayout,
    /// The last percentage that was told of.
    told: PerKind<AtomicU64>,
}

/// From how many percent on each further one is worth a warning.
const SCARCE_PERCENT: u64 = 95;

impl Scarcity {
    pub(crate) fn new(layout: UidLayout) -> Self {
        Self {
            layout,
            told: PerKind::default(),
        }
    }

    /// Takes note that a number was handed out.
    pub(crate) fn note(&self, kind: UidKind, number: u64) {
        if self.layout.kinds.get(kind).random {
            return;
        }
        let width = self.layout.width(kind);
        let percent = percent_of(number, width.max_number());
        if percent > SCARCE_PERCENT && self.told.get(kind).fetch_max(percent, Ordering::Relaxed) < percent {
            let available = width.max_number().saturating_sub(number);
            warn!(%kind, %width, used = number, available, percent, "UIDs are running out: writers of new names will be refused");
        }
    }
}

/// Rounded up, so that the last percent is told of before the end.
fn percent_of(number: u64, max: u64) -> u64 {
    u64::try_from((u128::from(number) * 100).div_ceil(u128::from(max))).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::UidSettings;

    #[test]
    fn each_percent_above_ninety_five_is_told_once() {
        let mut settings = UidSettings::default();
        settings.tables.uid_width_tagv = 1;
        let scarcity = Scarcity::new(settings.check().unwrap().layout);
        let told = |number| {
            scarcity.note(UidKind::Tagv, number);
            scarcity.told.tagv.load(Ordering::Relaxed)
        };
        assert_eq!(told(242), 0, "95 % of 255 are 242.25");
        assert_eq!(told(243), 96);
        assert_eq!(told(255), 100);
        assert_eq!(told(243), 100, "a late one tells nothing new");
        assert_eq!(percent_of(i64::MAX as u64, i64::MAX as u64), 100);
    }
}
