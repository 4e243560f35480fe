//! An engine over a store of points.

use std::sync::Arc;

use oxtsdb_point_store::PointStore;
use oxtsdb_query::testing::NumberedNames;
use oxtsdb_query::{Engine, Limits, PointStorage, QueryResources};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_schema::RowKeyLayout;

/// 2013-01-01 00:00:00 UTC.
pub(crate) const START_MS: i64 = 1_356_998_400_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;

/// Table `tsdb`, without rows.
pub(crate) async fn empty_table() -> (Arc<dyn RowStore>, TableName) {
    let cells: Arc<dyn RowStore> = Arc::new(MemoryStore::default());
    let table: TableName = "tsdb".parse().unwrap();
    let def = TableDef::new(table.clone(), &["t"]);
    cells.create_table(&def).await.unwrap();
    (cells, table)
}

/// An engine over these points. Names without a number have UID 1.
pub(crate) async fn engine(
    columns: Arc<dyn PointStore>,
    limits: Limits,
    resources: QueryResources,
) -> Engine {
    let (cells, table) = empty_table().await;
    Engine::new(
        Arc::clone(&cells),
        (table.clone(), table),
        RowKeyLayout::default(),
        Arc::new(NumberedNames::default()),
        limits,
        resources,
    )
    .with_points(Some(PointStorage {
        columns,
        cells,
        rollups: Arc::default(),
    }))
}
