//! Places all series of table `tsdb-meta`.
//!
//! A pass reads the keys of the table in order, a part at a time, so that no scan of the store stays open while
//! series are placed. It is resumed after the last series that was reported. A series counts if it has a metadata
//! document, as in OpenTSDB; on request also if it has only a counter of points.
//!
//! Definitions are read again for each part, at most as old as for new series, so that a tree that is deleted or
//! switched off meanwhile gets no more series. OpenTSDB reads them once.
//!
//! Source: OpenTSDB 2.4, `TreeSync`.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, Scan};
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::tree::TreeId;
use oxtsdb_schema::ts_meta::TS_META_QUALIFIER;
use tracing::debug;

use super::Trees;
use super::enabled::{ReadyTree, ReadyTrees};
use super::error::TreeError;
use super::evaluate::SeriesFacts;
use super::facts::NeededFields;
use super::place::PlaceCounts;

/// Series that are placed at a time, and rows of a report.
const BATCH_SERIES: usize = 512;

/// Which series, and into which trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRequest {
    /// Also trees that are switched off; empty: all that are enabled.
    pub trees: Vec<TreeId>,
    /// Only series behind this row key; empty: all.
    pub start_after: Vec<u8>,
    /// Also series without a metadata document.
    pub with_counters_only: bool,
}

/// Progress of a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncProgress {
    /// Series that were read.
    pub series: u64,
    /// Their outcomes, over all trees.
    pub counts: PlaceCounts,
    /// Series with a UID that has no name.
    pub without_names: u64,
    /// Row keys that are no TSUIDs.
    pub invalid: u64,
    /// The last row key.
    pub last: Vec<u8>,
    /// All series were read; no further progress is reported.
    pub is_done: bool,
}

impl Trees {
    /// Places all series, and reports progress after each batch. Dropping the stream interrupts the pass.
    ///
    /// The stream fails with [`TreeError::TreeNotFound`] and [`TreeError::InvalidRule`] for a tree of the request,
    /// and with errors of the store and of the UID service.
    pub fn sync(&self, request: SyncRequest) -> BoxStream<'static, Result<SyncProgress, TreeError>> {
        let progress = SyncProgress {
            last: request.start_after.clone(),
            ..SyncProgress::default()
        };
        let begin = (self.clone(), Arc::new(request), progress);
        stream::try_unfold(begin, |(this, request, mut progress)| async move {
            if progress.is_done {
                return Ok(None);
            }
            this.sync_batch(&request, &mut progress).await?;
            Ok(Some((progress.clone(), (this, request, progress))))
        })
        .boxed()
    }

    async fn sync_batch(&self, request: &SyncRequest, progress: &mut SyncProgress) -> Result<(), TreeError> {
        let trees = self.trees_of(&request.trees).await?;
        if trees.is_empty() {
            progress.is_done = true;
            return Ok(());
        }
        let keys = self
            .series_after(&progress.last, request.with_counters_only)
            .await?;
        progress.is_done = keys.len() < BATCH_SERIES;
        let mut series = Vec::with_capacity(keys.len());
        for key in &keys {
            match Tsuid::from_bytes(key, self.0.uids.widths()) {
                Ok(tsuid) => series.push(tsuid),
                Err(error) => {
                    debug!(%error, "a row of series metadata is no series");
                    progress.invalid += 1;
                }
            }
        }
        let (counts, without_names) = self.place_series(&trees, &series).await?;
        progress.counts += counts;
        progress.without_names += without_names;
        progress.series += keys.len() as u64;
        if let Some(last) = keys.into_iter().next_back() {
            progress.last = last;
        }
        Ok(())
    }

    /// Places series in trees. Returns what became of them, and the number of those that lack a name.
    pub(super) async fn place_series(
        &self,
        trees: &[Arc<ReadyTree>],
        series: &[Tsuid],
    ) -> Result<(PlaceCounts, u64), TreeError> {
        let facts = self.facts(series, &NeededFields::from_trees(trees)).await?;
        let facts: Arc<[SeriesFacts]> = facts.into_iter().flatten().collect();
        let without_names = (series.len() - facts.len()) as u64;
        let _placing = self.0.placing.read().await;
        let mut counts = PlaceCounts::default();
        for tree in trees {
            counts += self.store_series(tree, &facts).await?;
        }
        Ok((counts, without_names))
    }

    /// The trees of a request.
    async fn trees_of(&self, ids: &[TreeId]) -> Result<Arc<[Arc<ReadyTree>]>, TreeError> {
        if ids.is_empty() {
            return self.enabled().await;
        }
        let mut trees = ReadyTrees::default();
        for id in ids {
            trees.add(self.ready(self.tree(*id).await?).await?)?;
        }
        Ok(trees.finish())
    }

    /// The keys of up to [`BATCH_SERIES`] rows after one.
    async fn series_after(&self, last: &[u8], with_counters_only: bool) -> Result<Vec<Vec<u8>>, TreeError> {
        let mut scan = Scan::range([], []);
        if !last.is_empty() {
            scan = scan.resume_after(last);
        }
        scan.limit = Some(BATCH_SERIES as u64);
        let mut columns = vec![(META_FAMILY.to_owned(), TS_META_QUALIFIER.to_vec())];
        if with_counters_only {
            columns.push((META_FAMILY.to_owned(), COUNTER_QUALIFIER.to_vec()));
        }
        scan.columns = ColumnSelection::Columns(columns);
        let rows = self.0.table.store.scan(&self.0.meta_table, scan).await?;
        let batches: Vec<_> = rows.try_collect().await?;
        Ok(batches.iter().flatten().map(|row| row.key().to_vec()).collect())
    }
}
