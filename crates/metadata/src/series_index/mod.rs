//! The series index: lists the series of a metric without reading its points.
//!
//! ```text
//!   writer, annotations ── row in tsdb-meta ──► add ┐
//!                                                   ▼
//!   query ──► list of the metric: in memory ── or read from tsdb-meta once, then kept current
//! ```
//!
//! A query that uses a list reads no other series, so the index returns only complete lists. On a store without
//! other writers, each series has its row, because a point or an annotation is acknowledged only after that row is
//! stored. Other writers may not track their series (OpenTSDB does so only if configured), and nothing in storage shows
//! whether they do. There the index is opened only with `--trust-tsuid-tracking`, and a list is read again after its
//! maximum age.
//!
//! Queries and look-ups request no list where points are in columns: the catalogue of their store has the series.
//!
//! A list never delays a query for longer than a scan: a query waits only while a short list is being read, and
//! scans while a long list is being read.

mod lists;

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_query::{NotListed, SeriesList};
use oxtsdb_row_store::{ColumnSelection, RowStore, Scan, StoreError, TableName, WriteBatch, Writers};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::{MetricUid, UidWidths};
use tokio::sync::watch;
use tracing::{debug, warn};

use lists::{Found, Lists, Progress};

/// The longest list that a query waits for, in series.
pub const SERIES_WAITED_FOR: usize = 50_000;

/// Lists up to this number of series are merged inline, in about a millisecond.
const SERIES_MERGED_INLINE: usize = 20_000;

/// Rows in a batch of a scan of `tsdb-meta`.
const BATCH_ROWS: usize = 4096;

/// The counter of a series that has annotations and was never written, and its time.
const NO_POINTS: [u8; 8] = [0; 8];
const NEVER_MS: i64 = 1;

/// The index. Cloning is cheap, clones share the lists.
#[derive(Clone, Debug)]
pub struct SeriesIndex(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    writers: Writers,
    meta_table: TableName,
    metric_width: usize,
    lists: Lists,
}

impl SeriesIndex {
    /// Opens the index of the tables of `settings`, which must exist; `None` if its lists might be incomplete. Call
    /// this before the first point is written.
    ///
    /// # Errors
    ///
    /// A setting breaks its rule.
    pub fn open(
        store: Arc<dyn RowStore>,
        writers: Writers,
        widths: &UidWidths,
        settings: &DataSettings,
    ) -> anyhow::Result<Option<Self>> {
        let meta_table = settings.tables.meta_table_name()?;
        let age = settings.series_index.max_age();
        let max_age = match writers {
            Writers::Single => None,
            Writers::Multiple if settings.series_index.trust_tsuid_tracking => Some(age),
            Writers::Multiple => return Ok(None),
        };
        Ok(Some(Self(Arc::new(Inner {
            store,
            writers,
            meta_table,
            metric_width: widths.metric.bytes(),
            lists: Lists::new(settings.memory.series_index_mib << 20, max_age, age),
        }))))
    }

    /// Forgets the lists in memory; the next query reads them again.
    pub fn drop_lists(&self) {
        self.0.lists.clear();
    }

    /// Adds a series; its row is stored. Call this before its points are acknowledged.
    pub fn add(&self, tsuid: &[u8]) {
        let (metric, tags) = tsuid.split_at(self.0.metric_width.min(tsuid.len()));
        if let Ok(metric) = MetricUid::from_bytes(metric) {
            self.0.lists.add(metric, tags);
        }
    }
}

#[async_trait]
impl oxtsdb_query::SeriesIndex for SeriesIndex {
    /// Must be called within a Tokio runtime.
    async fn list(&self, metric: MetricUid) -> Result<Arc<SeriesList>, NotListed> {
        let inner = &self.0;
        let mut progress = match inner.lists.find(metric) {
            Found::Ready(list) => return Ok(list),
            Found::Added(merge) if merge.len() <= SERIES_MERGED_INLINE => {
                return Ok(inner.lists.merge(merge));
            }
            Found::Added(merge) => {
                let inner = Arc::clone(inner);
                let merged = tokio::task::spawn_blocking(move || inner.lists.merge(merge)).await;
                return merged.map_err(|_| NotListed::Failed);
            }
            Found::TooLarge => return Err(NotListed::TooLarge),
            Found::Loading(progress) => progress,
            Found::Begin(sender) => {
                let receiver = sender.subscribe();
                tokio::spawn(Arc::clone(inner).load(metric, sender));
                receiver
            }
        };
        let waited = progress
            .wait_for(|progress| !matches!(progress, Progress::Begun))
            .await;
        match waited.as_deref() {
            Ok(Progress::Long) => Err(NotListed::Reading),
            Ok(Progress::Ended(Some(list))) => Ok(Arc::clone(list)),
            Ok(Progress::Begun | Progress::Ended(None)) | Err(_) => Err(NotListed::Failed),
        }
    }

    /// Where other writers are, annotations do not track series: OpenTSDB's do not.
    async fn add_annotated(&self, tsuid: &[u8]) -> Result<(), StoreError> {
        let inner = &self.0;
        if inner.writers == Writers::Multiple {
            return Ok(());
        }
        let row = inner
            .store
            .get(&inner.meta_table, tsuid, &ColumnSelection::All)
            .await?;
        if row.is_none() {
            let mut batch = WriteBatch::new(inner.meta_table.clone());
            let family = batch.family(META_FAMILY);
            // Older than the counter of any point, so that it hides none that is stored meanwhile.
            batch
                .row(tsuid)
                .put_at(family, COUNTER_QUALIFIER, NEVER_MS, &NO_POINTS);
            inner.store.write(batch).await?;
        }
        self.add(tsuid);
        Ok(())
    }
}

impl Inner {
    /// Loads the list of a metric, and reports progress.
    async fn load(self: Arc<Self>, metric: MetricUid, progress: watch::Sender<Progress>) {
        let list = match self.read(metric, &progress).await {
            Ok(Some(list)) => {
                debug!(%metric, series = list.len(), "the series of a metric are in memory");
                self.lists.ready(metric, list)
            }
            Ok(None) => {
                warn!(%metric, "the series of a metric take more memory than --series-index-mib allows");
                self.lists.too_large(metric);
                None
            }
            Err(error) => {
                warn!(%metric, %error, "the series of a metric could not be listed");
                self.lists.failed(metric);
                None
            }
        };
        progress.send_replace(Progress::Ended(list));
    }

    /// The list of a metric; `None` if it does not fit in memory.
    async fn read(
        &self,
        metric: MetricUid,
        progress: &watch::Sender<Progress>,
    ) -> Result<Option<SeriesList>, StoreError> {
        let mut scan = Scan::prefix(metric.as_bytes());
        scan.batch_rows = BATCH_ROWS;
        let mut batches = self.store.scan(&self.meta_table, scan).await?;
        let mut list = SeriesList::default();
        while let Some(rows) = batches.try_next().await? {
            for row in &rows {
                list.push(row.key().get(metric.as_bytes().len()..).unwrap_or_default());
            }
            if list.byte_len() > self.lists.limit_bytes() {
                return Ok(None);
            }
            if list.len() > SERIES_WAITED_FOR && matches!(*progress.borrow(), Progress::Begun) {
                progress.send_replace(Progress::Long);
            }
        }
        Ok(Some(list))
    }
}
