//! Table `tsdb-meta` with the counters of [`Counters`]: puts, gets and scans.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::try_unfold;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, MutationRef, Row, RowBuilder, RowFilter, RowStream, Scan, StoreError,
    TableName, WriteBatch,
};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};

use super::TableView;
use super::counters::Counters;
use super::merge::{Merged, merge_rows};
use crate::{PointStore, SeriesNumber};

/// The value of a counter that only records when its series was written.
const ONE: [u8; 8] = 1_i64.to_be_bytes();

/// Counters as rows.
#[derive(Debug)]
struct Shown {
    counters: Arc<Counters>,
    points: Arc<dyn PointStore>,
    families: Arc<[String]>,
    family: usize,
}

impl Shown {
    fn row(&self, series: SeriesNumber, key: &[u8]) -> Option<Row> {
        let time_ms = self.counters.time_ms(series)?;
        let mut row = RowBuilder::new(key, Arc::clone(&self.families));
        row.push(self.family, COUNTER_QUALIFIER, time_ms, &ONE);
        row.finish()
    }
}

impl TableView {
    /// The counters of a table.
    pub(super) fn counters_of(&self, table: &TableName) -> Option<&Arc<Counters>> {
        self.counters
            .as_ref()
            .filter(|counters| counters.shown_in == *table)
    }

    /// The series of a batch that only puts counters of 1 with the store's time; `None` for any other batch, and if a
    /// series has no number.
    pub(super) fn counted(&self, batch: &WriteBatch) -> Option<Vec<SeriesNumber>> {
        let families = batch.families();
        let is_counter = |mutation: MutationRef<'_>| match mutation {
            MutationRef::Put {
                family,
                qualifier: COUNTER_QUALIFIER,
                timestamp_ms: None,
                value,
            } => {
                value == ONE
                    && families
                        .get(family.index())
                        .is_some_and(|name| name == META_FAMILY)
            }
            _ => false,
        };
        let number = |row: oxtsdb_row_store::RowMutations<'_>| {
            let series = self.points.find(row.key)?;
            row.iter().all(is_counter).then_some(series)
        };
        batch.iter().map(number).collect()
    }

    /// Makes cells of the counters that a batch mutates.
    pub(super) async fn store_mutated_counters(&self, batch: &WriteBatch) -> Result<(), StoreError> {
        let is_concerned = |mutation: MutationRef<'_>| match mutation {
            MutationRef::Put { qualifier, .. } | MutationRef::DeleteColumn { qualifier, .. } => {
                qualifier == COUNTER_QUALIFIER
            }
            MutationRef::DeleteFamily { .. } | MutationRef::DeleteRow => true,
        };
        let rows = batch.iter().filter(|row| row.iter().any(is_concerned));
        self.store_counters(batch.table(), rows.map(|row| row.key)).await
    }

    /// Makes a cell of the counter that an operation on one cell concerns.
    pub(super) async fn store_counter(
        &self,
        table: &TableName,
        cell: &CellAddress,
    ) -> Result<(), StoreError> {
        let row = (cell.qualifier == COUNTER_QUALIFIER).then_some(&*cell.row);
        self.store_counters(table, row.into_iter()).await
    }

    /// Makes cells of the counters of these rows. They are stored twice in between, which shows them once.
    async fn store_counters<'r>(
        &self,
        table: &TableName,
        rows: impl Iterator<Item = &'r [u8]> + Send,
    ) -> Result<(), StoreError> {
        let Some(counters) = self.counters_of(table) else {
            return Ok(());
        };
        let mut cells = WriteBatch::new(table.clone());
        let family = cells.family(META_FAMILY);
        let mut stored = Vec::new();
        for row in rows {
            if let Some(series) = self.points.find(row)
                && let Some(time_ms) = counters.time_ms(series)
            {
                cells.row(row).put_at(family, COUNTER_QUALIFIER, time_ms, &ONE);
                stored.push(series);
            }
        }
        if stored.is_empty() {
            return Ok(());
        }
        self.rows.write(cells).await?;
        counters.remove(stored).await
    }

    /// Adds the counters to rows of the row store; `keys` are the keys of these rows.
    pub(super) async fn add_counters(
        &self,
        table: &TableName,
        keys: &[Vec<u8>],
        columns: &ColumnSelection,
        stored: Vec<Option<Row>>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let Some(shown) = self.shown(table, columns).await? else {
            return Ok(stored);
        };
        let merge = |(key, stored): (&Vec<u8>, Option<Row>)| {
            let counter = self.points.find(key).and_then(|series| shown.row(series, key));
            match (counter, stored) {
                (Some(counter), Some(stored)) => merge_rows(&counter, &stored, &shown.families, 1),
                (counter, stored) => counter.or(stored),
            }
        };
        Ok(keys.iter().zip(stored).map(merge).collect())
    }

    /// Scans a table with counters.
    pub(super) async fn scan_counted(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let stored = self.rows.scan(table, scan.clone()).await?;
        let Some(shown) = self.shown(table, &scan.columns).await? else {
            return Ok(stored);
        };
        let families = Arc::clone(&shown.families);
        let rows = CounterRows::new(shown, &scan);
        let rows = try_unfold(rows, |mut rows| async move {
            // The keys of a whole metric may be compared for one row.
            let read = tokio::task::spawn_blocking(move || (rows.next_batch(), rows)).await;
            let (batch, rows) = read.map_err(|error| StoreError::Unavailable {
                detail: error.to_string(),
            })?;
            Ok((!batch.is_empty()).then_some((batch, rows)))
        });
        Ok(Merged::new(rows.boxed(), stored, families, &scan).into_stream())
    }

    /// The counters that a read of these columns shows.
    async fn shown(&self, table: &TableName, columns: &ColumnSelection) -> Result<Option<Shown>, StoreError> {
        let selected = match columns {
            ColumnSelection::All => true,
            ColumnSelection::Family(family) => family == META_FAMILY,
            ColumnSelection::Columns(columns) => columns
                .iter()
                .any(|(family, qualifier)| family == META_FAMILY && qualifier == COUNTER_QUALIFIER),
        };
        let Some(counters) = self.counters_of(table).filter(|_| selected) else {
            return Ok(None);
        };
        let def = self.definition(table).await?;
        let Some(family) = def.family_index(META_FAMILY) else {
            return Ok(None);
        };
        Ok(Some(Shown {
            counters: Arc::clone(counters),
            points: Arc::clone(&self.points),
            families: def.families.into_iter().map(|family| family.name).collect(),
            family,
        }))
    }
}

/// The counters of a range of keys as rows, in the order of a scan.
#[derive(Debug)]
struct CounterRows {
    shown: Shown,
    start: Vec<u8>,
    stop: Vec<u8>,
    filter: Option<RowFilter>,
    reverse: bool,
    batch_rows: usize,
    /// The metrics that follow, the next one last.
    metrics: Vec<Vec<u8>>,
    /// The series of the current metric that follow, the next one last.
    series: Vec<SeriesNumber>,
}

impl CounterRows {
    fn new(shown: Shown, scan: &Scan) -> Self {
        let mut metrics = shown.points.metrics();
        metrics.retain(|metric| {
            metric.as_slice() >= scan.start.get(..metric.len()).unwrap_or(&scan.start)
                && (scan.stop.is_empty() || *metric < scan.stop)
        });
        if !scan.reverse {
            metrics.reverse();
        }
        let limit = scan
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self {
            shown,
            start: scan.start.clone(),
            stop: scan.stop.clone(),
            filter: scan.filter.clone(),
            reverse: scan.reverse,
            batch_rows: scan.batch_rows.min(limit),
            metrics,
            series: Vec::new(),
        }
    }

    /// The next rows; none at the end.
    fn next_batch(&mut self) -> Vec<Row> {
        let (mut rows, mut key) = (Vec::new(), Vec::new());
        while rows.len() < self.batch_rows {
            let Some(series) = self.series.pop() else {
                match self.metrics.pop() {
                    Some(metric) => self.begin(&metric),
                    None => break,
                }
                continue;
            };
            self.shown.points.key(series, &mut key);
            if self.filter.as_ref().is_none_or(|filter| filter.keeps(&key)) {
                rows.extend(self.shown.row(series, &key));
            }
        }
        rows
    }

    /// Lists the series of a metric in the range.
    fn begin(&mut self, metric: &[u8]) {
        let points = &self.shown.points;
        self.series = points.metric_series(metric);
        let before = |bound: &[u8]| {
            let mut key = Vec::new();
            self.series.partition_point(|series| {
                points.key(*series, &mut key);
                key.as_slice() < bound
            })
        };
        let first = before(&self.start);
        if !self.stop.is_empty() {
            let end = before(&self.stop);
            self.series.truncate(end);
        }
        self.series.drain(..first.min(self.series.len()));
        if !self.reverse {
            self.series.reverse();
        }
    }
}
