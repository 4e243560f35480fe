//! The plan of one sub-query.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{TagkUid, Tsuid};

use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::function::aggregator::Function;
use crate::function::downsample::Windows;
use crate::names::check_metrics;
use crate::plan::hours::Hours;
use crate::plan::metric_series::{MetricSeries, name_tests};
use crate::plan::rollup::{TableRead, choices};
use crate::plan::selection::row_selection::Selection;
use crate::plan::tsuids::check_tsuids;
use crate::plan::windows::windows;
use crate::reader::SeriesSet;
use crate::reader::access_path::AccessPath;
use crate::spec::{QuerySpec, Source, SubQuery};
use crate::storage::Storage;

/// A plan: the series that a sub-query reads, and how they are downsampled and grouped.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the metric, if the sub-query has one.
    pub metric: Option<Arc<str>>,
    /// The hours that are read.
    pub hours: Hours,
    /// Series that begin later do not count.
    pub begins_until_ms: i64,
    /// The access path to the matching series.
    pub access_path: Arc<dyn AccessPath>,
    /// The tag keys that series are grouped by, ascending.
    pub group_by: Vec<TagkUid>,
    /// The table that is read.
    pub read: TableRead,
    /// Its storage, if it is another one than the storage of points.
    of_table: Option<Box<Storage>>,
    /// The tables to read in its place if it has no series.
    pub(crate) fallbacks: VecDeque<TableRead>,
    /// How each series is downsampled.
    pub downsample: Option<(Windows, Function)>,
    /// The memory of the list of series, and of the windows of a fill policy.
    _held: Arc<Held>,
}

impl Plan {
    /// Resolves the names of a sub-query and chooses its access path.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`], the errors of TSUIDs, [`QueryError::OverBudget`] if a fill policy alone would
    /// generate too many points, and the errors of the name directory.
    pub fn new<'a>(
        query: &'a QuerySpec,
        sub_query: &'a SubQuery,
        storage: &'a Storage,
        compute: &'a ComputePool,
        context: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Self, QueryError>> {
        // Behind a pointer, so that it is compiled in this crate and not again in each that plans queries.
        Box::pin(async move {
            let mut reads = choices(sub_query, storage.rollups.as_deref())?;
            let read = reads.pop_front().unwrap_or_default();
            Self::reading(query, sub_query, (read, reads), storage, compute, context).await
        })
    }

    /// As [`Plan::new`], of a table, with its fallback tables.
    pub(crate) async fn reading(
        query: &QuerySpec,
        sub_query: &SubQuery,
        (read, fallbacks): (TableRead, VecDeque<TableRead>),
        storage: &Storage,
        compute: &ComputePool,
        context: &QueryContext,
    ) -> Result<Self, QueryError> {
        let of_table = storage.for_table(&read).map(Box::new);
        let storage = of_table.as_deref().unwrap_or(storage);
        let (layout, deadline) = (&storage.layout, context.deadline());
        let quirks = query.quirks;
        let hours = Hours::for_query(
            query.start_ms,
            query.end_ms,
            sub_query.downsample.as_ref(),
            quirks,
        );
        let hours = match &read.rollup {
            Some(rollup) => rollup.hours(hours, sub_query),
            None => hours,
        };
        let range_hours = hours;
        let filter = &sub_query.filter;
        let names_all_keys = filter.explicit_tags && !filter.tags.is_empty();
        let (hours, begins_until_ms) = match &sub_query.source {
            Source::Metric(_)
                if names_all_keys && quirks.explicit_tags_read_an_hour_more && read.rollup.is_none() =>
            {
                (hours.one_more(), hours.stop_ms())
            }
            Source::Metric(_) | Source::Tsuids(_) => (hours, i64::MAX),
        };
        let read_context = storage.read_context(compute, context);
        let (metric, access_path, group_by) = match &sub_query.source {
            Source::Metric(metric) => {
                let MetricSeries {
                    metric: uid,
                    selection,
                    group_by,
                } = MetricSeries::resolve(metric, filter, quirks, storage, deadline).await?;
                let series = SeriesSet::Metric(uid);
                let path = storage
                    .reader
                    .access_path(series, selection, hours, &read_context);
                (Some(Arc::from(metric.as_str())), path.await?, group_by)
            }
            Source::Tsuids(tsuids) => {
                let mut tsuids = check_tsuids(tsuids, layout)?;
                check_metrics(&tsuids, &layout.widths, &*storage.directory, deadline).await?;
                let (tests, group_by) = match name_tests(&filter.tags, quirks, storage, deadline).await? {
                    Some(tests) => tests,
                    // No series has a key without a UID.
                    None => {
                        tsuids.clear();
                        (Vec::new(), Vec::new())
                    }
                };
                let selection = Selection::from_series(layout, tsuids.iter().map(Tsuid::as_bytes), tests);
                let series = SeriesSet::Tsuids(&tsuids);
                let path = storage
                    .reader
                    .access_path(series, selection, hours, &read_context);
                let group_by = if quirks.tsuids_are_one_group {
                    Vec::new()
                } else {
                    group_by
                };
                (None, path.await?, group_by)
            }
        };
        let group_by = if sub_query.aggregator.is_none() {
            Vec::new()
        } else {
            group_by
        };
        let mut held = context.budget().hold(access_path.byte_len())?;
        // Last: a query for unknown names fails before any window is made.
        let mut downsampled = None;
        if let Some(downsample) = &sub_query.downsample {
            let (windows, of_windows) = windows(
                query,
                downsample,
                &range_hours,
                context.budget(),
                &read_context.compute,
            )
            .await?;
            let function = match &read.rollup {
                Some(rollup) => rollup.function(downsample, query),
                None => downsample.function.under(quirks),
            };
            downsampled = Some((windows, function));
            if let Some(of_windows) = of_windows {
                held.merge(of_windows);
            }
        }
        Ok(Self {
            metric,
            hours,
            begins_until_ms,
            access_path,
            group_by,
            read,
            of_table,
            fallbacks,
            downsample: downsampled,
            _held: Arc::new(held),
        })
    }

    /// Selects the matching rows.
    pub fn selection(&self) -> &Selection {
        self.access_path.selection()
    }

    /// The first and the last instant of a result, in milliseconds. With the points around the range it ends where series
    /// have to have begun: of one more hour, which explicit tags read, it has the first instant alone.
    pub(crate) fn result_range_ms(&self, query: &QuerySpec) -> (i64, i64) {
        if query.with_surroundings {
            let stop_ms = self.hours.stop_ms();
            (self.hours.start.millis(), stop_ms.min(self.begins_until_ms))
        } else {
            (query.start_ms, query.end_ms)
        }
    }

    /// The storage that has the table; `storage` is the storage of points.
    pub(crate) fn storage<'a>(&'a self, storage: &'a Storage) -> &'a Storage {
        self.of_table.as_deref().unwrap_or(storage)
    }
}
