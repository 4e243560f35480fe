//! Which UIDs the tables reference, for the reclaim of UIDs.
//!
//! ```text
//!   table tsdb        row keys: salt | metric | base time | tags         points, annotations
//!   table tsdb-meta   row keys: metric | tags                            series
//!   table tsdb-tree   leaf:…               JSON with a TSUID             leaves
//!                     tree_collision:TSUID, tree_not_matched:TSUID       series without a leaf
//! ```
//!
//! A search reads all row keys, and no cells except the cells of trees. Where points are in columns, the catalogue of their
//! store lists the series, and series without a point are left out. It holds the numbers it found in sets of bits.
//! A row of unknown form may reference any UID, so it is counted: a caller that wants proof must look at it first.
//! Damaged rows fail the search.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use futures::TryStreamExt as _;
use oxtsdb_query::{PointReader, Storage};
use oxtsdb_resources::{MemoryError, MemoryPool, Reservation};
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, RowStore, Scan, StoreError, TableName};
use oxtsdb_schema::{PerKind, RowKeyLayout, UidKind, UidSet, UidWidths};
use parking_lot::Mutex;

/// Bytes of the base time in a row key.
const BASE_TIME_BYTES: usize = 4;

/// The step in which memory is reserved, in bytes.
const MEMORY_STEP: u64 = 1 << 20;

/// A key after all others, to which a cancelled scan skips.
const LAST_KEY: [u8; 64] = [0xff; 64];

const LEAF: &[u8] = b"leaf:";
const TSUID_QUALIFIERS: [&[u8]; 2] = [b"tree_collision:", b"tree_not_matched:"];

/// The tables of a search.
#[derive(Clone, Debug)]
pub struct Tables {
    /// Tables with row keys of points.
    pub data: Vec<TableName>,
    /// The table of series.
    pub meta: TableName,
    /// The table of trees.
    pub tree: TableName,
}

/// Why a search failed.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The store failed, or rows are damaged.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The sets need more memory than there is.
    #[error("the UIDs in use need too much memory: {0}")]
    Memory(#[from] MemoryError),
}

/// The references that a search found.
#[derive(Debug)]
pub struct Found {
    /// When it started.
    pub started: SystemTime,
    /// Rows read.
    pub rows: u64,
    /// Rows and cells of unknown form.
    pub unknown: u64,
    sets: PerKind<UidSet>,
    _memory: Reservation,
}

impl Found {
    /// The numbers of a kind that are referenced, ascending.
    pub fn numbers(&self, kind: UidKind) -> impl Iterator<Item = u64> + '_ {
        self.sets.get(kind).iter()
    }
}

/// A search that can be watched and cancelled.
#[derive(Clone, Debug)]
pub struct Search {
    store: Arc<dyn RowStore>,
    layout: RowKeyLayout,
    memory: MemoryPool,
    /// The tables of points and rollups.
    reader: Arc<dyn PointReader>,
    progress: Arc<Progress>,
}

#[derive(Debug, Default)]
struct Progress {
    rows: AtomicU64,
    cancelled: AtomicBool,
}

/// The state of a search.
#[derive(Debug)]
struct Marks {
    widths: UidWidths,
    sets: PerKind<UidSet>,
    unknown: u64,
    memory: Reservation,
    failed: Option<MemoryError>,
}

impl Search {
    fn new(
        store: Arc<dyn RowStore>,
        reader: Arc<dyn PointReader>,
        layout: RowKeyLayout,
        memory: MemoryPool,
    ) -> Self {
        Self {
            store,
            layout,
            memory,
            reader,
            progress: Arc::default(),
        }
    }

    /// A search over all that queries read.
    pub fn from_storage(storage: &Storage, memory: MemoryPool) -> Self {
        let (store, reader) = (Arc::clone(&storage.store), Arc::clone(&storage.reader));
        Self::new(store, reader, storage.layout, memory)
    }

    /// Rows read so far.
    pub fn rows(&self) -> u64 {
        self.progress.rows.load(Ordering::Relaxed)
    }

    /// Ends the search early, with what it has found.
    pub fn cancel(&self) {
        self.progress.cancelled.store(true, Ordering::Relaxed);
    }

    /// Searches the tables.
    ///
    /// # Errors
    ///
    /// The store fails, or the memory does not suffice.
    pub async fn run(&self, tables: &Tables) -> Result<Found, SearchError> {
        let started = SystemTime::now();
        let marks = Arc::new(Mutex::new(Marks {
            widths: self.layout.widths,
            sets: PerKind::default(),
            unknown: 0,
            memory: self.memory.empty_reservation(),
            failed: None,
        }));
        let salt = self.layout.salt.width();
        let metric = self.layout.widths.metric.bytes();
        for table in &tables.data {
            self.columns(table, &marks).await?;
            self.keys(self.reader.cells(), table, &marks, move |marks, key| {
                let series = key.get(salt..).and_then(|key| key.split_at_checked(metric));
                let tags = series.and_then(|(_, rest)| rest.get(BASE_TIME_BYTES..));
                match (series, tags) {
                    (Some((metric, _)), Some(tags)) => marks.series(metric, tags),
                    _ => marks.unknown += 1,
                }
            })
            .await?;
        }
        self.keys(&self.store, &tables.meta, &marks, |marks, key| marks.tsuid(key))
            .await?;
        self.trees(&tables.tree, &marks).await?;
        let mut marks = marks.lock();
        Ok(Found {
            started,
            rows: self.rows(),
            unknown: marks.unknown,
            sets: std::mem::take(&mut marks.sets),
            _memory: std::mem::replace(&mut marks.memory, self.memory.empty_reservation()),
        })
    }

    /// Visits the series that have points in columns.
    async fn columns(&self, table: &TableName, marks: &Mutex<Marks>) -> Result<(), SearchError> {
        let metric_bytes = self.layout.widths.metric.bytes();
        // Of most series, all UIDs are marked already.
        let is_known = |key: &[u8]| marks.lock().has(key.split_at(metric_bytes));
        let mut steps = self.reader.series_with_columns(table, &is_known);
        while let Some(step) = steps.try_next().await? {
            self.progress.rows.fetch_add(step.visited, Ordering::Relaxed);
            let mut marks = marks.lock();
            step.with_points.iter().for_each(|key| marks.tsuid(key));
            marks.check()?;
            if self.progress.cancelled.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// Visits all row keys of a table.
    async fn keys(
        &self,
        store: &Arc<dyn RowStore>,
        table: &TableName,
        marks: &Arc<Mutex<Marks>>,
        visit: impl Fn(&mut Marks, &[u8]) + Send + Sync + 'static,
    ) -> Result<(), SearchError> {
        let mut scan = Scan::range([], []);
        let (seen, progress) = (Arc::clone(marks), Arc::clone(&self.progress));
        let stop = Arc::clone(&self.progress);
        let stopped = Arc::clone(marks);
        // The filter rejects all rows, so that no cell is read.
        let filter = RowFilter::new(move |key| {
            let mut marks = seen.lock();
            visit(&mut marks, key);
            if progress.rows.fetch_add(1, Ordering::Relaxed) % 1024 == 0 {
                marks.reserve();
            }
            false
        });
        scan.filter = Some(filter.with_seek(move |_| {
            let ends = stop.cancelled.load(Ordering::Relaxed) || stopped.lock().failed.is_some();
            ends.then(|| LAST_KEY.to_vec())
        }));
        let mut batches = store.scan(table, scan).await?;
        while batches.try_next().await?.is_some() {}
        marks.lock().check()
    }

    /// Visits the cells of trees.
    async fn trees(&self, table: &TableName, marks: &Mutex<Marks>) -> Result<(), SearchError> {
        let mut scan = Scan::range([], []);
        scan.columns = ColumnSelection::Family("t".to_owned());
        scan.batch_rows = 16;
        let mut batches = self.store.scan(table, scan).await?;
        while let Some(rows) = batches.try_next().await? {
            let mut marks = marks.lock();
            rows.iter().for_each(|row| marks.tree_row(row));
            self.progress.rows.fetch_add(rows.len() as u64, Ordering::Relaxed);
            marks.check()?;
            if self.progress.cancelled.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}

impl Marks {
    /// Whether all UIDs of a series are marked.
    fn has(&self, (metric, tags): (&[u8], &[u8])) -> bool {
        let tagk = self.widths.tagk.bytes();
        let mut pairs = tags.chunks_exact(tagk + self.widths.tagv.bytes());
        self.sets.metric.contains(number(metric))
            && pairs.all(|pair| {
                let (tagk, tagv) = pair.split_at(tagk);
                self.sets.tagk.contains(number(tagk)) && self.sets.tagv.contains(number(tagv))
            })
    }

    /// Marks the UIDs of a series.
    fn series(&mut self, metric: &[u8], tags: &[u8]) {
        self.sets.metric.insert(number(metric));
        let tagk = self.widths.tagk.bytes();
        let pairs = tags.chunks_exact(tagk + self.widths.tagv.bytes());
        if !pairs.remainder().is_empty() {
            self.unknown += 1;
        }
        for pair in pairs {
            let (tagk, tagv) = pair.split_at(tagk);
            self.sets.tagk.insert(number(tagk));
            self.sets.tagv.insert(number(tagv));
        }
    }

    fn tsuid(&mut self, tsuid: &[u8]) {
        match tsuid.split_at_checked(self.widths.metric.bytes()) {
            Some((metric, tags)) => self.series(metric, tags),
            None => self.unknown += 1,
        }
    }

    fn tree_row(&mut self, row: &Row) {
        for cell in row.cells() {
            let tsuid = if cell.qualifier.starts_with(LEAF) {
                leaf_tsuid(cell.value)
            } else if let Some(tsuid) = TSUID_QUALIFIERS
                .iter()
                .find_map(|prefix| cell.qualifier.strip_prefix(*prefix))
            {
                Some(tsuid.to_vec())
            } else {
                // Definitions, rules and branches name no UIDs.
                continue;
            };
            match tsuid {
                Some(tsuid) => self.tsuid(&tsuid),
                None => self.unknown += 1,
            }
        }
    }

    /// Reserves the memory of the sets.
    fn reserve(&mut self) {
        let bytes: u64 = UidKind::ALL
            .map(|kind| self.sets.get(kind).byte_len())
            .iter()
            .sum();
        let needed = bytes.saturating_sub(self.memory.bytes());
        if needed > 0 && self.failed.is_none() {
            self.failed = self.memory.try_grow(needed.max(MEMORY_STEP)).err();
        }
    }

    fn check(&mut self) -> Result<(), SearchError> {
        self.reserve();
        match self.failed.take() {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }
}

/// The TSUID of a leaf's JSON.
fn leaf_tsuid(json: &[u8]) -> Option<Vec<u8>> {
    #[derive(serde::Deserialize)]
    struct Leaf {
        tsuid: String,
    }
    let leaf: Leaf = serde_json::from_slice(json).ok()?;
    hex::decode(leaf.tsuid).ok()
}

/// The number of a UID of up to 8 bytes.
fn number(uid: &[u8]) -> u64 {
    uid.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
