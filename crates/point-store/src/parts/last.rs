//! The newest points of series.

use super::read::WindowReader;
use super::series::SeriesKey;
use crate::{Point, PointStoreError, SeriesNumber, TimeRange};

impl WindowReader {
    /// The newest point of a series in the range: from the heads, unless a day has a newer one. Days are read from the
    /// last one back, as far as they can have one. Blocks on the disk.
    pub(super) fn newest(&mut self, series: SeriesNumber) -> Result<Option<Point>, PointStoreError> {
        let Some(metric) = self.core.series.metric_of(series) else {
            return Ok(None);
        };
        let key = SeriesKey { metric, series };
        let buffers = &mut self.buffers;
        let mut newest: Option<Point> = None;
        for head in self.view.heads.iter() {
            let point = head.last(series, self.view.range, &mut buffers.head, &mut buffers.points);
            // Of points of the same instant, the newest head's counts.
            if point.is_some_and(|point| newest.is_none_or(|newest| newest.time_ms <= point.time_ms)) {
                newest = point;
            }
        }
        for (window, day) in self.view.windows.iter().rev() {
            let after = newest.map_or(i64::MIN, |point| point.time_ms.saturating_add(1));
            let newer = TimeRange {
                first_ms: window.first_ms.max(after),
                last_ms: window.last_ms,
            };
            if newer.last_ms < newer.first_ms {
                break;
            }
            let Some(list) = day else { continue };
            let days = &self.core.days;
            let point = days.last_of_day(list, key, newer, &mut buffers.decoder, &mut buffers.points)?;
            if point.is_some() {
                return Ok(point);
            }
        }
        Ok(newest)
    }
}
