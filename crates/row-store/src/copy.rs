//! Copies of stores through their operations.

use futures::TryStreamExt as _;

use crate::{DamageLog, RowStore, Scan, StoreError, WriteBatch};

/// Bytes at which a batch is written.
const BATCH_BYTES: usize = 4 << 20;

/// Copies all tables with all versions of their cells. Each row is copied as it is at some instant of the copy.
/// Damaged rows are skipped, as their ranges are known to the source only.
pub(crate) async fn copy(from: &dyn RowStore, to: &dyn RowStore) -> Result<(), StoreError> {
    for table in from.tables().await? {
        to.create_table(&table).await?;
        let versions = table.families.iter().map(|family| family.max_versions).max();
        let scan = Scan {
            max_versions: versions.unwrap_or(1),
            skip_damaged: Some(DamageLog::default()),
            ..Scan::prefix(&[])
        };
        let mut rows = from.scan(&table.name, scan).await?;
        let mut batch = WriteBatch::new(table.name.clone());
        while let Some(rows) = rows.try_next().await? {
            for row in &rows {
                batch.row(row.key());
                for cell in row.cells() {
                    let family = batch.family(cell.family);
                    batch.put_at(family, cell.qualifier, cell.timestamp_ms, cell.value);
                }
            }
            if batch.byte_len() >= BATCH_BYTES {
                let full = std::mem::replace(&mut batch, WriteBatch::new(table.name.clone()));
                to.write(full).await?;
            }
        }
        if !batch.is_empty() {
            to.write(batch).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::embedded::{EmbeddedConfig, EmbeddedStore};
    use crate::memory::MemoryStore;
    use crate::{ColumnSelection, RowStore as _, StoreError, TableDef, TableName, WriteBatch};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_snapshot_is_a_store_with_the_same_cells() {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| EmbeddedStore::open(EmbeddedConfig::new(folder.path().join(name))).unwrap();
        let store = open("store");
        let table: TableName = "t".parse().unwrap();
        store
            .create_table(&TableDef::new(table.clone(), &["a", "b"]))
            .await
            .unwrap();
        let mut batch = WriteBatch::new(table.clone());
        let (a, b) = (batch.family("a"), batch.family("b"));
        batch
            .row(b"1")
            .put_at(a, b"q", 7, b"old")
            .row(b"2")
            .put(b, b"", b"");
        store.write(batch).await.unwrap();
        let target = folder.path().join("copy");
        store.snapshot(&target).await.unwrap();
        let mut later = WriteBatch::new(table.clone());
        let a = later.family("a");
        later.row(b"1").put(a, b"q", b"new");
        store.write(later).await.unwrap();

        let copy = open("copy");
        assert_eq!(copy.tables().await.unwrap(), store.tables().await.unwrap());
        let read = copy
            .get(&table, b"1", &ColumnSelection::All)
            .await
            .unwrap()
            .unwrap();
        let cell = read.get("a", b"q").unwrap();
        assert_eq!((cell.timestamp_ms, cell.value), (7, &b"old"[..]));
        assert!(
            copy.get(&table, b"2", &ColumnSelection::All)
                .await
                .unwrap()
                .is_some()
        );

        assert!(matches!(
            store.snapshot(&target).await,
            Err(StoreError::Invalid { .. })
        ));
        assert!(matches!(
            MemoryStore::new().snapshot(&target).await,
            Err(StoreError::Invalid { .. })
        ));
    }
}
