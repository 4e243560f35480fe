//! Writing points by calls: any number of points, split into requests.

mod request;
mod rollups;

use oxtsdb_proto::data::v1::Failures;

use crate::call::Connection;
use crate::{Error, FailedPoint, Point, WriteReport, failures};

pub(crate) use rollups::write_rollups;
pub use rollups::{Aggregate, Rollup};

/// Names and values of one request, in bytes: a quarter of what servers accept by default.
const REQUEST_BYTES: usize = 4 << 20;

/// Writes points in requests of bounded size, one after the other.
pub(crate) async fn write(
    connection: &Connection,
    points: impl IntoIterator<Item = Point>,
) -> Result<WriteReport, Error> {
    let mut report = WriteReport::default();
    let mut first_index = 0;
    let mut points = points.into_iter();
    loop {
        let chunk = next_chunk(&mut points);
        if chunk.is_empty() {
            return Ok(report);
        }
        let request = request::from_points(&chunk, connection.options().allow_any_time);
        let response = connection.call(&request).await?;
        report.written += response.written;
        report.failed += response.failed;
        let failures = response.failures.unwrap_or_default();
        let point = |position| chunk.get(position);
        report
            .failures
            .extend(failed_points(failures, first_index, point));
        first_index += chunk.len() as u64;
    }
}

/// The failed points of a response, by the points of its request and the number of the first.
fn failed_points<'a>(
    failures: Failures,
    first_index: u64,
    point: impl Fn(usize) -> Option<&'a Point>,
) -> impl Iterator<Item = FailedPoint> {
    let ranges = failures::ranges(failures).into_iter();
    ranges.flat_map(move |range| {
        let positions = (range.first..range.end).map_while(|position| {
            let point = point(usize::try_from(position).ok()?)?;
            Some((position, point))
        });
        let failed: Vec<FailedPoint> = positions
            .map(|(position, point)| FailedPoint {
                index: first_index + position,
                series: point.series.clone(),
                timestamp: point.timestamp,
                retryable: range.retryable,
                rejection: range.rejection.clone(),
            })
            .collect();
        failed
    })
}

/// The points of the next request; none after the last.
fn next_chunk(points: &mut impl Iterator<Item = Point>) -> Vec<Point> {
    let mut chunk = Vec::new();
    let mut bytes = 0;
    while chunk.len() < request::MAX_POINTS && bytes < REQUEST_BYTES {
        let Some(point) = points.next() else { break };
        bytes += point.series.text_bytes() + request::POINT_BYTES;
        chunk.push(point);
    }
    chunk
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SeriesName, Timestamp};

    fn chunks(name: &str, count: usize) -> Vec<usize> {
        let series = SeriesName::new(name, [("host", "a")]);
        let mut points = (0..count).map(|_| Point::new(&series, Timestamp::from_seconds(1), 1));
        let chunks = std::iter::from_fn(|| Some(next_chunk(&mut points).len()));
        chunks.take_while(|points| *points > 0).collect()
    }

    #[test]
    fn requests_are_bounded_by_points_and_by_bytes() {
        assert_eq!(chunks("m", 25_000), [10_000, 10_000, 5_000]);
        assert_eq!(chunks("m", 0), [] as [usize; 0]);
        let large = "m".repeat(1 << 20);
        assert_eq!(chunks(&large, 10), [4, 4, 2]);
    }
}
