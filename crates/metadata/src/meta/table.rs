//! Typed access to table `tsdb-meta`: a row for each series, with its counter of points and its document.
//!
//! Creating a document reads first, because a document that exists may have been edited. A store with atomic commits
//! makes both one step for a batch. On HBase each document is put by a check-and-put of its own, before the counters:
//! a document that another program creates and edits meanwhile is kept, where OpenTSDB overwrites it.
//!
//! Source: OpenTSDB 2.4, `TSMeta.storeNew`, `TSMeta.storeIfNecessary`, `TSMeta.incrementAndGetCounter`.

use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, RowStore, StoreError, TableName, WriteBatch, Writers,
};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::ts_meta::{TS_META_QUALIFIER, TsMeta};
use oxtsdb_schema::{Tsuid, UidWidths};

use super::changes::{MetaChanges, Subject};
use super::counters::Counters;
use super::new_series::{NewSeries, NewSeriesFeed};

/// Documents of a batch.
const BATCH_SERIES: usize = 4096;

/// Documents that are put at a time on a store without atomic commits.
const CONCURRENT_PUTS: usize = 16;

/// Attempts to create the documents of a batch while others change them.
const ATTEMPTS: u32 = 16;

/// Table `tsdb-meta`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct MetaTable {
    pub(super) store: Arc<dyn RowStore>,
    writers: Writers,
    pub(super) name: TableName,
    pub(super) widths: UidWidths,
    counters: Counters,
    new_series: NewSeriesFeed,
    changes: MetaChanges,
}

impl MetaTable {
    /// Binds the table of a store. Reads nothing.
    pub fn new(
        store: Arc<dyn RowStore>,
        writers: Writers,
        name: TableName,
        widths: UidWidths,
        changes: MetaChanges,
    ) -> Self {
        Self {
            counters: Counters::new(Arc::clone(&store), writers, name.clone()),
            store,
            writers,
            name,
            widths,
            new_series: NewSeriesFeed::default(),
            changes,
        }
    }

    /// Announcements of series whose documents are created here.
    pub fn new_series(&self) -> &NewSeriesFeed {
        &self.new_series
    }

    /// Announcements of changes.
    pub fn changes(&self) -> &MetaChanges {
        &self.changes
    }

    /// Announces that the document of a series may have changed.
    pub(super) fn announce_change(&self, tsuid: &Tsuid) {
        self.changes.announce(|| Subject::Series(tsuid.clone()));
    }

    /// The writers of the table.
    pub const fn writers(&self) -> Writers {
        self.writers
    }

    /// Sets the counters of series to 1, with the store's time.
    ///
    /// # Errors
    ///
    /// Those of the store; some of the counters may be set.
    pub async fn put_counters(&self, tsuids: &[Vec<u8>]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new(self.name.clone());
        let family = batch.family(META_FAMILY);
        for tsuid in tsuids {
            batch
                .row(tsuid)
                .put(family, COUNTER_QUALIFIER, &1_i64.to_be_bytes());
        }
        self.store.write(batch).await
    }

    /// Adds to the counters of series, and returns the sums.
    ///
    /// # Errors
    ///
    /// Those of the store. Some of the amounts may be added; a repetition adds them again.
    pub async fn count(&self, amounts: Vec<(Vec<u8>, i64)>) -> Result<Vec<i64>, StoreError> {
        self.counters.add(amounts).await
    }

    /// Creates the documents of series that have none, with their times of creation in seconds, and announces these
    /// series. With `sets_counters` the counters of all series are set to 1.
    ///
    /// # Errors
    ///
    /// Those of the store; some of the documents may be created. A repetition is safe.
    pub async fn create_documents(
        &self,
        series: &[(Vec<u8>, i64)],
        sets_counters: bool,
    ) -> Result<(), StoreError> {
        for series in series.chunks(BATCH_SERIES) {
            let created = self.create_batch(series, sets_counters).await?;
            for (tsuid, _) in &created {
                if let Ok(tsuid) = Tsuid::from_bytes(tsuid, &self.widths) {
                    self.announce_change(&tsuid);
                }
            }
            self.new_series
                .announce(created.into_iter().filter_map(|(tsuid, created_seconds)| {
                    let tsuid = Tsuid::from_bytes(tsuid, &self.widths).ok()?;
                    Some(NewSeries {
                        tsuid,
                        created_seconds,
                    })
                }));
        }
        Ok(())
    }

    /// Returns the series whose documents were created, with their times.
    async fn create_batch<'t>(
        &self,
        series: &'t [(Vec<u8>, i64)],
        sets_counters: bool,
    ) -> Result<Vec<(&'t [u8], i64)>, StoreError> {
        let tsuids: Vec<Vec<u8>> = series.iter().map(|(tsuid, _)| tsuid.clone()).collect();
        let column = (META_FAMILY.to_owned(), TS_META_QUALIFIER.to_vec());
        let columns = ColumnSelection::Columns(vec![column]);
        for _ in 0..ATTEMPTS {
            let rows = self.store.get_rows(&self.name, &tsuids, &columns, None).await?;
            let missing: Vec<(&[u8], i64)> = series
                .iter()
                .zip(rows)
                .filter(|(_, row)| row.is_none())
                .map(|((tsuid, created_seconds), _)| (tsuid.as_slice(), *created_seconds))
                .collect();
            let Some(commit) = self.store.atomic().filter(|_| !missing.is_empty()) else {
                let created = self.put_absent(&missing).await?;
                if sets_counters {
                    self.put_counters(&tsuids).await?;
                }
                return Ok(created);
            };
            let mut batch = WriteBatch::new(self.name.clone());
            let family = batch.family(META_FAMILY);
            for (tsuid, created_seconds) in &missing {
                let document = TsMeta::new(*created_seconds).encode(tsuid);
                batch.row(tsuid).put(family, TS_META_QUALIFIER, &document);
            }
            for tsuid in tsuids.iter().filter(|_| sets_counters) {
                batch
                    .row(tsuid)
                    .put(family, COUNTER_QUALIFIER, &1_i64.to_be_bytes());
            }
            let absent = |(tsuid, _): &(&[u8], i64)| Condition {
                cell: CellAddress::new(*tsuid, META_FAMILY, TS_META_QUALIFIER),
                expected: None,
            };
            let conditions: Vec<Condition> = missing.iter().map(absent).collect();
            if commit.commit_if(&conditions, batch).await? {
                return Ok(missing);
            }
        }
        Err(StoreError::Unavailable {
            detail: "other writers keep changing the metadata of the same series".to_owned(),
        })
    }

    /// Puts documents that are still absent, and returns their series.
    async fn put_absent<'t>(&self, missing: &[(&'t [u8], i64)]) -> Result<Vec<(&'t [u8], i64)>, StoreError> {
        // Collected, because the compiler cannot tell that a stream over the closure is Send.
        let puts: Vec<_> = missing
            .iter()
            .map(|(tsuid, created_seconds)| {
                let (store, table) = (Arc::clone(&self.store), self.name.clone());
                let document = TsMeta::new(*created_seconds).encode(tsuid);
                let condition = Condition {
                    cell: CellAddress::new(*tsuid, META_FAMILY, TS_META_QUALIFIER),
                    expected: None,
                };
                async move { store.check_and_put(&table, &condition, &document).await }
            })
            .collect();
        let put: Vec<bool> = stream::iter(puts).buffered(CONCURRENT_PUTS).try_collect().await?;
        let created = missing.iter().zip(put).filter(|(_, is_new)| *is_new);
        Ok(created.map(|(series, _)| *series).collect())
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use oxtsdb_row_store::TableDef;
    use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
    use oxtsdb_row_store::memory::MemoryStore;

    use oxtsdb_schema::stored_json::etag;

    use super::super::documents::MetaError;
    use super::*;

    const TSUID: [u8; 9] = [0, 0, 1, 0, 0, 1, 0, 0, 1];

    /// Another program: stores a document after each read, or after each write.
    #[derive(Debug)]
    struct OtherWriter {
        after_writes: bool,
    }

    #[async_trait]
    impl Intercept for OtherWriter {
        async fn intercept(
            &self,
            operation: Operation,
            store: &dyn RowStore,
        ) -> Result<Response, StoreError> {
            let table = operation.table().clone();
            let is_write = matches!(operation, Operation::Write { .. });
            let is_due = is_write == self.after_writes;
            let response = operation.perform(store).await;
            if is_due {
                let mut batch = WriteBatch::new(table);
                let family = batch.family(META_FAMILY);
                batch.row(&TSUID).put(family, TS_META_QUALIFIER, b"edited");
                store.write(batch).await?;
            }
            response
        }
    }

    async fn with(other: OtherWriter) -> (Arc<MemoryStore>, MetaTable) {
        let store = Arc::new(MemoryStore::new());
        let name: TableName = "tsdb-meta".parse().unwrap();
        let def = TableDef::new(name.clone(), &[META_FAMILY]);
        store.create_table(&def).await.unwrap();
        let hbase = InterceptedStore::new(store.clone(), Arc::new(other)).like_hbase();
        let table = MetaTable::new(
            Arc::new(hbase),
            Writers::Multiple,
            name,
            UidWidths::default(),
            MetaChanges::default(),
        );
        (store, table)
    }

    #[tokio::test]
    async fn a_delete_with_an_etag_does_not_hide_a_later_document() {
        let (store, table) = with(OtherWriter { after_writes: true }).await;
        let mut batch = WriteBatch::new(table.name.clone());
        let family = batch.family(META_FAMILY);
        batch.row(&TSUID).put(family, TS_META_QUALIFIER, b"first");
        store.write(batch).await.unwrap();
        let tsuid = Tsuid::from_bytes(&TSUID, &UidWidths::default()).unwrap();
        let first = etag(Some(b"first"));
        let error = table.delete(&tsuid, Some(&first)).await.unwrap_err();
        let edited = etag(Some(b"edited"));
        assert!(
            matches!(error, MetaError::EtagMismatch { ref stored, .. } if *stored == edited),
            "{error}"
        );
        table.delete(&tsuid, None).await.unwrap();
    }

    #[tokio::test]
    async fn a_document_that_another_program_creates_meanwhile_is_kept() {
        let (store, table) = with(OtherWriter { after_writes: false }).await;
        let mut new = table.new_series().subscribe(8);
        table
            .create_documents(&[(TSUID.to_vec(), 7)], true)
            .await
            .unwrap();
        let row = store
            .get(&table.name, &TSUID, &ColumnSelection::All)
            .await
            .unwrap();
        let value = |qualifier| row.as_ref()?.get(META_FAMILY, qualifier).map(|cell| cell.value);
        assert_eq!(value(TS_META_QUALIFIER), Some(&b"edited"[..]));
        assert_eq!(value(COUNTER_QUALIFIER), Some(&1_i64.to_be_bytes()[..]));
        assert!(new.try_recv().is_err(), "it is the other program's");
    }
}
