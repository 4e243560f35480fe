//! Reads: the points of series from parts and heads, in bounded batches.

use std::sync::Arc;

use super::core::Core;
use super::days::day::DayList;
use super::days::points::settle;
use super::head::{HeadScratch, Heads, sort_newest};
use super::part::{Columns, Decoder};
use super::series::SeriesKey;
use crate::{Point, PointStoreError, SeriesColumns, SeriesNumber, TimeRange};

/// Points at which a batch ends.
const BATCH_POINTS: usize = 64 << 10;

/// What a read sees: all points as of one instant, and those that are appended to the active head meanwhile.
#[derive(Debug)]
struct View {
    heads: Heads,
    range: TimeRange,
    /// Divides the range, ascending, at the days that have parts; `None` between them, where only heads have points.
    windows: Vec<(TimeRange, Option<Arc<DayList>>)>,
}

impl View {
    fn of(core: &Core, range: TimeRange) -> Self {
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
struct Buffers {
    decoder: Decoder,
    head: HeadScratch,
    /// The points of the current series in heads, ascending.
    points: Vec<Point>,
}

/// Reads series one after the other.
#[derive(Debug)]
pub(super) struct Reader {
    core: Arc<Core>,
    series: Vec<SeriesNumber>,
    /// The next series, and the next window of it.
    next: (usize, usize),
    view: View,
    buffers: Buffers,
}

impl Reader {
    pub(super) fn new(core: Arc<Core>, series: Vec<SeriesNumber>, range: TimeRange) -> Self {
        let view = View::of(&core, range);
        Self {
            core,
            series,
            next: (0, 0),
            view,
            buffers: Buffers::default(),
        }
    }

    /// The next batch; empty at the end. Blocks on the disk.
    pub(super) fn next_batch(&mut self) -> Result<Vec<SeriesColumns>, PointStoreError> {
        let mut batch = Vec::new();
        let mut points = 0;
        while points < BATCH_POINTS
            && let Some(series) = self.series.get(self.next.0).copied()
        {
            let Some(metric) = self.core.series.metric_of(series) else {
                self.next = (self.next.0 + 1, 0);
                continue;
            };
            let key = SeriesKey { metric, series };
            if self.next.1 == 0 {
                self.read_heads(series);
            }
            let mut columns = Columns::default();
            while let Some((window, day)) = self.view.windows.get(self.next.1) {
                let (from, buffers) = (columns.len(), &mut self.buffers);
                if let Some(list) = day {
                    let days = &self.core.days;
                    days.read_day(list, key, *window, &mut buffers.decoder, &mut columns)?;
                }
                let start = buffers
                    .points
                    .partition_point(|point| point.time_ms < window.first_ms);
                let newer = buffers.points[start..].iter();
                let newer = newer.take_while(|point| point.time_ms <= window.last_ms);
                newer.for_each(|point| columns.push(*point));
                settle(&mut columns, from);
                self.next.1 += 1;
                if points + columns.len() >= BATCH_POINTS {
                    break;
                }
            }
            if self.next.1 >= self.view.windows.len() {
                self.next = (self.next.0 + 1, 0);
            }
            points += columns.len();
            if !columns.is_empty() {
                batch.push(columns.into_series(series));
            }
        }
        Ok(batch)
    }

    /// Reads the points of a series in heads, which have them in the order of their arrival, not by day.
    fn read_heads(&mut self, series: SeriesNumber) {
        let Buffers {
            head: scratch,
            points,
            ..
        } = &mut self.buffers;
        points.clear();
        for head in self.view.heads.iter() {
            head.read(series, self.view.range, scratch, points);
        }
        // Newer heads follow older ones.
        if !points.is_sorted_by(|one, next| one.time_ms < next.time_ms) {
            sort_newest(points, 0);
        }
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
