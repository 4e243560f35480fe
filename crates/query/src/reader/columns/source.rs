//! The columns of an access path, which workers read series by series.

use std::ops::Range;
use std::sync::Arc;

use oxtsdb_point_store::view::check_damage;
use oxtsdb_point_store::{
    BlockSummary, Columns, PointStore, PointStoreError, ReadEstimate, SeriesNumber, SeriesReader, TimeRange,
};
use oxtsdb_row_store::{DamageLog, StoreError, TableName};

use crate::function::summary::Summarizer;
use crate::plan::lookahead::Lookahead;
use crate::plan::selection::row_selection::Selection;

/// Most workers of a query.
pub(crate) const MAX_WORKERS: usize = 4;

/// The columns of a plan.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSource {
    pub(crate) store: Arc<dyn PointStore>,
    /// The counts that its values are divided by, of averages of rollups.
    pub(crate) counts: Option<Arc<dyn PointStore>>,
    /// Ascending.
    pub(crate) series: Arc<[SeriesNumber]>,
    /// Estimate of decoding all of them.
    pub(crate) estimate: ReadEstimate,
    /// Whether they are in memory and so few that reading them takes less than a hand-over to a worker. Files are never
    /// read inline: that may block.
    pub(crate) is_read_inline: bool,
    /// Selects blocks that need not be decoded; `None`: all have to.
    pub(crate) summarizer: Option<Summarizer>,
    /// The points after the query that series need; `None`: all of them.
    pub(crate) lookahead: Option<Lookahead>,
    /// If a value was found that needs a name and has none: the selection, to check series with points.
    pub(crate) unnamed: Option<Selection>,
    /// The table that lost points are rows of.
    pub(crate) table: TableName,
    /// The damage that was skipped, if the query may skip any.
    pub(crate) skip_damaged: Option<DamageLog>,
}

impl ColumnSource {
    /// As [`ColumnSource::read`], with blocks that need not be decoded.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read_summarized(
        &self,
        reader: &mut dyn SeriesReader,
        series: SeriesNumber,
        summarizer: &Summarizer,
        (columns, blocks): (&mut Columns, &mut Vec<BlockSummary>),
    ) -> Result<(), StoreError> {
        let accepts = |block: &BlockSummary| summarizer.accepts(block);
        let mut attempts = 0;
        loop {
            match reader.read_summarized(series, &accepts, columns, blocks) {
                Err(error) if is_skipped(&error, self.skip_damaged.as_ref(), &mut attempts) => {}
                read => return Ok(read?),
            }
        }
    }

    /// Reads a series. The read that finds a damaged part sets it aside; if damage is skipped, the series is read again
    /// without it.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read(
        &self,
        reader: &mut dyn SeriesReader,
        series: SeriesNumber,
        columns: &mut Columns,
    ) -> Result<(), StoreError> {
        let mut attempts = 0;
        loop {
            match reader.read(series, columns) {
                Err(error) if is_skipped(&error, self.skip_damaged.as_ref(), &mut attempts) => {}
                read => return Ok(read?),
            }
        }
    }

    /// Rejects series that have lost points in a range, or records the loss. `series` are indexes of the series. Call
    /// this after the range was read: parts may be set aside meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`].
    pub(crate) fn check_damage(&self, series: Range<usize>, range: TimeRange) -> Result<(), StoreError> {
        let series = self.series.get(series).unwrap_or_default();
        for store in std::iter::once(&self.store).chain(&self.counts) {
            check_damage(&**store, &self.table, series, range, self.skip_damaged.as_ref())?;
        }
        Ok(())
    }

    /// Workers to read the columns: each is worth the hand-over only if it has some work.
    pub(crate) fn most_workers(&self) -> usize {
        let cost = self.estimate.points / POINTS_OF_A_WORKER + self.series.len() as u64 / SERIES_OF_A_WORKER;
        usize::try_from(cost + 1).map_or(MAX_WORKERS, |cost| cost.min(MAX_WORKERS))
    }
}

/// See [`ColumnSource::is_read_inline`].
pub(crate) fn is_read_inline(store: &dyn PointStore, series: &[SeriesNumber], range: TimeRange) -> bool {
    let points = || store.points_in_memory(series, range);
    series.len() <= SERIES_INLINE && points().is_some_and(|points| points <= POINTS_INLINE)
}

/// Damaged parts that the read of a series may find.
const DAMAGED_PARTS: usize = 1000;

/// Points, and series, that are read in about 100 µs.
const POINTS_OF_A_WORKER: u64 = 16 << 10;
const SERIES_OF_A_WORKER: u64 = 256;

/// Points, and series, that are decoded and downsampled in less than 50 µs.
const POINTS_INLINE: u64 = 4096;
const SERIES_INLINE: usize = 16;

/// Whether a read is repeated after an error: the read that finds a damaged part sets it aside.
pub(super) const fn is_skipped(
    error: &PointStoreError,
    skip_damaged: Option<&DamageLog>,
    attempts: &mut usize,
) -> bool {
    *attempts += 1;
    matches!(error, PointStoreError::Damaged { .. }) && skip_damaged.is_some() && *attempts <= DAMAGED_PARTS
}
