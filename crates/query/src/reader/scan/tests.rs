use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{TableDef, WriteBatch};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, RowKeyLayout, SaltLayout};

use super::*;
use crate::context::limits::Limits;
use crate::context::query_context::QueryContext;
use crate::language::parse_metric_query;
use crate::plan::query_plan::Plan;
use crate::plan::selection::matches::MatchCache;
use crate::quirks::Quirks;
use crate::reader::rows::RowReader;
use crate::spec::QuerySpec;
use crate::storage::Storage;
use crate::testing::NumberedNames;

const HOUR: u32 = 3600;

fn salted() -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(1, 3).unwrap(),
        ..RowKeyLayout::default()
    }
}

/// Hours 0 to 99, each with series 1 to 5 of metric 1; a plan for hours 10 to 89.
async fn plan(layout: RowKeyLayout, query_text: &str) -> Plan {
    let store: Arc<dyn RowStore> = Arc::new(MemoryStore::default());
    let table: TableName = "tsdb".parse().unwrap();
    store
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    for hour in 0..100 {
        for series in 1..=5 {
            let mut key = Vec::new();
            let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, series];
            write_row_key(&layout, &tsuid, BaseTime::from_seconds(hour * HOUR), &mut key);
            batch.row(&key).put(family, &[0, 0], &[1]);
        }
    }
    store.write(batch).await.unwrap();
    let query = QuerySpec {
        start_ms: i64::from(10 * HOUR) * 1000,
        end_ms: i64::from(90 * HOUR) * 1000 - 60_000,
        sub_queries: vec![parse_metric_query(query_text, &jiff::tz::TimeZone::UTC).unwrap()],
        duplicates: oxtsdb_schema::DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: crate::spec::AnnotationSelection::default(),
    };
    let storage = Storage {
        reader: Arc::new(RowReader::new(Arc::clone(&store), table.clone(), layout)),
        store,
        meta_table: table.clone(),
        table,
        layout,
        directory: Arc::new(NumberedNames::default()),
        matches: MatchCache::default(),
        index: None,
        rollups: None,
    };
    let context = QueryContext::unregistered(Budget::from_limits(Limits::NONE));
    let compute = ComputePool::new(1).unwrap();
    let plan = Plan::new(&query, &query.sub_queries[0], &storage, &compute, &context).await;
    plan.unwrap()
}

fn hour_of(layout: &RowKeyLayout, key: &[u8]) -> i64 {
    oxtsdb_schema::RowKeyRef::decode(key, layout)
        .unwrap()
        .base_time()
        .millis()
}

#[tokio::test]
async fn emits_slices_in_order_with_watermarks() {
    for layout in [RowKeyLayout::default(), salted()] {
        let plan = plan(layout, "sum:m1").await;
        let items = plan.access_path.rows(&Budget::from_limits(Limits::NONE), None);
        let items: Vec<ScanItem> = items.try_collect().await.unwrap();
        let (mut until_ms, mut latest_ms, mut count) = (i64::MIN, i64::MIN, 0);
        for item in &items {
            match item {
                ScanItem::Rows(batch) => {
                    let rows = batch.rows();
                    assert!(!rows.is_empty());
                    count += rows.len();
                    for row in rows {
                        let hour = hour_of(&layout, row.key());
                        assert!(
                            hour >= until_ms,
                            "a row comes after it was said that there is none"
                        );
                        latest_ms = latest_ms.max(hour);
                    }
                }
                ScanItem::Columns(_) => panic!("points are in rows"),
                ScanItem::Watermark(ms) => {
                    assert!(*ms > until_ms && *ms > latest_ms, "a row of a later slice");
                    until_ms = *ms;
                }
            }
        }
        assert_eq!((count, until_ms), (80 * 5, plan.hours.stop_ms()));
        let ends = items.iter().filter(|item| matches!(item, ScanItem::Watermark(_)));
        assert!(ends.count() > 2, "there are several slices");
    }
}

#[tokio::test]
async fn reads_only_keys_of_later_hours() {
    for layout in [RowKeyLayout::default(), salted()] {
        let plan = plan(layout, "sum:m1{host1=v2|v3}").await;
        let seen: Arc<parking_lot::Mutex<Vec<i64>>> = Arc::default();
        let (noted, hours) = (Arc::clone(&seen), plan.hours);
        let from = BaseTime::from_seconds(50 * HOUR);
        let rest = Hours { start: from, ..hours };
        let budget = Budget::from_limits(Limits::NONE);
        let note = move |key: &[u8]| noted.lock().push(hour_of(&layout, key));
        let rows = plan.access_path.row_ranges();
        rows.keys(rest, &budget, None, note).await.unwrap();
        let mut seen = seen.lock().clone();
        seen.sort_unstable();
        assert_eq!(seen.len(), 40 * 2, "two series of forty hours");
        assert_eq!(seen[0], from.millis());
    }
}
