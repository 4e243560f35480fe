//! Tracking: table `tsdb-meta` has a row for each series, so that series are found without their points.
//!
//! ```text
//!   row key: the TSUID, without salt        name:ts_ctr    8 bytes; the cell's timestamp is the time
//!                                           name:ts_meta   the series' document
//! ```
//!
//! | `enable_tsuid_tracking` | `enable_realtime_ts` | `enable_tsuid_incrementing` | stored |
//! |---|---|---|---|
//! | false | any | any | nothing |
//! | true | false | any | counter = 1 |
//! | true | true | false | the document if there is none; no counter |
//! | true | true | true | counter + points; the document if the counter was 0 and there is none |
//!
//! The embedded store always has tracking, and the counter in the third case too: the series index needs the row, and
//! queries of last points its time. OpenTSDB does this for each point. Here the second and third case are done with
//! the first point that this process writes to a series, and again with the first one of each hour of the clock: the
//! cell's timestamp serves to find the hour of the last point, which needs no finer resolution. Counter and document
//! are one mutation of the row. On the embedded store an annotation on a series without a row stores a counter of 0,
//! with time 1 ms (see [`SeriesIndex`]). For a tracked series, each point then costs one comparison.
//!
//! The embedded store keeps counters that are 1 by the numbers of their series, see
//! [`TableView`](oxtsdb_point_store::view::TableView).
//!
//! Counting costs an increment for each series of a batch of points, by their number. An increment is not idempotent:
//! points that are sent again are counted again. OpenTSDB replaces a document when the counter becomes 1, also one
//! that was created and edited before the first point; here it is kept.
//!
//! All this is stored concurrently with the points, which are acknowledged when both are stored: queries find the series
//! of every acknowledged point.
//!
//! Source: OpenTSDB 2.4, `TSDB.storeIntoDB`, `TSMeta.incrementAndGetCounter`, `TSMeta.storeIfNecessary`.

use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::HashMap;
use oxtsdb_data_settings::SeriesIndexSettings;
use oxtsdb_metadata::meta::MetaTable;
use oxtsdb_metadata::series_index::SeriesIndex;
use oxtsdb_metadata::uids::series::Series;
use oxtsdb_row_store::{StoreError, Writers};
use rustc_hash::FxBuildHasher;
use tracing::warn;

const HOUR_SECONDS: u64 = 3600;

/// Bytes of a series that waits to be tracked, roughly: a row of the batch to come.
const UNTRACKED_BYTES: usize = 64;

/// The cells that tracking stores for a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Nothing.
    Off,
    /// A counter that is 1.
    Counter,
    /// A document, and a counter that is 1.
    DocumentAndCounter,
    /// A document.
    Document,
    /// The number of points, and a document with the first one.
    Count,
}

impl Mode {
    fn new(settings: &SeriesIndexSettings, is_embedded: bool) -> Self {
        match (
            settings.enable_tsuid_tracking || is_embedded,
            settings.enable_realtime_ts,
            settings.enable_tsuid_incrementing,
        ) {
            (false, ..) => Self::Off,
            (true, false, _) => Self::Counter,
            (true, true, true) => Self::Count,
            (true, true, false) if is_embedded => Self::DocumentAndCounter,
            (true, true, false) => Self::Document,
        }
    }
}

/// Keeps table `tsdb-meta`. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    table: MetaTable,
    mode: Mode,
    index: Option<SeriesIndex>,
}

/// The series of a batch of points that are not tracked in this hour; if points are counted, all series.
#[derive(Debug)]
pub(crate) struct Untracked {
    /// The hour of the clock, in hours since the epoch; 0: nothing is tracked, as no series ever was.
    hour: u32,
    is_counting: bool,
    /// By their addresses, so that each occurs once; with their points.
    series: HashMap<usize, (Series, i64), FxBuildHasher>,
}

impl Untracked {
    fn new(hour: u32, is_counting: bool) -> Self {
        Self {
            hour,
            is_counting,
            series: HashMap::default(),
        }
    }

    /// Whether a point of a series, last tracked in `tracked_hour`, has to be passed to [`Untracked::observe`].
    #[inline]
    pub(super) fn needs(&self, tracked_hour: u32) -> bool {
        self.is_counting || tracked_hour != self.hour
    }

    /// Takes a series with a point of it, unless it is tracked.
    #[inline]
    pub(super) fn observe(&mut self, series: &Series) {
        if self.needs(series.tracked_hour()) && self.hour != 0 {
            let entry = self.series.entry(series.address());
            entry.or_insert_with(|| (series.clone(), 0)).1 += 1;
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

    /// Takes the observed series; none remain.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.hour, self.is_counting))
    }
}

impl Tracker {
    /// The index that new series are added to.
    pub(super) const fn index(&self) -> Option<&SeriesIndex> {
        self.index.as_ref()
    }

    /// A tracker for a table. On a store that this process owns exclusively, all series are tracked, whatever the
    /// setting.
    pub(super) fn new(table: MetaTable, settings: &SeriesIndexSettings, index: Option<SeriesIndex>) -> Self {
        let mode = Mode::new(settings, table.writers() == Writers::Single);
        if settings.enable_realtime_ts && mode == Mode::Off {
            warn!("--enable-realtime-ts has no effect without --enable-tsuid-tracking");
        }
        if settings.enable_tsuid_incrementing && mode != Mode::Count {
            warn!(
                "--enable-tsuid-incrementing has no effect without --enable-tsuid-tracking and --enable-realtime-ts"
            );
        }
        Self { table, mode, index }
    }

    /// No series yet, in the hour of now.
    pub(super) fn untracked(&self) -> Untracked {
        if self.mode == Mode::Off {
            return Untracked::new(0, false);
        }
        let hour = u32::try_from(now_seconds() / HOUR_SECONDS).unwrap_or(u32::MAX);
        Untracked::new(hour.max(1), self.mode == Mode::Count)
    }

    /// Stores the rows of series; when this returns `Ok` they are in the table.
    ///
    /// # Errors
    ///
    /// When the store fails. Some rows may be stored; a retry is safe, except that points are counted twice.
    pub(super) async fn track(&self, untracked: Untracked) -> Result<(), StoreError> {
        let (table, series) = (&self.table, &untracked.series);
        let tsuids: Vec<Vec<u8>> = series
            .values()
            .map(|(series, _)| series.tsuid().to_vec())
            .collect();
        let created_seconds = i64::try_from(now_seconds()).unwrap_or(i64::MAX);
        match self.mode {
            Mode::Off => {}
            Mode::Counter => table.put_counters(&tsuids).await?,
            Mode::DocumentAndCounter | Mode::Document => {
                let new: Vec<(Vec<u8>, i64)> = tsuids
                    .iter()
                    .cloned()
                    .map(|tsuid| (tsuid, created_seconds))
                    .collect();
                let sets_counters = self.mode == Mode::DocumentAndCounter;
                table.create_documents(&new, sets_counters).await?;
            }
            Mode::Count => {
                let points = series.values().map(|(_, points)| *points);
                let amounts: Vec<(Vec<u8>, i64)> = tsuids.iter().cloned().zip(points.clone()).collect();
                let sums = table.count(amounts).await?;
                let new = tsuids.iter().zip(points).zip(sums);
                let new = new.filter(|((_, points), sum)| points == sum);
                let new: Vec<(Vec<u8>, i64)> = new
                    .map(|((tsuid, _), _)| (tsuid.clone(), created_seconds))
                    .collect();
                table.create_documents(&new, false).await?;
            }
        }
        for ((series, _), tsuid) in series.values().zip(&tsuids) {
            if series.tracked_hour() == untracked.hour {
                continue;
            }
            if let Some(index) = &self.index {
                index.add(tsuid);
            }
            series.set_tracked_hour(untracked.hour);
        }
        Ok(())
    }
}

fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
