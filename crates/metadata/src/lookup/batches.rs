//! TSUIDs that match a selector, in ascending batches that are read on demand.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use oxtsdb_query::{Held, QueryContext, QueryError, SeriesList};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, StoreError};
use oxtsdb_schema::MetricUid;
use oxtsdb_schema::data_table::META_FAMILY;

use super::catalogue::CatalogueCursor;
use super::extent::{BATCH_SERIES, Extent};
use super::matcher::SeriesMatcher;
use super::{LookupQuery, SeriesLookup, SeriesSource};

/// Series of an index that one job compares.
const INDEX_STEP: usize = 1 << 18;

/// The matching TSUIDs, ascending. Dropping it ends the scan.
pub struct TsuidBatches {
    context: QueryContext,
    compute: ComputePool,
    source: Source,
}

impl std::fmt::Debug for TsuidBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TsuidBatches").finish_non_exhaustive()
    }
}

enum Source {
    /// Rows of table `tsdb-meta`.
    Rows {
        rows: BoxStream<'static, Result<Vec<Row>, StoreError>>,
        matcher: SeriesMatcher,
    },
    /// Series of a metric in memory.
    Index(Box<IndexCursor>),
    /// The catalogue of the store of points.
    Catalogue(Box<CatalogueCursor>),
    /// Series that were collected from row keys, with their memory.
    Collected {
        tsuids: VecDeque<Box<[u8]>>,
        _held: Held,
    },
}

/// A position in the list of a metric's series.
struct IndexCursor {
    lookup: SeriesLookup,
    metric: MetricUid,
    list: Arc<SeriesList>,
    matcher: SeriesMatcher,
    /// The first series that was not compared yet.
    next: usize,
}

impl SeriesLookup {
    /// The series of a query with TSUIDs after `after`; empty: all.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`], errors of the store, and of the context.
    pub async fn batches(
        &self,
        query: &LookupQuery,
        after: &[u8],
        extent: Extent,
    ) -> Result<TsuidBatches, QueryError> {
        let matcher = self.context.run(self.resolve(&query.selector)).await?;
        // All series of table `tsdb-meta` are read fastest from its rows.
        let narrows = matcher.metric().is_some() && matcher.has_conditions();
        let catalogue = self.storage.reader.columns();
        let catalogue = catalogue.filter(|_| narrows || query.source == SeriesSource::DataTable);
        let source = match (catalogue, query.source) {
            (Some(columns), source) => {
                let cursor = CatalogueCursor::new(self, columns, source, matcher, after)?;
                Source::Catalogue(Box::new(cursor))
            }
            (None, SeriesSource::MetaTable) => match self.index_of(&matcher, extent).await? {
                Some((metric, list)) => Source::Index(Box::new(IndexCursor {
                    lookup: self.clone(),
                    next: first_after(&list, metric, after),
                    metric,
                    list,
                    matcher,
                })),
                None => self.rows(matcher, after, extent).await?,
            },
            (None, SeriesSource::DataTable) => {
                let collected = self.collect_from_data(&self.storage.store, &matcher, after, extent);
                let (tsuids, held) = self.context.run(collected).await?;
                Source::Collected {
                    tsuids: tsuids.into(),
                    _held: held,
                }
            }
        };
        Ok(TsuidBatches {
            context: self.context.clone(),
            compute: self.compute.clone(),
            source,
        })
    }

    /// The index, where it is faster than the rows of `tsdb-meta`.
    async fn index_of(
        &self,
        matcher: &SeriesMatcher,
        extent: Extent,
    ) -> Result<Option<(MetricUid, Arc<SeriesList>)>, QueryError> {
        let storage = &self.storage;
        let (Some(index), Some(metric), None) = (&storage.index, matcher.metric(), storage.reader.columns())
        else {
            return Ok(None);
        };
        if !matcher.has_conditions() && extent != Extent::All {
            return Ok(None);
        }
        let list = self
            .context
            .run(async { Ok::<_, QueryError>(index.list(metric).await) });
        // Without a list the rows have the series.
        Ok(list.await?.ok().map(|list| (metric, list)))
    }

    async fn rows(&self, matcher: SeriesMatcher, after: &[u8], extent: Extent) -> Result<Source, QueryError> {
        let mut scan = matcher.meta_scan(after);
        scan.columns = ColumnSelection::Family(META_FAMILY.to_owned());
        scan.batch_rows = match extent {
            Extent::All => BATCH_SERIES,
            Extent::First(count) => count.clamp(1, BATCH_SERIES),
        };
        if matcher.has_conditions() {
            let matcher = matcher.clone();
            scan.filter = Some(RowFilter::new(move |key| matcher.matches(key)));
        }
        let is_empty = !scan.stop.is_empty() && scan.start >= scan.stop;
        let rows = if is_empty {
            futures::stream::empty().boxed()
        } else {
            let opened = self.storage.store.scan(&self.storage.meta_table, scan);
            let opened = async { opened.await.map_err(QueryError::from) };
            self.context.run(opened).await?
        };
        Ok(Source::Rows { rows, matcher })
    }
}

/// The index of the first series after a TSUID.
fn first_after(list: &SeriesList, metric: MetricUid, after: &[u8]) -> usize {
    let Some(tags) = after.strip_prefix(metric.as_bytes()) else {
        return if after > metric.as_bytes() { list.len() } else { 0 };
    };
    list.position_after(tags)
}

impl TsuidBatches {
    /// The next batch, not empty; `None` after the last.
    ///
    /// # Errors
    ///
    /// Errors of the store, and of the context.
    pub async fn next(&mut self) -> Result<Option<Vec<Box<[u8]>>>, QueryError> {
        let batch = match &mut self.source {
            Source::Rows { rows, matcher } => {
                let (context, compute, budget) = (&self.context, &self.compute, self.context.budget());
                loop {
                    let next = async { rows.next().await.transpose().map_err(QueryError::from) };
                    let Some(rows) = context.run(next).await? else {
                        break Vec::new();
                    };
                    let matcher = matcher.clone();
                    let decode = move || {
                        let bytes: usize = rows.iter().map(Row::byte_len).sum();
                        // Rows with keys that are no TSUIDs are not series.
                        let keys = rows.iter().map(Row::key).filter(|key| matcher.matches(key));
                        (keys.map(Into::into).collect(), rows.len(), bytes)
                    };
                    let (tsuids, count, bytes): (Vec<Box<[u8]>>, _, _) = compute.run(decode).await?;
                    budget.use_rows(count as u64, bytes as u64)?;
                    if !tsuids.is_empty() {
                        break tsuids;
                    }
                }
            }
            Source::Index(cursor) => self.context.run(cursor.next()).await?,
            Source::Catalogue(cursor) => self.context.run(cursor.next()).await?,
            Source::Collected { tsuids, .. } => {
                let count = tsuids.len().min(BATCH_SERIES);
                tsuids.drain(..count).collect()
            }
        };
        Ok(Some(batch).filter(|batch| !batch.is_empty()))
    }
}

impl IndexCursor {
    /// The next matching series; none at the end of the list.
    async fn next(&mut self) -> Result<Vec<Box<[u8]>>, QueryError> {
        while self.next < self.list.len() {
            let (list, matcher) = (Arc::clone(&self.list), self.matcher.clone());
            let (metric, next) = (self.metric, self.next);
            let series = self
                .lookup
                .compute
                .run(move || compare(&list, metric, &matcher, next));
            let (series, next) = series.await?;
            self.next = next;
            if !series.is_empty() {
                return Ok(series);
            }
        }
        Ok(Vec::new())
    }
}

/// The TSUIDs that match among some series of a list, and the first series after them.
fn compare(
    list: &SeriesList,
    metric: MetricUid,
    matcher: &SeriesMatcher,
    first: usize,
) -> (Vec<Box<[u8]>>, usize) {
    let mut series = Vec::new();
    let mut next = first;
    for tags in list.iter().skip(first).take(INDEX_STEP) {
        next += 1;
        if matcher.matches_tags(tags) {
            series.push([metric.as_bytes(), tags].concat().into());
            if series.len() == BATCH_SERIES {
                break;
            }
        }
    }
    (series, next)
}
