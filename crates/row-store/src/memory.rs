//! A store in memory, for tests and as the reference for other backends.
//!
//! Deliberately simple: nested ordered maps under one lock. Deletes remove cells immediately, and writes drop
//! versions beyond the family's maximum. Each operation first yields to other tasks, so that a caller that
//! reads and then writes without a condition loses races in its tests.

mod state;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{StreamExt, TryStreamExt as _, try_unfold};
use parking_lot::{Mutex, MutexGuard};

use self::state::{Cells, State, Table};
use crate::rules::{self, Columns};
use crate::{
    AtomicCommit, CellAddress, Clock, ColumnSelection, Condition, DamageLog, RangeMeasure, Row, RowStore,
    RowStream, Scan, StoreControl, StoreError, TableDef, TableName, WriteBatch,
};

/// A [`RowStore`] in memory. Clones share the data.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// Writes acquire it before they yield, and so keep their order.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl MemoryStore {
    /// An empty store on the system clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store with a custom clock.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                clock,
                ..State::default()
            })),
            turn: Arc::default(),
        }
    }

    /// Yields to other tasks and takes the lock.
    async fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        tokio::task::yield_now().await;
        self.open_state()
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.closed {
            return Err(StoreError::Unavailable {
                detail: "the store is closed".to_owned(),
            });
        }
        Ok(state)
    }
}

#[async_trait]
impl RowStore for MemoryStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        let mut state = self.state().await?;
        rules::check_table(table)?;
        match state.tables.entry(table.name.clone()) {
            btree_map::Entry::Occupied(existing) => {
                rules::check_same_table(&existing.get().def, table)?;
                Ok(false)
            }
            btree_map::Entry::Vacant(place) => {
                let families = table.families.iter().map(|family| family.name.clone()).collect();
                place.insert(Table {
                    def: table.clone(),
                    families,
                    rows: BTreeMap::new(),
                });
                Ok(true)
            }
        }
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        Ok(self
            .state()
            .await?
            .tables
            .values()
            .map(|table| table.def.clone())
            .collect())
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        _skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let mut state = self.state().await?;
        let now_ms = state.now_ms();
        let table = state.table(table)?;
        let columns = Columns::resolve(&table.def, columns)?;
        rows.iter()
            .map(|key| {
                rules::check_row_key(key)?;
                Ok(table
                    .rows
                    .get(key)
                    .and_then(|cells| table.read(key, cells, &columns, 1, now_ms)))
            })
            .collect()
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        rules::check_scan(&scan)?;
        let columns = Columns::resolve(&self.state().await?.table(table)?.def, &scan.columns)?;
        let cursor = ScanCursor {
            store: self.clone(),
            table: table.clone(),
            scan,
            columns,
        };
        Ok(try_unfold(cursor, |mut cursor| async move {
            let rows = cursor.next_batch().await?;
            Ok((!rows.is_empty()).then_some((rows, cursor)))
        })
        .boxed())
    }

    fn may_have_rows(&self, table: &TableName, start: &[u8], stop: &[u8]) -> bool {
        let state = self.state.lock();
        let Some(table) = state.tables.get(table) else {
            return true;
        };
        let mut rows = table
            .rows
            .range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        rows.next()
            .is_some_and(|(key, _)| stop.is_empty() || key.as_slice() < stop)
    }

    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        let mut scan = Scan::range(start, stop);
        scan.limit = Some(limit.saturating_add(1) as u64);
        let rows: Vec<Vec<Row>> = self.scan(table, scan).await?.try_collect().await?;
        let rows = rows
            .iter()
            .flatten()
            .map(|row| (row.key().to_vec(), row.byte_len() as u64));
        Ok(Some(RangeMeasure::from_rows(rows.collect(), limit)))
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let (_turn, ()) = futures::join!(self.turn.lock(), tokio::task::yield_now());
        self.open_state()?.write(&batch)
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        let mut state = self.state().await?;
        let newest = state.newest(table, cell)?;
        let sum = rules::incremented(newest.as_ref().map(|(_, value)| value.as_slice()), amount)?;
        if amount != 0 {
            state.put_over(
                table,
                cell,
                newest.map(|(timestamp_ms, _)| timestamp_ms),
                &sum.to_be_bytes(),
            )?;
        }
        Ok(sum)
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let mut state = self.state().await?;
        if !state.holds(table, condition)? {
            return Ok(false);
        }
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(&condition.cell.family);
        batch
            .row(&condition.cell.row)
            .put(family, &condition.cell.qualifier, value);
        state.write(&batch)?;
        Ok(true)
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mut state = self.state().await?;
        let (timestamp_ms, mut appended) = match state.newest(table, cell)? {
            Some((timestamp_ms, current)) => (Some(timestamp_ms), current),
            None => (None, Vec::new()),
        };
        appended.extend_from_slice(value);
        state.put_over(table, cell, timestamp_ms, &appended)?;
        Ok(appended)
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        Some(self)
    }
}

#[async_trait]
impl StoreControl for MemoryStore {
    async fn check_health(&self) -> Result<(), StoreError> {
        self.state().await.map(drop)
    }

    async fn close(&self) -> Result<(), StoreError> {
        tokio::task::yield_now().await;
        self.state.lock().closed = true;
        Ok(())
    }
}

#[async_trait]
impl AtomicCommit for MemoryStore {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        let mut state = self.state().await?;
        for condition in conditions {
            if !state.holds(batch.table(), condition)? {
                return Ok(false);
            }
        }
        state.write(&batch)?;
        Ok(true)
    }
}

/// The remainder of a scan: its range shrinks and its limit decreases with each batch.
struct ScanCursor {
    store: MemoryStore,
    table: TableName,
    scan: Scan,
    columns: Columns,
}

impl ScanCursor {
    /// The next rows; none at the end.
    async fn next_batch(&mut self) -> Result<Vec<Row>, StoreError> {
        let mut state = self.store.state().await?;
        let now_ms = state.now_ms();
        let table = state.table(&self.table)?;
        let batch_limit = self.scan.limit.map_or(self.scan.batch_rows, |limit| {
            self.scan
                .batch_rows
                .min(usize::try_from(limit).unwrap_or(usize::MAX))
        });
        let keeps = |key: &[u8]| self.scan.filter.as_ref().is_none_or(|filter| filter.keeps(key));
        let read = |(key, cells): (&Vec<u8>, &Cells)| {
            keeps(key)
                .then(|| table.read(key, cells, &self.columns, self.scan.max_versions as usize, now_ms))
                .flatten()
        };
        let range = table.range(&self.scan.start, &self.scan.stop);
        let rows: Vec<Row> = if self.scan.reverse {
            range.rev().filter_map(read).take(batch_limit).collect()
        } else {
            range.filter_map(read).take(batch_limit).collect()
        };
        drop(state);
        if let Some(limit) = &mut self.scan.limit {
            *limit -= rows.len() as u64;
        }
        if let Some(last) = rows.last() {
            self.scan = self.scan.clone().resume_after(last.key());
        }
        Ok(rows)
    }
}
