//! Scans stored rows in table order.
//!
//! Rows are ordered by their keys as unsigned bytes: by salt bucket, if keys are salted, then by metric, hour and
//! tags. A scan visits the buckets one after the other, so an interrupted scan resumes after the last row that the
//! client received, whatever its bucket.

use std::time::Instant;

use futures::TryStreamExt as _;
use futures::stream::{BoxStream, StreamExt as _};
use oxtsdb_row_store::{Row, RowFilter, Scan};
use oxtsdb_schema::{BaseTime, RowKey, RowKeyLayout};

use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::metric_series::MetricSeries;
use crate::plan::selection::row_selection::Selection;
use crate::plan::tsuids::check_tsuid;
use crate::quirks::Quirks;
use crate::reader::ResolvedSource;
use crate::reader::range_scan::{KeyRange, scan_in_order, series_ranges};
use crate::spec::SeriesFilter;
use crate::storage::Storage;

/// The rows to scan.
#[derive(Clone, Debug)]
pub struct RowScan {
    /// The series of the rows.
    pub source: RowSource,
    /// The hours of the rows.
    pub hours: Hours,
    /// Only rows with greater keys; empty: all.
    pub start_after_row_key: Vec<u8>,
    /// Most rows to return; `None`: all.
    pub limit: Option<u64>,
}

/// The series of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// Series of a metric that match filters.
    Metric {
        /// Name of the metric.
        metric: String,
        /// Selects its series.
        filter: SeriesFilter,
    },
    /// Single series, as bytes of TSUIDs, which may be of several metrics.
    Tsuids(Vec<Vec<u8>>),
    /// All rows, including rows with a key that is no series.
    All,
    /// The rows of global annotations.
    GlobalAnnotations,
}

impl RowSource {
    /// Resolves names and checks TSUIDs.
    ///
    /// # Errors
    ///
    /// For unknown names and invalid TSUIDs; the errors of the name directory.
    pub async fn resolve(
        &self,
        storage: &Storage,
        deadline: Option<Instant>,
    ) -> Result<ResolvedSource, QueryError> {
        Ok(match self {
            Self::Metric { metric, filter } => {
                let series = MetricSeries::resolve(metric, filter, Quirks::NONE, storage, deadline).await?;
                ResolvedSource::Metric(series.metric, series.selection)
            }
            Self::Tsuids(tsuids) => {
                let checked = tsuids.iter().map(|bytes| check_tsuid(bytes, &storage.layout));
                ResolvedSource::Tsuids(checked.collect::<Result<_, _>>()?)
            }
            Self::All => ResolvedSource::All,
            Self::GlobalAnnotations => ResolvedSource::GlobalAnnotations,
        })
    }
}

/// Scans rows in table order and streams them in batches; dropping the stream cancels the scan.
///
/// # Errors
///
/// For unknown names and invalid TSUIDs; the stream returns the errors of the store and of the name directory.
pub async fn scan_rows(
    storage: &Storage,
    scan: RowScan,
    context: &QueryContext,
) -> Result<BoxStream<'static, Result<Vec<Row>, QueryError>>, QueryError> {
    let (layout, deadline) = (storage.layout, context.deadline());
    let hours = scan.hours;
    let (selection, ranges, in_hours) = match scan.source.resolve(storage, deadline).await? {
        ResolvedSource::Metric(metric, selection) => (selection, hours.ranges(&layout, metric), None),
        ResolvedSource::Tsuids(tsuids) => {
            let selection = Selection::from_series(&layout, tsuids.iter().map(AsRef::as_ref), Vec::new());
            (selection, series_ranges(&tsuids, &layout, hours), None)
        }
        ResolvedSource::GlobalAnnotations => {
            let (range, length) = global_annotations(&layout, hours);
            (
                Selection::from_tests(&layout, Vec::new(), None),
                vec![range],
                // Longer keys are of series with unassigned UIDs.
                Some(RowFilter::new(move |key| key.len() == length)),
            )
        }
        ResolvedSource::All => {
            let base_time_at = layout.salt.width() + layout.widths.metric.bytes();
            let filter = RowFilter::new(move |key| {
                base_time(key, base_time_at).is_none_or(|hour| hours.contains(hour))
            });
            (
                Selection::from_tests(&layout, Vec::new(), None),
                vec![(Vec::new(), Vec::new())],
                Some(filter),
            )
        }
    };
    let ranges = remaining(ranges, &scan.start_after_row_key);
    let mut template = Scan::range([], []);
    template.filter = selection.row_filter().or(in_hours);
    let batches = scan_in_order(&storage.store, &storage.table, ranges, template);
    let storage = storage.clone();
    let matching = batches.map_err(QueryError::from).and_then(move |mut rows| {
        let (selection, storage) = (selection.clone(), storage.clone());
        async move {
            selection
                .resolve_and_filter(&mut rows, &*storage.directory, deadline)
                .await?;
            Ok(rows)
        }
    });
    Ok(limited(matching, scan.limit.unwrap_or(u64::MAX)).boxed())
}

/// The range of the rows of global annotations, and the length of their keys.
fn global_annotations(layout: &RowKeyLayout, hours: Hours) -> (KeyRange, usize) {
    let key = |hour| RowKey::global_annotations(layout, hour).as_bytes().to_vec();
    let start = key(hours.start);
    let length = start.len();
    let stop = match u32::try_from(hours.stop_seconds) {
        Ok(seconds) => key(BaseTime::from_seconds(seconds)),
        Err(_) => [key(BaseTime::MAX), vec![0]].concat(),
    };
    ((start, stop), length)
}

/// The base time of a row key; `None` if the key is truncated or the base time is no hour; such rows are returned.
fn base_time(row_key: &[u8], at: usize) -> Option<BaseTime> {
    let bytes = row_key.get(at..)?.first_chunk()?;
    BaseTime::from_seconds_exact(u32::from_be_bytes(*bytes)).ok()
}

/// The parts of ranges after a row.
fn remaining(ranges: Vec<(Vec<u8>, Vec<u8>)>, start_after: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    if start_after.is_empty() {
        return ranges;
    }
    let first = [start_after, &[0]].concat();
    ranges
        .into_iter()
        .filter(|(_, stop)| stop.is_empty() || *stop > first)
        .map(|(start, stop)| (start.max(first.clone()), stop))
        .collect()
}

/// Limits the number of rows and drops empty batches.
fn limited<S>(batches: S, limit: u64) -> impl futures::Stream<Item = Result<Vec<Row>, QueryError>> + Send
where
    S: futures::Stream<Item = Result<Vec<Row>, QueryError>> + Send,
{
    batches
        .scan(limit, |left, batch| {
            if *left == 0 {
                return futures::future::ready(None);
            }
            let batch = batch.map(|mut rows| {
                rows.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= rows.len() as u64;
                rows
            });
            futures::future::ready(Some(batch))
        })
        .try_filter(|rows| futures::future::ready(!rows.is_empty()))
}
