//! Series from the catalogue of the store of points.
//!
//! The catalogue lists every series that ever had a row, in the order of keys, and finds those with given tags without
//! comparing the others. A look-up returns the series that are in its table now:
//!
//! ```text
//!   table tsdb-meta    those with a row
//!   table tsdb         those with a point, or with a row of other cells
//! ```

use std::sync::Arc;

use oxtsdb_point_store::{PointStore, SeriesNumber, TimeRange};
use oxtsdb_query::{Held, QueryError};
use oxtsdb_row_store::{ColumnSelection, StoreError};
use oxtsdb_schema::data_table::META_FAMILY;

use super::extent::{BATCH_SERIES, Extent};
use super::matcher::SeriesMatcher;
use super::{SeriesLookup, SeriesSource};

/// A position in the catalogue.
pub(super) struct CatalogueCursor {
    lookup: SeriesLookup,
    columns: Arc<dyn PointStore>,
    source: SeriesSource,
    matcher: SeriesMatcher,
    /// Series up to this one are left out.
    after: Box<[u8]>,
    /// The metrics that follow, the next one last.
    metrics: Vec<Vec<u8>>,
    /// The series of the current metric that may match, in the order of their keys.
    series: Vec<SeriesNumber>,
    /// The first of them that was not compared yet.
    next: usize,
    /// The memory of `series`.
    held: Held,
    /// The series with rows of other cells, once a series without points was found.
    of_cells: Option<(Vec<Box<[u8]>>, Held)>,
}

impl CatalogueCursor {
    /// The matching series after `after`, ascending.
    pub(super) fn new(
        lookup: &SeriesLookup,
        columns: &Arc<dyn PointStore>,
        source: SeriesSource,
        matcher: SeriesMatcher,
        after: &[u8],
    ) -> Result<Self, QueryError> {
        let metrics = match matcher.metric() {
            Some(metric) => vec![metric.as_bytes().to_vec()],
            None => {
                let mut metrics = columns.metrics();
                // The series of a metric are before a key that begins with another one.
                metrics.retain(|metric| metric.as_slice() >= after.get(..metric.len()).unwrap_or_default());
                metrics.reverse();
                metrics
            }
        };
        Ok(Self {
            held: lookup.context.budget().hold(0)?,
            lookup: lookup.clone(),
            columns: Arc::clone(columns),
            source,
            matcher,
            after: after.into(),
            metrics,
            series: Vec::new(),
            next: 0,
            of_cells: None,
        })
    }

    /// The next series, at most [`BATCH_SERIES`] of them; none at the end.
    pub(super) async fn next(&mut self) -> Result<Vec<Box<[u8]>>, QueryError> {
        loop {
            let rest = self.series.get(self.next..).unwrap_or_default();
            let step = rest.get(..BATCH_SERIES.min(rest.len())).unwrap_or_default();
            if step.is_empty() {
                match self.metrics.pop() {
                    Some(metric) => self.begin(metric).await?,
                    None => return Ok(Vec::new()),
                }
                continue;
            }
            self.next += step.len();
            let (store, step) = (Arc::clone(&self.columns), step.to_vec());
            let (matcher, after) = (self.matcher.clone(), self.after.clone());
            let matching = move || {
                let keyed = step.into_iter().map(|series| (series, key(&*store, series)));
                keyed
                    .filter(|(_, key)| **key > *after && matcher.matches(key))
                    .collect()
            };
            let matching = self.lookup.compute.run(matching).await?;
            let keys = match self.source {
                SeriesSource::MetaTable => self.with_meta_rows(matching).await?,
                SeriesSource::DataTable => self.with_rows(matching).await?,
            };
            if !keys.is_empty() {
                return Ok(keys);
            }
        }
    }

    /// Lists the series of a metric.
    async fn begin(&mut self, metric: Vec<u8>) -> Result<(), QueryError> {
        let (store, tests) = (Arc::clone(&self.columns), self.matcher.tag_tests());
        let listed = self.lookup.compute.run(move || {
            if tests.is_empty() {
                return store.metric_series(&metric);
            }
            let mut series = store.select(&metric, &tests);
            series.sort_by_cached_key(|series| key(&*store, *series));
            series
        });
        self.series = listed.await?;
        self.next = 0;
        self.held = self
            .lookup
            .context
            .budget()
            .hold(size_of_val(&*self.series) as u64)?;
        Ok(())
    }

    /// The series with rows in table `tsdb-meta`.
    async fn with_meta_rows(
        &self,
        series: Vec<(SeriesNumber, Box<[u8]>)>,
    ) -> Result<Vec<Box<[u8]>>, QueryError> {
        let storage = &self.lookup.storage;
        let keys: Vec<Vec<u8>> = series.iter().map(|(_, key)| key.to_vec()).collect();
        let family = ColumnSelection::Family(META_FAMILY.to_owned());
        let rows = storage
            .store
            .get_rows(&storage.meta_table, &keys, &family, None)
            .await?;
        let rows = series.into_iter().zip(rows);
        Ok(rows.filter_map(|((_, key), row)| row.map(|_| key)).collect())
    }

    /// The series with points, or rows of other cells.
    async fn with_rows(
        &mut self,
        series: Vec<(SeriesNumber, Box<[u8]>)>,
    ) -> Result<Vec<Box<[u8]>>, QueryError> {
        let numbers: Vec<SeriesNumber> = series.iter().map(|(series, _)| *series).collect();
        let last = self.columns.last(&numbers, TimeRange::ALL).await;
        let last = last.map_err(StoreError::from)?;
        let mut keys = Vec::with_capacity(series.len());
        for ((_, key), last) in series.into_iter().zip(last) {
            if last.is_some() || self.has_cells(&key).await? {
                keys.push(key);
            }
        }
        Ok(keys)
    }

    /// Whether a series has rows of other cells.
    async fn has_cells(&mut self, key: &[u8]) -> Result<bool, QueryError> {
        let (of_cells, _held) = match &mut self.of_cells {
            Some(of_cells) => of_cells,
            none => {
                let cells = self.lookup.storage.reader.cells();
                let collected = self
                    .lookup
                    .collect_from_data(cells, &self.matcher, &self.after, Extent::All);
                none.insert(collected.await?)
            }
        };
        Ok(of_cells
            .binary_search_by(|stored_key| (**stored_key).cmp(key))
            .is_ok())
    }
}

fn key(store: &dyn PointStore, series: SeriesNumber) -> Box<[u8]> {
    let mut key = Vec::new();
    store.key(series, &mut key);
    key.into()
}
