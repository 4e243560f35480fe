//! Reads: the points of series from parts and heads, in bounded batches.

use std::sync::Arc;

use super::core::Core;
use super::days::day::DayList;
use super::days::points::settle;
use super::head::{HeadScratch, Heads};
use super::part::{Columns, Decoder};
use super::series::SeriesKey;
use crate::{PointStoreError, SeriesColumns, SeriesNumber, TimeRange};

/// Points at which a batch ends.
const BATCH_POINTS: usize = 64 << 10;

/// What a read sees: all points as of one instant, and those that are appended to the active head meanwhile.
#[derive(Debug)]
pub(super) struct View {
    heads: Heads,
    days: Vec<Arc<DayList>>,
    /// Parts of the range, ascending, that are read one after the other.
    windows: Vec<TimeRange>,
}

impl View {
    pub(super) fn of(core: &Core, range: TimeRange) -> Self {
        let (heads, days) = {
            let heads = core.heads.read();
            (heads.clone(), core.days.days_in(range))
        };
        let windows = windows(range, days.iter().map(|list| list.day().range()));
        Self { heads, days, windows }
    }

    /// Appends the points of a series in a window.
    fn read(
        &self,
        core: &Core,
        key: SeriesKey,
        window: TimeRange,
        buffers: &mut Buffers,
        columns: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let from = columns.len();
        for list in self
            .days
            .iter()
            .filter(|list| list.day().range().overlaps(&window))
        {
            core.days
                .read_day(list, key, window, &mut buffers.decoder, columns)?;
        }
        for head in self.heads.iter() {
            buffers.points.clear();
            head.read(key.series, window, &mut buffers.head, &mut buffers.points);
            buffers.points.iter().for_each(|point| columns.push(*point));
        }
        settle(columns, from);
        Ok(())
    }
}

/// Divides a range at the days that have parts: what lies between them is in heads only, which are small.
fn windows(range: TimeRange, days: impl Iterator<Item = TimeRange>) -> Vec<TimeRange> {
    let mut windows = Vec::new();
    let mut next_ms = range.first_ms.max(0);
    for day in days {
        if next_ms < day.first_ms {
            windows.push(TimeRange {
                first_ms: next_ms,
                last_ms: range.last_ms.min(day.first_ms - 1),
            });
        }
        windows.push(TimeRange {
            first_ms: next_ms.max(day.first_ms),
            last_ms: range.last_ms.min(day.last_ms),
        });
        next_ms = day.last_ms + 1;
    }
    if next_ms <= range.last_ms {
        windows.push(TimeRange {
            first_ms: next_ms,
            last_ms: range.last_ms,
        });
    }
    windows
}

#[derive(Debug, Default)]
struct Buffers {
    decoder: Decoder,
    head: HeadScratch,
    points: Vec<crate::Point>,
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
            let mut columns = Columns::default();
            while let Some(window) = self.view.windows.get(self.next.1).copied() {
                let (core, view) = (&self.core, &self.view);
                view.read(core, key, window, &mut self.buffers, &mut columns)?;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_range_once() {
        let range = |first_ms, last_ms| TimeRange { first_ms, last_ms };
        let days = [range(100, 199), range(200, 299), range(500, 599)];
        assert_eq!(
            windows(range(150, 700), days.into_iter()),
            [
                range(150, 199),
                range(200, 299),
                range(300, 499),
                range(500, 599),
                range(600, 700)
            ]
        );
        assert_eq!(
            windows(range(110, 120), days[..1].iter().copied()),
            [range(110, 120)]
        );
        assert_eq!(windows(range(1, 9), [].into_iter()), [range(1, 9)]);
    }
}
