mod counters;
mod fixture;
mod property;
mod reads;
mod rollups;
mod shown;
mod writes;

use std::sync::Arc;

use oxtsdb_row_store::conformance;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::RowKeyLayout;

use super::TableView;
use super::place::SeriesHour;
use super::window::WindowSize;
use crate::memory::MemoryPoints;

#[tokio::test]
async fn other_tables_pass_the_conformance_suite() {
    conformance::ordered_suite(&fixture::Fixture::new().await.view).await;
}

/// Rows with keys that no writer of points produces take all paths of points.
#[tokio::test]
async fn table_without_points_passes_the_conformance_suite() {
    let layout = RowKeyLayout::default();
    let view = TableView {
        rows: Arc::new(MemoryStore::new()),
        points: Arc::new(MemoryPoints::new(layout.widths)),
        layout,
        table: None,
        form: super::form::CellForm::Points,
        window: WindowSize::default(),
        turn: tokio::sync::Mutex::default(),
        appends: tokio::sync::RwLock::default(),
        counters: None,
    };
    conformance::ordered_suite(&view).await;
}

#[test]
fn keys_that_no_writer_produces_have_no_points() {
    let layout = RowKeyLayout::default();
    let good = fixture::key(&layout, 1, 1, 0);
    assert!(SeriesHour::from_key(&good, &layout).is_some());
    let mut bad = good.clone();
    bad[6] ^= 1;
    assert_eq!(SeriesHour::from_key(&bad, &layout), None, "not an hour");
    let twice = [&good[..], &good[7..]].concat();
    assert_eq!(SeriesHour::from_key(&twice, &layout), None, "a tag key twice");
    assert_eq!(SeriesHour::from_key(&good[..7], &layout), None, "no tags");
}
