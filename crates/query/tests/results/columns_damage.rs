//! Queries report points that a damaged part has lost, or skip them if they may.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Engine, Limits, QueryError, QueryResources, QuerySpec, Quirks, RequestContext,
    WholeResult,
};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::DuplicatePolicy;
use oxtsdb_storage_file::disk::real::RealDisk;

use crate::support::{START_MS, engine};

const DAY_MS: i64 = 86_400_000;

/// Two days of 200 series; a byte of a page of the first day is flipped.
async fn damaged(folder: &Path) -> Arc<dyn PointStore> {
    let config = || PartsConfig::new(folder, Arc::new(RealDisk));
    let store = PartsStore::open(config()).unwrap();
    let keys: Vec<Vec<u8>> = (0..200).map(|tagv| vec![0, 0, 1, 0, 0, 1, 0, 0, tagv]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut batch = PointBatch::default();
    for series in store.numbers(&keys).unwrap() {
        for hour in 0..48 {
            let point = Point {
                time_ms: START_MS + hour * DAY_MS / 24,
                kind: PointKind::from_byte(0).unwrap(),
                bits: 1,
            };
            batch.push(series, point);
        }
    }
    store.append(batch).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let days = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let day = days.filter(|path| path.ends_with("2013-01-01")).last().unwrap();
    let files = fs::read_dir(day).unwrap().map(|entry| entry.unwrap().path());
    let part: PathBuf = files
        .filter(|path| path.extension().is_some_and(|ext| ext == "part"))
        .last()
        .unwrap();
    let mut bytes = fs::read(&part).unwrap();
    bytes[20] ^= 1;
    fs::write(&part, bytes).unwrap();
    Arc::new(PartsStore::open(config()).unwrap())
}

async fn result(engine: &Engine, day: i64, skip_damaged_rows: bool) -> Result<WholeResult, QueryError> {
    let query = QuerySpec {
        start_ms: START_MS + day * DAY_MS,
        end_ms: START_MS + day * DAY_MS + DAY_MS / 2,
        sub_queries: vec![parse_metric_query("sum:m", &jiff::tz::TimeZone::UTC).unwrap()],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows,
        with_surroundings: false,
        with_infinities: false,
        annotations: AnnotationSelection::default(),
    };
    engine.collect(query, RequestContext::default()).await
}

#[tokio::test]
async fn lost_points_fail_a_query_unless_it_skips_damage() {
    for skips_first in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let columns = damaged(&folder.path().join("points")).await;
        let engine = engine(columns, Limits::NONE, QueryResources::unlimited().unwrap()).await;
        for skips in [skips_first, false, true] {
            let outcome = result(&engine, 0, skips).await;
            if skips {
                let statistics = outcome.unwrap().statistics;
                assert!(statistics.damaged_rows > 0, "the damage is reported");
            } else {
                let error = outcome.unwrap_err();
                let is_corrupt = matches!(&error, QueryError::Store(StoreError::Corrupt { .. }));
                assert!(is_corrupt, "{error}");
            }
        }
        // The other day is complete.
        let statistics = result(&engine, 1, false).await.unwrap().statistics;
        assert_eq!((statistics.points, statistics.damaged_rows), (200 * 13, 0));
    }
}
