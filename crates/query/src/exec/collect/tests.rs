use futures::FutureExt as _;
use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore as _, Resolution, ValueKind};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout, Value};

use oxtsdb_row_store::Row;

use super::*;
use crate::context::limits::Limits;
use crate::exec::series_builder::tests::{T, row};

fn shape() -> SeriesOptions {
    SeriesOptions {
        rollup: None,
        layout: RowKeyLayout::default(),
        duplicates: DuplicatePolicy::Error,
        skip_damaged_rows: false,
        begins_until_ms: i64::MAX,
        downsample: None,
        rate: None,
        annotations: false,
        names_without_points: true,
    }
}

fn budget(points: u64) -> Budget {
    Budget::from_limits(Limits::NONE.with_points(points))
}

fn collector(limit: u64) -> Collector {
    Collector::new(shape(), budget(limit), ComputePool::new(2).unwrap(), None)
}

fn batch_of(rows: Vec<Row>) -> RowBatch {
    RowBatch::new(rows, &budget(0)).unwrap()
}

/// Two hours of 200 series, in the order of a scan: 800 points.
fn rows() -> Vec<Row> {
    let hour = |hour: u32| {
        (0..200).map(move |series| {
            let at = hour * 3600;
            row(
                series,
                &[
                    (at, Value::Int(i64::from(series))),
                    (at + 10, Value::Int(i64::from(T))),
                ],
            )
        })
    };
    hour(0).chain(hour(1)).collect()
}

#[tokio::test]
async fn workers_build_the_same_series_as_one_builder() {
    let mut alone = SeriesBuilder::new(shape(), budget(0));
    for row in rows() {
        alone.add(&row).unwrap();
    }
    let expected = alone.take(i64::MAX).unwrap();
    assert_eq!(expected.len(), 200);
    for batch_rows in [1, 7, 100, 400] {
        let mut collector = collector(0);
        for batch in rows().chunks(batch_rows) {
            collector.add(batch_of(batch.to_vec())).await.unwrap();
        }
        assert!(
            !collector.workers.is_empty(),
            "so many rows are not decoded inline"
        );
        let (series, statistics) = collector.finish().await.unwrap();
        assert_eq!(statistics.points, 800);
        assert!(series.iter().all(|one| one.points.len() == 4));
        assert!(series.is_sorted_by(|a, b| a.tsuid < b.tsuid));
        assert_eq!(series.len(), 200);
    }
}

#[tokio::test]
async fn rejects_too_many_points_inline_and_in_workers() {
    let few = rows()[..10].to_vec();
    for (rows, limit) in [(few, 19), (rows(), 799)] {
        let mut collector = collector(limit);
        let result = match collector.add(batch_of(rows)).await {
            Ok(()) => collector.finish().await.map(|_| ()),
            Err(error) => Err(error),
        };
        let rejected =
            matches!(&result, Err(QueryError::OverBudget { limit: actual, .. }) if actual.most == limit);
        assert!(rejected, "{result:?}");
    }
}

#[tokio::test]
async fn an_error_of_a_worker_fails_the_collection() {
    let mut collector = collector(0);
    let mut result = collector.add(batch_of(rows())).await;
    let damaged = row(1, &[(0, Value::Int(1)), (0, Value::Int(300))]);
    for _ in 0..100 {
        result = match result {
            Ok(()) => collector.add(batch_of(vec![damaged.clone()])).await,
            error => error,
        };
    }
    let result = match result {
        Ok(()) => collector.finish().await.map(|_| ()),
        error => error,
    };
    assert!(matches!(result, Err(QueryError::Row { .. })), "{result:?}");
}

/// A series in memory with `points` points, one each second.
async fn columns(points: i64) -> ColumnSource {
    let store = MemoryPoints::new(RowKeyLayout::default().widths);
    let key = [[0, 0, 1], [0, 0, 1], [0, 0, 1]].concat();
    let series = store.numbers(&[&key]).unwrap()[0];
    let mut batch = PointBatch::with_capacity(0);
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    for second in 0..points {
        let time_ms = second * 1000;
        batch.push(
            series,
            Point {
                time_ms,
                kind,
                bits: 1,
            },
        );
    }
    store.append(batch).await.unwrap();
    ColumnSource {
        estimate: store.estimate(&[series], TimeRange::ALL),
        is_read_inline: crate::reader::columns::source::is_read_inline(&store, &[series], TimeRange::ALL),
        store: Arc::new(store),
        counts: None,
        series: [series].into(),
        summarizer: None,
        lookahead: None,
        unnamed: None,
        table: "t".parse().unwrap(),
        skip_damaged: None,
    }
}

/// Reads columns while the only thread of the pool is busy; `None` if that needs the pool.
async fn read_beside_a_busy_pool(columns: ColumnSource, rows: Vec<Row>) -> Option<usize> {
    let compute = ComputePool::new(1).unwrap();
    let (release, busy) = std::sync::mpsc::channel::<()>();
    compute.spawn(move || busy.recv().unwrap_or_default());
    let mut collector = Collector::new(shape(), budget(0), compute, Some(columns));
    collector.read(TimeRange::ALL).await.unwrap();
    if !rows.is_empty() {
        collector.add(batch_of(rows)).await.unwrap();
    }
    let finished = collector.finish().now_or_never();
    drop(release);
    let (series, _) = finished?.unwrap();
    Some(series.iter().map(|one| one.points.len()).sum())
}

#[tokio::test]
async fn reads_few_points_in_memory_inline() {
    assert_eq!(
        read_beside_a_busy_pool(columns(4096).await, Vec::new()).await,
        Some(4096)
    );
    assert_eq!(
        read_beside_a_busy_pool(columns(4097).await, Vec::new()).await,
        None
    );
    let mut in_files = columns(10).await;
    in_files.is_read_inline = false;
    assert_eq!(read_beside_a_busy_pool(in_files, Vec::new()).await, None);
    assert_eq!(
        read_beside_a_busy_pool(columns(10).await, rows()).await,
        None,
        "rows are for workers"
    );
}
