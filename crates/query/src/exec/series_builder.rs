//! Builds the points of series from rows, as columns.
//!
//! A row is decoded when it arrives. If the sub-query downsamples, the row is downsampled immediately and the series
//! retains its windows instead of its points. The rows of one series arrive in order of time. All points up to the
//! scan's watermark can be taken before the scan ends.

use std::sync::Arc;

use oxtsdb_point_store::{BlockSummary, Columns, TimeRange};
use oxtsdb_row_store::Row;
use oxtsdb_schema::annotation::is_annotation;
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::{
    Annotation, BaseTime, DuplicatePolicy, HOUR_SECONDS, Points as RowPoints, RowKeyLayout, RowKeyRef, Tsuid,
    Value,
};
use rustc_hash::FxHashSet;

use self::column::{Averages, Column};
use self::table::SeriesTable;
use crate::annotation::{self, annotation_cells};
use crate::context::budget::{Budget, POINT_BYTES};
use crate::context::pending::{PendingUse, Used};
use crate::error::QueryError;
use crate::exec::extents::SeriesExtents;
use crate::exec::rollup_row::RollupValues;
use crate::exec::series_points::{SeriesAnnotations, SeriesPoints};
use crate::exec::statistics::{DamagedRow, MAX_DAMAGED_ROWS, Statistics};
use crate::function::aggregator::Function;
use crate::function::downsample::{Downsampler, WindowRuns, Windows};
use crate::function::rate::Rater;
use crate::function::summary::Summarizer;
use crate::plan::rollup::RollupRead;
use crate::points::Points;

mod column;
mod table;

/// How rows become series.
#[derive(Clone, Debug)]
pub(crate) struct SeriesOptions {
    /// How row keys are built.
    pub layout: RowKeyLayout,
    /// The rollup table of the rows; `None`: they are rows of points.
    pub rollup: Option<Arc<RollupSource>>,
    /// How several values at one timestamp are resolved.
    pub duplicates: DuplicatePolicy,
    /// Skip rows with cells that do not decode, instead of failing.
    pub skip_damaged_rows: bool,
    /// Series that begin later are ignored.
    pub begins_until_ms: i64,
    /// One value for each window; `None`: all points.
    pub downsample: Option<(Arc<Windows>, Function)>,
    /// First derivative, after downsampling.
    pub rate: Option<Rater>,
    /// Keep annotations.
    pub annotations: bool,
    /// Whether a series without points names its group.
    pub names_without_points: bool,
}

/// A table of rollups.
#[derive(Clone, Debug)]
pub(crate) struct RollupSource {
    /// The rollup that is read.
    pub read: RollupRead,
    /// Its name, for errors.
    pub table: String,
}

/// Builds series from rows.
#[derive(Debug)]
pub(crate) struct SeriesBuilder {
    options: SeriesOptions,
    budget: Budget,
    /// Use of columns that is not reported to the budget yet.
    pending: PendingUse,
    series: SeriesTable,
    /// Series with columns that were ignored because they begin too late.
    late: FxHashSet<Box<[u8]>>,
    /// Rows of other series, and later ones, are ignored.
    extents: Option<Arc<SeriesExtents>>,
    statistics: Statistics,
    /// Reused for each row.
    scratch: Scratch,
}

/// A series that may still receive rows.
#[derive(Debug)]
struct Series {
    tsuid: Tsuid,
    column: Column,
    rater: Option<Rater>,
    annotations: Option<Box<SeriesAnnotations>>,
    is_named: bool,
}

/// The retained points of a series.
#[derive(Debug, Default)]
struct Scratch {
    tsuid: Vec<u8>,
    row: RowPoints,
    times_ms: Vec<i64>,
    values: Vec<f64>,
    ints: Vec<i64>,
    rollups: RollupValues,
    /// Windows of the series before.
    runs: WindowRuns,
    /// Annotations of the row that was decoded last, if they are requested.
    annotations: SeriesAnnotations,
    /// Whether that row has any, requested or not.
    has_annotations: bool,
}

impl SeriesBuilder {
    /// A builder without rows.
    pub(crate) fn new(options: SeriesOptions, budget: Budget) -> Self {
        // Each series refers to the windows: builders that shared them would wait for each other's changes of the count.
        let own =
            |(windows, function): (Arc<Windows>, Function)| (Arc::new(Windows::clone(&windows)), function);
        let downsample = options.downsample.map(own);
        Self {
            options: SeriesOptions {
                downsample,
                ..options
            },
            budget,
            pending: PendingUse::default(),
            series: SeriesTable::default(),
            late: FxHashSet::default(),
            extents: None,
            statistics: Statistics::default(),
            scratch: Scratch::default(),
        }
    }

    /// Adds a row.
    ///
    /// # Errors
    ///
    /// [`QueryError::Row`], the errors of its key, and [`QueryError::OverBudget`].
    pub(crate) fn add(&mut self, row: &Row) -> Result<(), QueryError> {
        let key = match RowKeyRef::decode(row.key(), &self.options.layout) {
            Ok(key) => key,
            Err(error) => return self.skip_foreign(row, QueryError::row_key(row.key(), &error)),
        };
        let scratch = &mut self.scratch;
        key.tsuid_bytes(&mut scratch.tsuid);
        let base_ms = key.base_time().millis();
        if let Some(extents) = &self.extents
            && !extents.has_row(&scratch.tsuid, base_ms)
        {
            return Ok(());
        }
        let decoded = match self.options.rollup.clone() {
            None => self.decode_cells(row, base_ms)?,
            Some(source) => self.decode_rollups(row, key.base_time(), &source)?,
        };
        let Some(points) = decoded else {
            return Ok(());
        };
        if points == 0 && !self.scratch.has_annotations {
            // As in OpenTSDB, a row of histograms and unknown cells makes no series.
            return Ok(());
        }
        self.budget.use_points(points)?;
        self.statistics.points += points;

        let scratch = &mut self.scratch;
        let series = match self.series.get_mut(scratch.tsuid.as_slice()) {
            Some(series) => series,
            None => {
                let first = scratch.row.offsets_ms().first();
                let first_ms = first.map(|offset| base_ms + i64::from(*offset));
                // A row of other cells has the points of its hour in columns.
                let is_late = self.late.contains(scratch.tsuid.as_slice());
                let first_ms = first_ms.or(is_late.then_some(base_ms + 1));
                if first_ms.is_some_and(|first_ms| first_ms > self.options.begins_until_ms) {
                    return Ok(());
                }
                let tsuid = match Tsuid::from_bytes(&scratch.tsuid, &self.options.layout.widths) {
                    Ok(tsuid) => tsuid,
                    Err(error) => return self.skip_foreign(row, QueryError::row_series(row.key(), &error)),
                };
                let mut series = Series::counted(tsuid, &self.options, &self.budget)?;
                series.is_named |= is_late;
                self.series.insert(series)
            }
        };
        series.is_named |= points > 0;
        if !scratch.annotations.is_empty() {
            self.budget
                .hold_annotation(annotation::held_bytes(&scratch.annotations))?;
            let annotations = series.annotations.get_or_insert_default();
            annotations.append(&mut scratch.annotations);
        }
        let before = series.column.held_bytes();
        match &mut series.column {
            Column::Raw(own) => own.extend_from_row(base_ms, &scratch.row),
            Column::Averaged(averages) => averages.feed(&scratch.rollups, &mut scratch.runs),
            Column::Downsampled(downsampler) if self.options.rollup.is_some() => {
                let rollups = &scratch.rollups;
                downsampler.feed(&rollups.times_ms, &rollups.values, &mut scratch.runs);
            }
            Column::Downsampled(downsampler) => {
                scratch.times_ms.clear();
                scratch.values.clear();
                let offsets = scratch.row.offsets_ms().iter();
                scratch
                    .times_ms
                    .extend(offsets.map(|offset| base_ms + i64::from(*offset)));
                scratch
                    .values
                    .extend(scratch.row.values().iter().map(Value::as_f64));
                downsampler.feed(&scratch.times_ms, &scratch.values, &mut scratch.runs);
            }
        }
        self.budget.recount_series(before, series.column.held_bytes())
    }

    /// Whether blocks may be summarized: not if series end before their points do.
    pub(crate) const fn takes_summaries(&self) -> bool {
        self.extents.is_none()
    }

    /// Whether blocks of a series can be added in place of their points.
    pub(crate) fn takes_blocks(
        &self,
        summarizer: &Summarizer,
        tsuid: &[u8],
        columns: &Columns,
        blocks: &[BlockSummary],
    ) -> bool {
        let state = match self.series.get(tsuid).map(|series| &series.column) {
            Some(Column::Downsampled(downsampler)) => downsampler.state(),
            Some(Column::Raw(_) | Column::Averaged(_)) | None => 0.0,
        };
        summarizer.is_exact(columns, blocks, state)
    }

    /// Adds points of a series, by its TSUID, and the blocks between them that were not decoded. Their use is reported
    /// to the budget later: [`SeriesBuilder::report`].
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], and the errors of its TSUID.
    pub(crate) fn add_columns(
        &mut self,
        tsuid: &[u8],
        columns: &Columns,
        blocks: &[BlockSummary],
    ) -> Result<(), QueryError> {
        let of_blocks: usize = blocks.iter().map(|block| block.count).sum();
        let hours_of_blocks: u64 = blocks.iter().map(|block| hours_between(block.range)).sum();
        let mut used = Used {
            rows: rows_of(&columns.times_ms, self.options.row_ms()) + hours_of_blocks,
            bytes: (tsuid.len() + columns.byte_len() + size_of_val(blocks)) as u64,
            ..Used::default()
        };
        let count = match &self.extents {
            None => columns.len(),
            Some(extents) => {
                let stop_ms = extents.stop_ms(tsuid).unwrap_or(i64::MIN);
                columns.times_ms.partition_point(|time_ms| *time_ms < stop_ms)
            }
        };
        let first_of_blocks = blocks.first().map(|block| block.range.first_ms);
        let first_ms = columns.times_ms[..count].first().copied();
        let Some(first_ms) = first_ms.into_iter().chain(first_of_blocks).min() else {
            return self.pending.add(used, &self.budget);
        };
        used.points = (count + of_blocks) as u64;
        self.extend(tsuid, first_ms, used, |column, scratch| {
            column.extend(columns, count, blocks, scratch);
        })
    }

    /// Adds averages of a series, by its TSUID: sums, and counts at the same instants. An instant without both has none.
    ///
    /// # Errors
    ///
    /// As [`SeriesBuilder::add_columns`].
    pub(crate) fn add_averages(
        &mut self,
        tsuid: &[u8],
        sums: &Columns,
        counts: &Columns,
    ) -> Result<(), QueryError> {
        self.scratch.rollups.join(sums, counts);
        let times_ms = &self.scratch.rollups.times_ms;
        let used = Used {
            rows: rows_of(times_ms, self.options.row_ms()),
            bytes: (tsuid.len() + sums.byte_len() + counts.byte_len()) as u64,
            points: times_ms.len() as u64,
            ..Used::default()
        };
        let Some(first_ms) = times_ms.first().copied() else {
            return self.pending.add(used, &self.budget);
        };
        self.extend(tsuid, first_ms, used, |column, scratch| {
            if let Column::Averaged(averages) = column {
                averages.feed(&scratch.rollups, &mut scratch.runs);
            }
        })
    }

    /// Extends a series by points that begin at an instant.
    fn extend(
        &mut self,
        tsuid: &[u8],
        first_ms: i64,
        mut used: Used,
        extend: impl FnOnce(&mut Column, &mut Scratch),
    ) -> Result<(), QueryError> {
        self.statistics.points += used.points;
        let series = match self.series.get_mut(tsuid) {
            Some(series) => series,
            None if first_ms > self.options.begins_until_ms => {
                if self.late.insert(tsuid.into()) {
                    self.budget.hold_series_overhead(1)?;
                }
                return self.pending.add(used, &self.budget);
            }
            None => {
                let tsuid = Tsuid::from_bytes(tsuid, &self.options.layout.widths)
                    .map_err(|error| QueryError::row_series(tsuid, &error))?;
                let series = Series::new(tsuid, &self.options);
                used.new_series = 1;
                used.points += series.filled_count();
                self.series.insert(series)
            }
        };
        series.is_named = true;
        let before = series.column.held_bytes();
        extend(&mut series.column, &mut self.scratch);
        used.held_bytes = series.column.held_bytes().saturating_sub(before);
        self.pending.add(used, &self.budget)
    }

    /// Reports the use of columns to the budget.
    ///
    /// # Errors
    ///
    /// As [`PendingUse::report`].
    pub(crate) fn report(&mut self) -> Result<(), QueryError> {
        self.pending.report(&self.budget)
    }

    /// Handles a row with a key that is no series: an error, unless it has only annotations. OpenTSDB stores these
    /// under any bytes that it receives as a TSUID.
    fn skip_foreign(&mut self, row: &Row, error: QueryError) -> Result<(), QueryError> {
        if !row.cells().all(|cell| is_annotation(cell.qualifier)) {
            return Err(error);
        }
        self.statistics.skipped_cells += row.len() as u64;
        Ok(())
    }

    /// Counts a row that is skipped; the scratch has its TSUID.
    fn add_damaged(&mut self, row: &Row, base_ms: i64, reason: String) -> Result<(), QueryError> {
        self.statistics.damaged_rows += 1;
        if self.statistics.damaged.len() < MAX_DAMAGED_ROWS {
            let tsuid = Tsuid::from_bytes(&self.scratch.tsuid, &self.options.layout.widths)
                .map_err(|error| QueryError::row_series(row.key(), &error))?;
            let damaged = DamagedRow::new(tsuid, base_ms, reason);
            self.statistics.damaged.push(damaged);
        }
        Ok(())
    }

    /// Decodes the cells of a row and returns how many points they have; `None` if the row is skipped.
    fn decode_cells(&mut self, row: &Row, base_ms: i64) -> Result<Option<u64>, QueryError> {
        let scratch = &mut self.scratch;
        scratch.row.clear();
        scratch.annotations.clear();
        let cells = row.cells().map(|cell| CellRef {
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: cell.timestamp_ms,
        });
        let stats = match decode_row(cells, self.options.duplicates, &mut scratch.row) {
            Ok(stats) => stats,
            Err(error) if self.options.skip_damaged_rows => {
                self.add_damaged(row, base_ms, error.to_string())?;
                return Ok(None);
            }
            Err(error) => return Err(QueryError::row(row.key(), error)),
        };
        scratch.has_annotations = stats.annotations > 0;
        self.statistics.duplicates += stats.duplicates as u64;
        let mut skipped = stats.annotations + stats.histograms + stats.unknown_cells;
        if self.options.annotations && stats.annotations > 0 {
            let annotations = annotation_cells(row).filter_map(|cell| Annotation::decode(cell.value).ok());
            scratch.annotations.extend(annotations.map(Arc::new));
            skipped -= scratch.annotations.len();
        }
        self.statistics.skipped_cells += skipped as u64;
        Ok(Some(stats.points as u64))
    }

    /// Decodes the cells of a row of rollups and returns how many values they have; `None` if the row is skipped.
    fn decode_rollups(
        &mut self,
        row: &Row,
        base: BaseTime,
        source: &RollupSource,
    ) -> Result<Option<u64>, QueryError> {
        let scratch = &mut self.scratch;
        scratch.row.clear();
        scratch.annotations.clear();
        match scratch
            .rollups
            .decode(row, base, &source.read, self.options.duplicates)
        {
            Ok(stats) => {
                self.statistics.duplicates += stats.duplicates;
                self.statistics.skipped_cells += stats.skipped;
                let values = scratch.rollups.times_ms.len() as u64;
                Ok((values > 0).then_some(values))
            }
            Err(error) if self.options.skip_damaged_rows => {
                self.add_damaged(row, base.millis(), error.to_string())?;
                Ok(None)
            }
            Err(error) => Err(QueryError::rollup_row(&source.table, row.key(), error)),
        }
    }

    /// Sets the series and hours with rows to come. The builder adds the series of its own share.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub(crate) fn expect(
        &mut self,
        extents: Arc<SeriesExtents>,
        is_ours: impl Fn(&Tsuid) -> bool,
    ) -> Result<(), QueryError> {
        for tsuid in extents.series().filter(|tsuid| is_ours(tsuid)) {
            if self.series.get(tsuid.as_bytes()).is_none() {
                let mut series = Series::counted(tsuid.clone(), &self.options, &self.budget)?;
                series.is_named = true;
                self.series.insert(series);
            }
        }
        self.extents = Some(extents);
        Ok(())
    }

    /// The points of each series before an instant that were not taken yet, ascending by TSUID;
    /// [`i64::MAX`]: all of them. Otherwise the instant is one of [`Windows::final_until`], if there are
    /// windows, and all rows before it were added. The points stay held.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub(crate) fn take(&mut self, final_until_ms: i64) -> Result<Vec<SeriesPoints>, QueryError> {
        self.report()?;
        let is_ascending = self.series.is_ascending();
        let mut taken = Taken {
            series: Vec::with_capacity(self.series.len()),
            before: 0,
            after: 0,
        };
        if final_until_ms == i64::MAX {
            // Nothing follows: the series have all.
            for mut series in self.series.drain() {
                taken.take(&mut series, final_until_ms, &self.budget)?;
            }
        } else {
            for series in self.series.iter_mut() {
                taken.take(series, final_until_ms, &self.budget)?;
            }
        }
        self.budget.recount_series(taken.before, taken.after)?;
        if !is_ascending {
            taken.series.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
        }
        Ok(taken.series)
    }

    /// Returns the counts of all reads.
    pub(crate) fn into_statistics(self) -> Statistics {
        self.statistics
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_statistics(&mut self) -> Statistics {
        std::mem::take(&mut self.statistics)
    }
}

/// The points that are taken of all series.
struct Taken {
    series: Vec<SeriesPoints>,
    /// Memory of the series before, in bytes.
    before: u64,
    /// Memory of their rest and of the points that are taken, in bytes.
    after: u64,
}

impl Taken {
    fn take(&mut self, series: &mut Series, final_until_ms: i64, budget: &Budget) -> Result<(), QueryError> {
        self.before += series.column.held_bytes();
        // Charged before the windows are generated.
        let filled = series.filled_until(final_until_ms) as u64 * POINT_BYTES;
        if filled > 0 {
            budget.hold_series(filled)?;
            self.before += filled;
        }
        let points = series.take(final_until_ms);
        self.after += points.held_bytes() + series.column.held_bytes();
        self.series.push(SeriesPoints {
            tsuid: series.tsuid.clone(),
            points,
            from_epoch: series.rater.as_ref().and_then(|rater| rater.from_epoch),
            annotations: series.annotations.take(),
            is_named: series.is_named,
        });
        Ok(())
    }
}

const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

/// The hours of a block; each has a row if the block has points in it.
fn hours_between(range: TimeRange) -> u64 {
    let hours = range.last_ms.div_euclid(HOUR_MS) - range.first_ms.div_euclid(HOUR_MS) + 1;
    hours.unsigned_abs()
}

/// The rows of a length that points would be.
fn rows_of(times_ms: &[i64], row_ms: i64) -> u64 {
    let mut rows = 0;
    let mut rest = times_ms;
    while let Some(first) = rest.first() {
        let stop_ms = first - first.rem_euclid(row_ms) + row_ms;
        // A row has few of all points: steps that double find its end among the next ones.
        let mut few = 1;
        while rest.get(few).is_some_and(|time_ms| *time_ms < stop_ms) {
            few *= 2;
        }
        let few = few.min(rest.len());
        rest = &rest[few / 2 + rest[few / 2..few].partition_point(|time_ms| *time_ms < stop_ms)..];
        rows += 1;
    }
    rows
}

/// Memory of a series of points beside these while it is read and taken: two pointers and two slots of its place, since
/// half of them may be empty, the series, and the copy that is taken of it.
#[cfg(test)]
pub(crate) const LARGEST_BYTES: usize =
    2 * size_of::<(Box<Series>, u64)>() + size_of::<Series>() + size_of::<SeriesPoints>();

impl Series {
    /// A series that has not been seen before.
    fn new(tsuid: Tsuid, options: &SeriesOptions) -> Self {
        let column = match &options.downsample {
            None => Column::Raw(Points::default()),
            Some((windows, function)) if options.averages() => {
                let downsampler = Downsampler::new(Arc::clone(windows), *function);
                Column::Averaged(Box::new(Averages {
                    sums: downsampler.clone(),
                    counts: downsampler,
                }))
            }
            Some((windows, function)) => {
                Column::Downsampled(Box::new(Downsampler::new(Arc::clone(windows), *function)))
            }
        };
        Self {
            tsuid,
            column,
            rater: options.rate.clone(),
            annotations: None,
            is_named: options.names_without_points,
        }
    }

    /// As [`Series::new`], counted with the points that a fill policy will add.
    fn counted(tsuid: Tsuid, options: &SeriesOptions, budget: &Budget) -> Result<Self, QueryError> {
        let series = Self::new(tsuid, options);
        budget.use_series(1)?;
        budget.use_points(series.filled_count())?;
        Ok(series)
    }

    /// How many windows its fill policy adds in all.
    fn filled_count(&self) -> u64 {
        match &self.column {
            Column::Raw(_) => 0,
            Column::Downsampled(downsampler) => downsampler.filled_count(),
            Column::Averaged(averages) => averages.sums.filled_count(),
        }
    }

    /// How many windows its fill policy adds to the result of [`Series::take`].
    fn filled_until(&self, final_until_ms: i64) -> usize {
        match &self.column {
            Column::Downsampled(downsampler) if self.is_named => downsampler.filled_until(final_until_ms),
            Column::Averaged(averages) if self.is_named => averages.sums.filled_until(final_until_ms),
            Column::Raw(_) | Column::Downsampled(_) | Column::Averaged(_) => 0,
        }
    }

    fn take(&mut self, final_until_ms: i64) -> Points {
        let points = match &mut self.column {
            Column::Raw(points) => std::mem::take(points),
            Column::Downsampled(downsampler) if self.is_named => downsampler.take(final_until_ms),
            Column::Averaged(averages) if self.is_named => averages.take(final_until_ms),
            Column::Downsampled(_) | Column::Averaged(_) => return Points::default(),
        };
        match &mut self.rater {
            None => points,
            Some(rater) => rater.apply(&points),
        }
    }
}

impl SeriesOptions {
    /// The time that a row covers; for rollups, the longest row's.
    fn row_ms(&self) -> i64 {
        self.rollup.as_ref().map_or(HOUR_MS, |source| {
            let interval = &source.read.interval;
            i64::from(interval.intervals()) * i64::from(interval.seconds()) * 1000
        })
    }

    fn averages(&self) -> bool {
        let source = self.rollup.as_ref();
        source.is_some_and(|source| source.read.count.is_some())
    }
}

#[cfg(test)]
pub(super) mod tests;
