//! An engine over a store of points.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_point_store::PointStore;
use oxtsdb_query::{Engine, Limits, NameDirectory, NameError, PointStorage, QueryResources};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_schema::{RowKeyLayout, Uid, UidKind, UidWidth};

/// 2013-01-01 00:00:00 UTC.
pub(crate) const START_MS: i64 = 1_356_998_400_000;
pub(crate) const HOUR_MS: i64 = 3_600_000;

/// Every name has UID 1, and each UID its number as its name.
#[derive(Debug)]
struct One;

#[async_trait]
impl NameDirectory for One {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        Ok(vec![Uid::from_number(1, UidWidth::DEFAULT).ok(); names.len()])
    }

    async fn names(
        &self,
        _: UidKind,
        uids: &[Uid],
        _: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        Ok(uids.iter().map(|uid| Some(Arc::from(uid.to_string()))).collect())
    }
}

/// Table `tsdb`, without rows.
pub(crate) async fn empty_table() -> (Arc<dyn RowStore>, TableName) {
    let cells: Arc<dyn RowStore> = Arc::new(MemoryStore::default());
    let table: TableName = "tsdb".parse().unwrap();
    let def = TableDef::new(table.clone(), &["t"]);
    cells.create_table(&def).await.unwrap();
    (cells, table)
}

/// An engine over these points, in which every name has UID 1.
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
        Arc::new(One),
        limits,
        resources,
    )
    .with_points(Some(PointStorage {
        columns,
        cells,
        rollups: Arc::default(),
    }))
}
