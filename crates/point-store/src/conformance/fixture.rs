//! The store under test, with helpers for the checks.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_schema::{Timestamp, Value};

use super::Subject;
use crate::{Columns, Point, PointBatch, PointStore, ReadRequest, SeriesNumber, TimeRange};

/// 2013-01-01 00:00 UTC.
pub(super) const START_MS: i64 = 1_356_998_400_000;

/// The store under test.
pub(super) struct Fixture<'a> {
    pub(super) subject: &'a dyn Subject,
    pub(super) store: Arc<dyn PointStore>,
}

impl Fixture<'_> {
    /// The numbers of the first `count` series of metric 1.
    pub(super) fn series(&self, count: u16) -> Vec<SeriesNumber> {
        let keys: Vec<_> = (0..count).map(|tagv| key(1, tagv)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.store.numbers(&keys).unwrap()
    }

    /// Appends points.
    pub(super) async fn append(&self, points: &[(SeriesNumber, Point)]) {
        self.store.append(batch(points)).await.unwrap();
    }

    /// Reads the points of some series.
    pub(super) async fn read(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Vec<(SeriesNumber, Vec<Point>)> {
        read(&*self.store, series, range).await
    }

    /// Reads all points of a series.
    pub(super) async fn points(&self, series: SeriesNumber) -> Vec<Point> {
        let mut read = self.read(&[series], TimeRange::ALL).await;
        read.pop().map(|(_, points)| points).unwrap_or_default()
    }
}

/// Reads the points of some series, and checks the form of the result.
pub(super) async fn read(
    store: &dyn PointStore,
    series: &[SeriesNumber],
    range: TimeRange,
) -> Vec<(SeriesNumber, Vec<Point>)> {
    let request = ReadRequest {
        series: series.to_vec(),
        range,
    };
    let items: Vec<_> = store.read(request).try_collect().await.unwrap();
    let mut all: Vec<(SeriesNumber, Vec<Point>)> = Vec::new();
    for columns in items.into_iter().flatten() {
        assert!(!columns.is_empty(), "columns have at least one point");
        assert_eq!(columns.bits.len(), columns.len());
        match all.last_mut() {
            Some((series, points)) if *series == columns.series => points.extend(columns.points()),
            _ => all.push((columns.series, columns.points().collect())),
        }
    }
    let mut reader = store.reader(range).unwrap();
    assert!(all.is_empty() || !reader.is_empty(), "{all:?}");
    let mut columns = Columns::default();
    for (number, points) in &all {
        reader.read(*number, &mut columns).unwrap();
        assert!(
            columns.points().eq(points.iter().copied()),
            "a reader returns the same"
        );
    }
    for (_, points) in &all {
        assert!(points.is_sorted_by(|a, b| a.time_ms < b.time_ms), "{points:?}");
        assert!(points.iter().all(|point| range.contains(point.time_ms)));
    }
    all
}

/// The key of a series with one tag, of UIDs of 3 bytes.
pub(super) fn key(metric: u8, tagv: u16) -> Vec<u8> {
    let [high, low] = tagv.to_be_bytes();
    vec![0, 0, metric, 0, 0, 1, 0, high, low]
}

/// A batch of points.
pub(super) fn batch(points: &[(SeriesNumber, Point)]) -> PointBatch {
    let mut batch = PointBatch::with_capacity(points.len());
    for (series, point) in points {
        batch.push(*series, *point);
    }
    batch
}

/// An integer, `seconds` after the start.
pub(super) fn int(seconds: i64, value: i64) -> Point {
    let seconds = u32::try_from(START_MS / 1000 + seconds).unwrap();
    Point::new(Timestamp::from_seconds(seconds), &Value::Int(value))
}

/// A value, `millis` milliseconds after the start.
pub(super) fn millis(millis: i64, value: Value) -> Point {
    Point::new(Timestamp::from_millis(START_MS + millis).unwrap(), &value)
}

/// A range of seconds after the start, both ends inside.
pub(super) fn seconds(first: i64, last: i64) -> TimeRange {
    TimeRange {
        first_ms: START_MS + first * 1000,
        last_ms: START_MS + last * 1000,
    }
}
