//! Reads: the points of series from parts and heads, in bounded batches.

use std::sync::Arc;

use super::core::Core;
use super::days::day::DayList;
use super::days::points::settle;
use super::head::{HeadScratch, Heads};
use super::part::{Columns, Decoder};
use super::series::SeriesKey;
use crate::{
    BlockSummary, Point, PointStoreError, ReadEstimate, SeriesColumns, SeriesNumber, SeriesReader, TimeRange,
};

/// Points at which a batch ends.
const BATCH_POINTS: usize = 64 << 10;

/// The points that a read sees: all as of one instant, and points that are appended to the active head meanwhile.
#[derive(Debug)]
pub(super) struct View {
    pub(super) heads: Heads,
    pub(super) range: TimeRange,
    /// Divides the range, ascending, at the days that have parts; `None` between them, where only heads have points.
    pub(super) windows: Vec<(TimeRange, Option<Arc<DayList>>)>,
}

impl View {
    fn new(core: &Core, range: TimeRange) -> Self {
        let heads = core.heads.read();
        Self {
            heads: heads.clone(),
            range,
            windows: windows(range, core.days.days_in(range), |list| list.day().range()),
        }
    }
}

/// Divides a range at days that overlap it, ascending; `range_of` returns the range of a day.
fn windows<D>(
    range: TimeRange,
    days: impl IntoIterator<Item = D>,
    range_of: impl Fn(&D) -> TimeRange,
) -> Vec<(TimeRange, Option<D>)> {
    let mut windows = Vec::new();
    let mut next_ms = range.first_ms.max(0);
    for day in days {
        let of_day = range_of(&day);
        if next_ms < of_day.first_ms {
            let between = TimeRange {
                first_ms: next_ms,
                last_ms: range.last_ms.min(of_day.first_ms - 1),
            };
            windows.push((between, None));
        }
        let within = TimeRange {
            first_ms: next_ms.max(of_day.first_ms),
            last_ms: range.last_ms.min(of_day.last_ms),
        };
        windows.push((within, Some(day)));
        next_ms = of_day.last_ms + 1;
    }
    if next_ms <= range.last_ms {
        let rest = TimeRange {
            first_ms: next_ms,
            last_ms: range.last_ms,
        };
        windows.push((rest, None));
    }
    windows
}

#[derive(Debug, Default)]
pub(super) struct Buffers {
    pub(super) decoder: Decoder,
    pub(super) head: HeadScratch,
    /// The points of the current series in heads, ascending.
    pub(super) points: Columns,
}

/// Reads series one after the other, window by window.
#[derive(Debug)]
pub(super) struct WindowReader {
    pub(super) core: Arc<Core>,
    pub(super) view: View,
    pub(super) buffers: Buffers,
}

impl WindowReader {
    pub(super) fn new(core: Arc<Core>, range: TimeRange) -> Self {
        let view = View::new(&core, range);
        Self {
            core,
            view,
            buffers: Buffers::default(),
        }
    }

    /// Begins a series; `None` if it is unknown.
    fn begin(&mut self, series: SeriesNumber) -> Option<SeriesKey> {
        let metric = self.core.series.metric_of(series)?;
        self.read_heads(series);
        Some(SeriesKey { metric, series })
    }

    /// Appends the points of a window of the series that was begun last.
    fn read_window(
        &mut self,
        key: SeriesKey,
        window: usize,
        columns: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let Some((window, day)) = self.view.windows.get(window) else {
            return Ok(());
        };
        let (from, buffers) = (columns.len(), &mut self.buffers);
        if let Some(list) = day {
            let days = &self.core.days;
            days.read_day(list, key, *window, &mut buffers.decoder, columns)?;
        }
        let points = &buffers.points;
        let start = points
            .times_ms
            .partition_point(|time_ms| *time_ms < window.first_ms);
        let end = points
            .times_ms
            .partition_point(|time_ms| *time_ms <= window.last_ms);
        let has_both = from < columns.len() && start < end;
        columns.extend_from(points, start..end.max(start));
        if has_both {
            settle(columns, from);
        }
        Ok(())
    }

    /// Reads the points of a series in heads, which have them in the order of their arrival, not by day.
    fn read_heads(&mut self, series: SeriesNumber) {
        let Buffers {
            head: scratch,
            points,
            ..
        } = &mut self.buffers;
        points.clear();
        let mut heads = 0;
        for head in self.view.heads.iter() {
            let before = points.len();
            head.read(series, self.view.range, scratch, points);
            heads += usize::from(before < points.len());
        }
        if heads > 1 {
            // Newer heads follow older ones.
            settle(points, 0);
        }
    }
}

impl SeriesReader for WindowReader {
    fn announce(&mut self, series: &[SeriesNumber]) {
        for head in self.view.heads.iter() {
            head.touch(series.iter().copied());
        }
    }

    fn is_empty(&self) -> bool {
        let View {
            heads,
            range,
            windows,
        } = &self.view;
        let of_heads = heads.iter().filter_map(|head| head.extent());
        let of_days = windows.iter().filter_map(|(_, day)| day.as_ref());
        let of_parts = of_days
            .flat_map(|day| day.parts())
            .filter_map(|part| part.range());
        !of_heads.chain(of_parts).any(|extent| extent.overlaps(range))
    }

    fn read(&mut self, series: SeriesNumber, points: &mut Columns) -> Result<(), PointStoreError> {
        points.clear();
        let Some(key) = self.begin(series) else {
            return Ok(());
        };
        if let [(_, None)] = self.view.windows.as_slice() {
            // Points are in heads only, and those in the range were read.
            std::mem::swap(points, &mut self.buffers.points);
            return Ok(());
        }
        (0..self.view.windows.len()).try_for_each(|window| self.read_window(key, window, points))
    }

    fn read_summarized(
        &mut self,
        series: SeriesNumber,
        summarizes: &dyn Fn(&BlockSummary) -> bool,
        points: &mut Columns,
        summaries: &mut Vec<BlockSummary>,
    ) -> Result<(), PointStoreError> {
        points.clear();
        summaries.clear();
        let Some(key) = self.begin(series) else {
            return Ok(());
        };
        for window in 0..self.view.windows.len() {
            let (range, day) = &self.view.windows[window];
            let of_heads = &self.buffers.points.times_ms;
            let first = of_heads.partition_point(|time_ms| *time_ms < range.first_ms);
            let in_heads = of_heads
                .get(first)
                .is_some_and(|time_ms| *time_ms <= range.last_ms);
            if let Some(list) = day.as_ref().filter(|_| !in_heads) {
                let (days, decoder) = (&self.core.days, &mut self.buffers.decoder);
                let out = (&mut *points, &mut *summaries);
                days.summarize_day(list, key, *range, summarizes, decoder, out)?;
            } else {
                self.read_window(key, window, points)?;
            }
        }
        Ok(())
    }

    fn last(&mut self, series: SeriesNumber) -> Result<Option<Point>, PointStoreError> {
        self.newest(series)
    }
}

/// Reads series in batches.
#[derive(Debug)]
pub(super) struct BatchReader {
    reader: WindowReader,
    series: Vec<SeriesNumber>,
    /// The next series.
    next: usize,
    /// The series that was begun, and its next window.
    begun: Option<(SeriesKey, usize)>,
}

impl BatchReader {
    pub(super) fn new(core: Arc<Core>, series: Vec<SeriesNumber>, range: TimeRange) -> Self {
        Self {
            reader: WindowReader::new(core, range),
            series,
            next: 0,
            begun: None,
        }
    }

    /// The next batch; empty at the end. Blocks on the disk.
    pub(super) fn next_batch(&mut self) -> Result<Vec<SeriesColumns>, PointStoreError> {
        let mut batch = Vec::new();
        let mut points = 0;
        while points < BATCH_POINTS {
            let Some((key, window)) = self.begun.take().or_else(|| self.begin_next()) else {
                break;
            };
            let mut columns = Columns::default();
            for window in window..self.reader.view.windows.len() {
                self.reader.read_window(key, window, &mut columns)?;
                if points + columns.len() >= BATCH_POINTS {
                    self.begun = Some((key, window + 1));
                    break;
                }
            }
            points += columns.len();
            if !columns.is_empty() {
                batch.push(columns.into_series(key.series));
            }
        }
        Ok(batch)
    }

    /// Begins the next series that is known.
    fn begin_next(&mut self) -> Option<(SeriesKey, usize)> {
        while let Some(series) = self.series.get(self.next) {
            self.next += 1;
            if let Some(key) = self.reader.begin(*series) {
                return Some((key, 0));
            }
        }
        None
    }
}

impl Core {
    /// See [`crate::PointStore::estimate`].
    pub(super) fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        let (Some(first), Some(last)) = (series.first(), series.last()) else {
            return ReadEstimate::default();
        };
        let View { heads, windows, .. } = View::new(self, range);
        let mut estimate = ReadEstimate::default();
        for head in heads.iter() {
            estimate.add(head.estimate(series, range));
        }
        let key = |series: SeriesNumber| {
            let metric = self.series.metric_of(series)?;
            Some(SeriesKey { metric, series })
        };
        if let (Some(first), Some(last)) = (key(*first), key(*last)) {
            // Series of several metrics: a range of keys that has them all.
            let (first, last) = (first.min(last), first.max(last));
            for (window, list) in windows
                .iter()
                .filter_map(|(window, day)| Some((window, day.as_ref()?)))
            {
                for part in list.parts() {
                    estimate.add(part.part().estimate(first..=last, series.len(), *window));
                }
            }
        }
        estimate
    }
}

impl Core {
    /// See [`crate::PointStore::points_in_memory`].
    pub(super) fn points_in_memory(&self, series: &[SeriesNumber], range: TimeRange) -> Option<u64> {
        let View { heads, windows, .. } = View::new(self, range);
        let of_heads = heads.iter().map(|head| head.estimate(series, range).most_points);
        let mut points: u64 = of_heads.sum();
        for (window, list) in &windows {
            for part in list.iter().flat_map(|list| list.parts()) {
                for series in series {
                    // A series that is unknown has no points.
                    if let Some(metric) = self.series.metric_of(*series) {
                        let key = SeriesKey {
                            metric,
                            series: *series,
                        };
                        points += part.part().cached_points(key, *window)?;
                    }
                }
            }
        }
        Some(points)
    }
}

impl ReadEstimate {
    fn add(&mut self, other: Self) {
        self.points += other.points;
        self.most_points += other.most_points;
        self.memory_points += other.memory_points;
        self.files += other.files;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_range_once() {
        let range = |first_ms, last_ms| TimeRange { first_ms, last_ms };
        let days = [range(100, 199), range(200, 299), range(500, 599)];
        let windows = |range: TimeRange, days: &[TimeRange]| -> Vec<(TimeRange, bool)> {
            let windows = super::windows(range, days, |day| **day);
            let has_day = |(range, day): (TimeRange, Option<&TimeRange>)| (range, day.is_some());
            windows.into_iter().map(has_day).collect()
        };
        assert_eq!(
            windows(range(150, 700), &days),
            [
                (range(150, 199), true),
                (range(200, 299), true),
                (range(300, 499), false),
                (range(500, 599), true),
                (range(600, 700), false)
            ]
        );
        assert_eq!(windows(range(110, 120), &days[..1]), [(range(110, 120), true)]);
        assert_eq!(windows(range(1, 9), &[]), [(range(1, 9), false)]);
    }
}
