//! The newest points of series.

use super::core::Core;
use super::head::{Head, HeadScratch};
use super::part::{Columns, Decoder};
use super::series::SeriesKey;
use crate::{Point, PointStoreError, SeriesNumber, TimeRange};

impl Core {
    /// The newest point of each series in a range: that of the heads, unless a day has a newer one. Days are read from
    /// the last one back, as far as they can have one. Blocks on the disk.
    pub(super) fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        let (heads, days) = {
            let heads = self.heads.read();
            (heads.clone(), self.days.days_in(range))
        };
        let (mut decoder, mut columns) = (Decoder::default(), Columns::default());
        let (mut scratch, mut points) = (HeadScratch::default(), Columns::default());
        let mut newest = |series: SeriesNumber| {
            let Some(metric) = self.series.metric_of(series) else {
                return Ok(None);
            };
            let key = SeriesKey { metric, series };
            let mut newest: Option<Point> = None;
            for head in heads.iter() {
                let point = last_of_head(head, series, range, &mut scratch, &mut points);
                // Of points of the same instant, that of the newest head is the one.
                if point.is_some_and(|point| newest.is_none_or(|newest| newest.time_ms <= point.time_ms)) {
                    newest = point;
                }
            }
            for list in days.iter().rev() {
                let first_ms = newest.map_or(range.first_ms, |point| point.time_ms.saturating_add(1));
                let newer = TimeRange { first_ms, ..range };
                if !list.day().range().overlaps(&newer) {
                    break;
                }
                let point = self
                    .days
                    .last_of_day(list, key, newer, &mut decoder, &mut columns)?;
                if point.is_some() {
                    return Ok(point);
                }
            }
            Ok(newest)
        };
        series.iter().map(|series| newest(*series)).collect()
    }
}

/// The newest point of a series in a head; `points` is a buffer.
fn last_of_head(
    head: &Head,
    series: SeriesNumber,
    range: TimeRange,
    scratch: &mut HeadScratch,
    points: &mut Columns,
) -> Option<Point> {
    points.clear();
    head.read(series, range, scratch, points);
    points.points().next_back()
}
