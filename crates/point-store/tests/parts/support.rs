//! Stores with small limits, so that few points go through all stages.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{
    Point, PointBatch, PointKind, PointStore as _, PointStoreError, ReadRequest, Resolution, SeriesNumber,
    TimeRange, ValueKind,
};
use oxtsdb_storage_file::disk::Disk;

pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// A store that flushes after some thousand points, in folder `/store`.
pub(crate) fn small(disk: Arc<dyn Disk>) -> PartsConfig {
    PartsConfig {
        shards: 2,
        head_bytes: 2 << 20,
        journal_bytes: 8 << 10,
        flush_after: Duration::from_secs(3600),
        cache_bytes: 64 << 10,
        open_files: 16,
        merge_bytes_per_second: 0,
        reserve_bytes: 0,
        ..PartsConfig::new(Path::new("/store"), disk)
    }
}

pub(crate) fn int(second: i64, value: i64) -> Point {
    Point {
        time_ms: START_MS + second * 1000,
        kind: PointKind::new(Resolution::Seconds, ValueKind::Int),
        bits: value.cast_unsigned(),
    }
}

/// Keys of series of a few metrics, with 3 bytes for each UID.
pub(crate) fn keys(count: u32) -> Vec<Vec<u8>> {
    let key = |number: u32| {
        let tagv = number.to_be_bytes();
        [&[0, 0, 1 + tagv[3] % 3, 0, 0, 1], &tagv[1..]].concat()
    };
    (0..count).map(key).collect()
}

pub(crate) fn numbers(store: &PartsStore, keys: &[Vec<u8>]) -> Vec<SeriesNumber> {
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    oxtsdb_point_store::PointStore::numbers(store, &keys).unwrap()
}

pub(crate) fn batch(points: &[(SeriesNumber, Point)]) -> PointBatch {
    let mut batch = PointBatch::default();
    points
        .iter()
        .for_each(|(series, point)| batch.push(*series, *point));
    batch
}

/// All points of series in a range.
pub(crate) async fn read(
    store: &PartsStore,
    series: &[SeriesNumber],
    range: TimeRange,
) -> Result<Vec<(SeriesNumber, Vec<Point>)>, PointStoreError> {
    let mut series_points: Vec<(SeriesNumber, Vec<Point>)> = Vec::new();
    let request = ReadRequest {
        series: series.to_vec(),
        range,
    };
    let mut batches = store.read(request);
    while let Some(columns) = batches.try_next().await? {
        for columns in columns {
            match series_points.last_mut() {
                Some((series, points)) if *series == columns.series => points.extend(columns.points()),
                _ => series_points.push((columns.series, columns.points().collect())),
            }
        }
    }
    Ok(series_points)
}
