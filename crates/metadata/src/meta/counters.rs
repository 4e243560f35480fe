//! Counters of points: `name:ts_ctr`.
//!
//! On a store with other writers each counter is incremented by a call of its own, a few at a time. A store without
//! them is read and written instead, a whole batch at a time: an increment would be a commit for each counter.
//! Requests that arrive while a batch is in flight are merged into the next one.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Row, RowStore, StoreError, TableName, WriteBatch, Writers,
};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Counters that are incremented at a time on a store with other writers.
const INCREMENTS_AT_A_TIME: usize = 16;

/// Counters of a batch, unless one request has more.
const BATCH_COUNTERS: usize = 8192;

/// Adds to counters. Cloning is cheap.
#[derive(Clone, Debug)]
pub(super) struct Counters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    writers: Writers,
    table: TableName,
    queue: Mutex<Vec<Request>>,
    /// Held while a batch is in flight.
    turn: tokio::sync::Mutex<()>,
}

/// Amounts by counter, and where their sums are reported.
#[derive(Debug)]
struct Request {
    amounts: Vec<(Vec<u8>, i64)>,
    sums: oneshot::Sender<Result<Vec<i64>, StoreError>>,
}

impl Counters {
    pub(super) fn new(store: Arc<dyn RowStore>, writers: Writers, table: TableName) -> Self {
        Self(Arc::new(Inner {
            store,
            writers,
            table,
            queue: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    /// Adds to the counters of some rows. Returns the sums in the same order.
    pub(super) async fn add(&self, amounts: Vec<(Vec<u8>, i64)>) -> Result<Vec<i64>, StoreError> {
        if self.0.writers == Writers::Multiple {
            return self.0.increment(amounts).await;
        }
        let (sender, sums) = oneshot::channel();
        self.0.queue.lock().push(Request {
            amounts,
            sums: sender,
        });
        // A task, so that a dropped request does not interrupt those merged with it.
        tokio::spawn({
            let inner = Arc::clone(&self.0);
            async move { inner.add_queued().await }
        });
        sums.await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable {
                detail: "the counters were not written: the process shuts down".to_owned(),
            })
        })
    }
}

impl Inner {
    async fn increment(&self, amounts: Vec<(Vec<u8>, i64)>) -> Result<Vec<i64>, StoreError> {
        // Collected, because the compiler cannot tell that a stream over the closure is Send.
        let increments: Vec<_> = amounts
            .into_iter()
            .map(|(row, amount)| {
                let (store, table) = (Arc::clone(&self.store), self.table.clone());
                let cell = CellAddress::new(row, META_FAMILY, COUNTER_QUALIFIER);
                async move { store.increment(&table, &cell, amount).await }
            })
            .collect();
        stream::iter(increments)
            .buffered(INCREMENTS_AT_A_TIME)
            .try_collect()
            .await
    }

    /// Processes all queued requests. Concurrent calls find an empty queue.
    async fn add_queued(&self) {
        let _turn = self.turn.lock().await;
        loop {
            let requests = self.next_batch();
            if requests.is_empty() {
                return;
            }
            match self.add_batch(&requests).await {
                Ok(sums) => {
                    for (request, sums) in requests.into_iter().zip(sums) {
                        let _ = request.sums.send(sums);
                    }
                }
                Err(error) => {
                    for request in requests {
                        let _ = request.sums.send(Err(error.clone()));
                    }
                }
            }
        }
    }

    fn next_batch(&self) -> Vec<Request> {
        let mut queue = self.queue.lock();
        let mut counters = 0;
        let fitting = queue.iter().take_while(|request| {
            let first = counters == 0;
            counters += request.amounts.len();
            first || counters <= BATCH_COUNTERS
        });
        let fitting = fitting.count();
        queue.drain(..fitting).collect()
    }

    /// Reads the counters, adds the amounts, and writes the sums. No other program and no other batch changes them
    /// meanwhile. A cell that is no counter fails the requests that add to it, and these add nothing.
    async fn add_batch(&self, requests: &[Request]) -> Result<Vec<Result<Vec<i64>, StoreError>>, StoreError> {
        let mut places: HashMap<&[u8], usize> = HashMap::new();
        let mut rows: Vec<Vec<u8>> = Vec::new();
        for (row, _) in requests.iter().flat_map(|request| &request.amounts) {
            places.entry(row).or_insert_with(|| {
                rows.push(row.clone());
                rows.len() - 1
            });
        }
        let column = (META_FAMILY.to_owned(), COUNTER_QUALIFIER.to_vec());
        let columns = ColumnSelection::Columns(vec![column]);
        let stored = self.store.get_rows(&self.table, &rows, &columns, None).await?;
        let total = |row: Option<Row>| {
            let cell = row.as_ref()?.get(META_FAMILY, COUNTER_QUALIFIER)?;
            let length = cell.value.len();
            let bytes = cell.value.try_into();
            Some(
                bytes
                    .map(i64::from_be_bytes)
                    .map_err(|_| StoreError::NotACounter { length }),
            )
        };
        let mut totals: Vec<Result<i64, StoreError>> = stored
            .into_iter()
            .map(|row| total(row).unwrap_or(Ok(0)))
            .collect();
        let mut sums = Vec::with_capacity(requests.len());
        let mut changed = BTreeSet::new();
        for request in requests {
            let of_request = || {
                request
                    .amounts
                    .iter()
                    .filter_map(|(row, _)| places.get(row.as_slice()))
            };
            let damaged = of_request().find_map(|place| totals.get(*place)?.as_ref().err());
            if let Some(error) = damaged {
                sums.push(Err(error.clone()));
                continue;
            }
            changed.extend(of_request().copied());
            let add = |(row, amount): &(Vec<u8>, i64)| {
                let total = places
                    .get(row.as_slice())
                    .and_then(|place| totals.get_mut(*place)?.as_mut().ok());
                total.map_or(*amount, |total| {
                    *total = total.wrapping_add(*amount);
                    *total
                })
            };
            sums.push(Ok(request.amounts.iter().map(add).collect()));
        }
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(META_FAMILY);
        for (place, (row, total)) in rows.iter().zip(totals).enumerate() {
            if changed.contains(&place)
                && let Ok(total) = total
            {
                batch
                    .row(row)
                    .put(family, COUNTER_QUALIFIER, &total.to_be_bytes());
            }
        }
        self.store.write(batch).await?;
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::TableDef;
    use oxtsdb_row_store::memory::MemoryStore;

    use super::*;

    fn amount(row: u8, amount: i64) -> (Vec<u8>, i64) {
        (vec![row], amount)
    }

    #[tokio::test]
    async fn concurrent_additions_are_all_counted() {
        let store: Arc<dyn RowStore> = Arc::new(MemoryStore::new());
        let table: TableName = "tsdb-meta".parse().unwrap();
        store
            .create_table(&TableDef::new(table.clone(), &[META_FAMILY]))
            .await
            .unwrap();
        let counters = Counters::new(Arc::clone(&store), Writers::Single, table.clone());
        assert_eq!(
            counters
                .add(vec![amount(1, 2), amount(2, 5), amount(1, 3)])
                .await
                .unwrap(),
            [2, 5, 5],
            "a counter may occur twice"
        );
        let additions = (0..200).map(|_| {
            let counters = counters.clone();
            tokio::spawn(async move { counters.add(vec![amount(1, 1), amount(3, 2)]).await.unwrap() })
        });
        let mut sums: Vec<i64> = Vec::new();
        for sum in futures::future::join_all(additions).await {
            sums.push(sum.unwrap()[0]);
        }
        sums.sort_unstable();
        assert_eq!(sums, (6..206).collect::<Vec<_>>());
        let row = store.get(&table, &[3], &ColumnSelection::All).await.unwrap();
        let value = |row: &Row| row.get(META_FAMILY, COUNTER_QUALIFIER).unwrap().value.to_vec();
        assert_eq!(value(&row.unwrap()), 400_i64.to_be_bytes());
    }

    #[tokio::test]
    async fn rejects_cells_that_are_no_counter() {
        let store: Arc<dyn RowStore> = Arc::new(MemoryStore::new());
        let table: TableName = "tsdb-meta".parse().unwrap();
        store
            .create_table(&TableDef::new(table.clone(), &[META_FAMILY]))
            .await
            .unwrap();
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(META_FAMILY);
        batch.row(&[1]).put(family, COUNTER_QUALIFIER, b"abc");
        store.write(batch).await.unwrap();
        let counters = Counters::new(store, Writers::Single, table);
        // Merged into one batch.
        let (damaged, sound) = tokio::join!(
            counters.add(vec![amount(1, 1), amount(2, 5)]),
            counters.add(vec![amount(2, 1)])
        );
        let error = damaged.unwrap_err();
        assert!(matches!(error, StoreError::NotACounter { length: 3 }), "{error}");
        assert_eq!(sound.unwrap(), [1]);
        assert_eq!(counters.add(vec![amount(2, 1)]).await.unwrap(), [2]);
    }
}
