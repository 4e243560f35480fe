//! Tracking: table `tsdb-meta` has a row for each series, so that series are found without their points.
//!
//! ```text
//!   row key: the TSUID, without salt        name:ts_ctr    8 bytes; the cell's timestamp is the time
//! ```
//!
//! The row is stored together with the first point that this process writes to the series, and again with the first
//! one of each hour of the clock: the cell's timestamp serves to find the hour of the last point, which needs no
//! finer resolution. Points are acknowledged when both are stored, so that queries find the series of every
//! acknowledged point. For a tracked series, each point costs one comparison.
//!
//! The counter is 1, as OpenTSDB leaves it unless it counts
//! (`tsd.core.meta.enable_tsuid_incrementing`). On tables where it does, the cell is incremented:
//! a put would overwrite the count.
//!
//! Source: OpenTSDB 2.4, `TSDB.storeIntoDB`, `TSMeta.incrementAndGetCounter`.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{CellAddress, RowStore, StoreError, TableName, WriteBatch};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_server::settings::SettingError;
use rustc_hash::FxBuildHasher;

use crate::series_index::SeriesIndex;
use crate::settings::DataSettings;
use crate::uids::series::Series;

const HOUR_SECONDS: u64 = 3600;

/// Bytes of a series that waits to be tracked, roughly: a row of the batch to come.
const UNTRACKED_BYTES: usize = 64;

/// Counters that are incremented at a time; each is a call of its own.
const INCREMENTS_AT_A_TIME: usize = 16;

/// What is done to the cell of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Off,
    /// It becomes 1.
    Put,
    /// 1 is added.
    Increment,
}

/// Keeps table `tsdb-meta`. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    store: Arc<dyn RowStore>,
    table: TableName,
    mode: Mode,
    index: Option<SeriesIndex>,
}

/// The series of a batch of points that are not tracked in this hour.
#[derive(Debug)]
pub(crate) struct Untracked {
    /// The hour of the clock, in hours since the epoch; 0: nothing is tracked, as no series ever was.
    hour: u32,
    /// By their addresses, so that each occurs once.
    series: HashMap<usize, Arc<Series>, FxBuildHasher>,
}

impl Untracked {
    fn new(hour: u32) -> Self {
        Self {
            hour,
            series: HashMap::default(),
        }
    }

    /// The hour that counts.
    #[inline]
    pub(super) fn hour(&self) -> u32 {
        self.hour
    }

    /// Takes a series, unless it is tracked.
    #[inline]
    pub(super) fn observe(&mut self, series: &Arc<Series>) {
        if series.tracked_hour() != self.hour && self.hour != 0 {
            self.series
                .entry(Arc::as_ptr(series).addr())
                .or_insert_with(|| Arc::clone(series));
        }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Bytes that they take until they are stored.
    pub(super) fn byte_len(&self) -> usize {
        self.series.len() * UNTRACKED_BYTES
    }

    /// What was taken so far, and none are left.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.hour))
    }
}

impl Tracker {
    /// A tracker for the table that `settings` name. On a store that this process owns
    /// exclusively, all series are tracked, whatever the setting.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range.
    pub(super) fn new(
        store: Arc<dyn RowStore>,
        settings: &DataSettings,
        index: Option<SeriesIndex>,
    ) -> Result<Self, SettingError> {
        let mode = match (
            settings.series_index.enable_tsuid_tracking,
            settings.series_index.enable_tsuid_incrementing,
        ) {
            _ if !store.has_other_writers() => Mode::Put,
            (false, _) => Mode::Off,
            (true, false) => Mode::Put,
            (true, true) => Mode::Increment,
        };
        Ok(Self {
            store,
            table: settings.tables.meta_table_name()?,
            mode,
            index,
        })
    }

    /// No series yet, in the hour of now.
    pub(super) fn untracked(&self) -> Untracked {
        if self.mode == Mode::Off {
            return Untracked::new(0);
        }
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        Untracked::new(u32::try_from(seconds / HOUR_SECONDS).unwrap_or(u32::MAX).max(1))
    }

    /// Stores the rows of series; when this returns `Ok` they are in the table.
    ///
    /// # Errors
    ///
    /// When the store fails. Some may be there; doing it again is safe.
    pub(super) async fn track(&self, untracked: Untracked) -> Result<(), StoreError> {
        let tsuids: Vec<Vec<u8>> = untracked.series.values().map(|series| series.tsuid()).collect();
        match self.mode {
            Mode::Off => {}
            Mode::Put => self.store.write(self.batch(&tsuids)).await?,
            Mode::Increment => self.increment(&tsuids).await?,
        }
        for (series, tsuid) in untracked.series.values().zip(&tsuids) {
            if let Some(index) = &self.index {
                index.add(tsuid);
            }
            series.set_tracked_hour(untracked.hour);
        }
        Ok(())
    }

    fn batch(&self, tsuids: &[Vec<u8>]) -> WriteBatch {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(META_FAMILY);
        for tsuid in tsuids {
            batch
                .row(tsuid)
                .put(family, COUNTER_QUALIFIER, &1_i64.to_be_bytes());
        }
        batch
    }

    async fn increment(&self, tsuids: &[Vec<u8>]) -> Result<(), StoreError> {
        // Collected, because the compiler cannot tell that a stream over the closure is Send.
        let increments: Vec<_> = tsuids
            .iter()
            .map(|tsuid| {
                let (store, table) = (Arc::clone(&self.store), self.table.clone());
                let cell = CellAddress::new(tsuid.as_slice(), META_FAMILY, COUNTER_QUALIFIER);
                async move { store.increment(&table, &cell, 1).await.map(drop) }
            })
            .collect();
        stream::iter(increments)
            .buffer_unordered(INCREMENTS_AT_A_TIME)
            .try_collect()
            .await
    }
}

#[cfg(test)]
mod tests;
