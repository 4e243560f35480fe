//! Typed access to table `tsdb-meta`: a row for each series, with its counter of points and its document.
//!
//! Creating a document reads first, because a document that exists may have been edited. A store with atomic commits
//! makes both one step. On HBase another program may create and edit a document between the two, within
//! milliseconds, and its edit is then lost; OpenTSDB's creation has the same race.
//!
//! Source: OpenTSDB 2.4, `TSMeta.storeNew`, `TSMeta.storeIfNecessary`, `TSMeta.incrementAndGetCounter`.

use std::sync::Arc;

use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, RowStore, StoreError, TableName, WriteBatch,
};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::ts_meta::{TS_META_QUALIFIER, TsMeta};
use oxtsdb_schema::{Tsuid, UidWidths};

use super::counters::Counters;
use super::new_series::{NewSeries, NewSeriesFeed};

/// Documents of a batch.
const BATCH_SERIES: usize = 4096;

/// Attempts to create the documents of a batch while others change them.
const ATTEMPTS: u32 = 16;

/// Table `tsdb-meta`. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct MetaTable {
    pub(super) store: Arc<dyn RowStore>,
    pub(super) name: TableName,
    pub(super) widths: UidWidths,
    counters: Counters,
    new_series: NewSeriesFeed,
}

impl MetaTable {
    /// Binds the table of a store. Reads nothing.
    pub(crate) fn new(store: Arc<dyn RowStore>, name: TableName, widths: UidWidths) -> Self {
        Self {
            counters: Counters::new(Arc::clone(&store), name.clone()),
            store,
            name,
            widths,
            new_series: NewSeriesFeed::default(),
        }
    }

    /// Announcements of series whose documents are created here.
    pub(crate) fn new_series(&self) -> &NewSeriesFeed {
        &self.new_series
    }

    /// Whether other programs write to the table.
    pub(crate) fn has_other_writers(&self) -> bool {
        self.store.has_other_writers()
    }

    /// Sets the counters of series to 1, with the store's time.
    ///
    /// # Errors
    ///
    /// Those of the store; some of the counters may be set.
    pub(crate) async fn put_counters(&self, tsuids: &[Vec<u8>]) -> Result<(), StoreError> {
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
    pub(crate) async fn count(&self, amounts: Vec<(Vec<u8>, i64)>) -> Result<Vec<i64>, StoreError> {
        self.counters.add(amounts).await
    }

    /// Creates the documents of series that have none, with their times of creation in seconds, and announces these
    /// series. With `sets_counters` the counters
    /// of all series are set to 1, in the same mutation of a row.
    ///
    /// # Errors
    ///
    /// Those of the store; some of the documents may be created. A repetition is safe.
    pub(crate) async fn create_documents(
        &self,
        series: &[(Vec<u8>, i64)],
        sets_counters: bool,
    ) -> Result<(), StoreError> {
        for series in series.chunks(BATCH_SERIES) {
            let created = self.create_batch(series, sets_counters).await?;
            self.new_series
                .announce(created.into_iter().filter_map(|(tsuid, created_seconds)| {
                    Some(NewSeries {
                        tsuid: Tsuid::from_bytes(tsuid, &self.widths).ok()?,
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
            let rows = self.store.get_rows(&self.name, &tsuids, &columns).await?;
            let mut batch = WriteBatch::new(self.name.clone());
            let family = batch.family(META_FAMILY);
            let mut created = Vec::new();
            for ((tsuid, created_seconds), row) in series.iter().zip(rows) {
                if row.is_some() && !sets_counters {
                    continue;
                }
                batch.row(tsuid);
                if sets_counters {
                    batch.put(family, COUNTER_QUALIFIER, &1_i64.to_be_bytes());
                }
                if row.is_none() {
                    let document = TsMeta::new(*created_seconds).encode(tsuid);
                    batch.put(family, TS_META_QUALIFIER, &document);
                    created.push((tsuid.as_slice(), *created_seconds));
                }
            }
            if batch.is_empty() {
                return Ok(created);
            }
            let Some(commit) = self.store.atomic().filter(|_| !created.is_empty()) else {
                self.store.write(batch).await?;
                return Ok(created);
            };
            let absent = |(tsuid, _): &(&[u8], i64)| Condition {
                cell: CellAddress::new(*tsuid, META_FAMILY, TS_META_QUALIFIER),
                expected: None,
            };
            let conditions: Vec<Condition> = created.iter().map(absent).collect();
            if commit.commit_if(&conditions, batch).await? {
                return Ok(created);
            }
        }
        Err(StoreError::Unavailable {
            detail: "other writers keep changing the metadata of the same series".to_owned(),
        })
    }
}
