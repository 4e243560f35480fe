//! The store under test, with helpers for the checks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use futures::StreamExt;

use crate::{
    CellAddress, ColumnSelection, FamilyDef, FamilyId, RangeMeasure, Row, RowStore, Scan, TableDef,
    TableName, WriteBatch,
};

/// The store under test.
pub(super) struct Subject<'a> {
    pub(super) store: &'a dyn RowStore,
    pub(super) check: &'static str,
}

impl Subject<'_> {
    /// A table name unique to this run and check.
    pub(super) fn table_name(&self) -> TableName {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
        format!("conf_{nanos:x}_{number}_{}", self.check).parse().unwrap()
    }

    /// A new table with families `a` and `b`.
    pub(super) async fn table(&self) -> Table<'_> {
        self.table_with(vec![FamilyDef::new("a"), FamilyDef::new("b")])
            .await
    }

    pub(super) async fn table_with(&self, families: Vec<FamilyDef>) -> Table<'_> {
        let name = self.table_name();
        let def = TableDef {
            name: name.clone(),
            families,
        };
        assert!(self.store.create_table(&def).await.unwrap(), "the table is new");
        Table {
            store: self.store,
            name,
        }
    }
}

/// A table of the store under test.
pub(super) struct Table<'a> {
    pub(super) store: &'a dyn RowStore,
    pub(super) name: TableName,
}

impl Table<'_> {
    pub(super) fn batch(&self) -> (WriteBatch, FamilyId, FamilyId) {
        let mut batch = WriteBatch::new(self.name.clone());
        let (a, b) = (batch.family("a"), batch.family("b"));
        (batch, a, b)
    }

    pub(super) async fn write(&self, batch: WriteBatch) {
        self.store.write(batch).await.unwrap();
    }

    /// Puts one cell of family `a`.
    pub(super) async fn put(&self, row: &[u8], qualifier: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new(self.name.clone());
        let a = batch.family("a");
        batch.row(row).put(a, qualifier, value);
        self.write(batch).await;
    }

    pub(super) async fn put_at(&self, row: &[u8], qualifier: &[u8], timestamp_ms: i64, value: &[u8]) {
        let mut batch = WriteBatch::new(self.name.clone());
        let a = batch.family("a");
        batch.row(row).put_at(a, qualifier, timestamp_ms, value);
        self.write(batch).await;
    }

    pub(super) async fn row(&self, row: &[u8]) -> Option<Row> {
        self.store
            .get(&self.name, row, &ColumnSelection::All)
            .await
            .unwrap()
    }

    /// The newest value of a cell of family `a`.
    pub(super) async fn value(&self, row: &[u8], qualifier: &[u8]) -> Option<Vec<u8>> {
        let row = self.row(row).await?;
        row.get("a", qualifier).map(|cell| cell.value.to_vec())
    }

    pub(super) async fn scan(&self, scan: Scan) -> Vec<Row> {
        let mut stream = self.store.scan(&self.name, scan).await.unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            assert!(!batch.is_empty(), "a batch of a scan is never empty");
            rows.extend(batch);
        }
        rows
    }

    pub(super) async fn measure(&self, start: &str, stop: &str, limit: usize) -> Option<RangeMeasure> {
        let measure = self
            .store
            .measure(&self.name, start.as_bytes(), stop.as_bytes(), limit);
        measure.await.unwrap()
    }

    pub(super) async fn keys(&self, scan: Scan) -> Vec<Vec<u8>> {
        self.scan(scan)
            .await
            .iter()
            .map(|row| row.key().to_vec())
            .collect()
    }

    pub(super) fn cell(&self, row: &[u8], qualifier: &[u8]) -> CellAddress {
        CellAddress::new(row, "a", qualifier)
    }
}

/// Family, qualifier and value of the cells of a row.
pub(super) fn contents(row: &Row) -> Vec<(String, Vec<u8>, Vec<u8>)> {
    row.cells()
        .map(|cell| {
            (
                cell.family.to_owned(),
                cell.qualifier.to_vec(),
                cell.value.to_vec(),
            )
        })
        .collect()
}
