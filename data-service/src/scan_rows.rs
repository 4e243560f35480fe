//! Rows and cells as they are stored, in the order of the table.
//!
//! The order of the table is that of row keys as unsigned bytes: by salt bucket first, if there is
//! salt, then by metric, hour and tags. So a scan visits the buckets one after the other, and one
//! that broke off is taken up behind the last row that was received, whatever bucket it was in.

use std::time::Instant;

use futures::TryStreamExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_row_store::{Row, RowFilter, Scan};
use oxtsdb_schema::BaseTime;

use oxtsdb_query::plan::hours::Hours;
use oxtsdb_query::plan::selection::Selection;
use oxtsdb_query::plan::{MetricSeries, check_tsuid, series_ranges};
use oxtsdb_query::{Engine, QueryError, Quirks, SeriesFilter};

/// What to scan.
#[derive(Clone, Debug)]
pub struct RowScan {
    /// Rows of which series.
    pub source: RowSource,
    /// Rows of which hours.
    pub hours: Hours,
    /// Only rows whose keys are greater; empty: all.
    pub start_after_row_key: Vec<u8>,
    /// Rows at most; `None`: all.
    pub limit: Option<u64>,
}

/// Rows of which series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSource {
    /// Of a metric, by filters.
    Metric {
        /// Name of the metric.
        metric: String,
        /// Which of its series.
        filter: SeriesFilter,
    },
    /// These, as bytes of TSUIDs, which may be of several metrics.
    Tsuids(Vec<Vec<u8>>),
    /// All there are, rows without a series among them.
    All,
}

/// Scans. The rows come in batches in the order of the table; dropping the stream ends the scan.
///
/// # Errors
///
/// Unknown names and TSUIDs that are none; in the stream what the store and the UID service say.
pub async fn scan_rows(
    engine: &Engine,
    scan: RowScan,
    deadline: Option<Instant>,
) -> Result<BoxStream<'static, Result<Vec<Row>, QueryError>>, QueryError> {
    let layout = *engine.layout();
    let hours = scan.hours;
    let (selection, mut ranges, in_hours) = match &scan.source {
        RowSource::Metric { metric, filter } => {
            let directory = &**engine.directory();
            let series = MetricSeries::resolve(metric, filter, Quirks::NONE, &layout, directory, deadline);
            let MetricSeries {
                metric, selection, ..
            } = series.await?;
            let ranges = layout
                .salt
                .buckets()
                .map(|bucket| hours.range(&layout, metric, bucket))
                .collect();
            (selection, ranges, None)
        }
        RowSource::Tsuids(tsuids) => {
            let tsuids: Vec<_> = tsuids
                .iter()
                .map(|bytes| check_tsuid(bytes, &layout))
                .collect::<Result<_, _>>()?;
            let selection = Selection::of_series(&layout, tsuids.iter().map(AsRef::as_ref), Vec::new());
            (selection, series_ranges(&tsuids, &layout, hours), None)
        }
        RowSource::All => {
            let base_time_at = layout.salt.width() + layout.widths.metric.bytes();
            let filter = RowFilter::new(move |key| {
                base_time(key, base_time_at).is_none_or(|hour| hours.contains(hour))
            });
            (
                Selection::of_tags(&layout, Vec::new(), None),
                vec![(Vec::new(), Vec::new())],
                Some(filter),
            )
        }
    };
    ranges.sort_unstable();
    ranges.dedup();
    let ranges = remaining(ranges, &scan.start_after_row_key);
    let filter = selection.row_filter().or(in_hours);
    let opening = engine.clone();
    let open = move |(start, stop): (Vec<u8>, Vec<u8>)| {
        let mut scan = Scan::range(start, stop);
        scan.filter = filter.clone();
        let engine = opening.clone();
        stream::once(async move { engine.store().scan(engine.table(), scan).await }).try_flatten()
    };
    let engine = engine.clone();
    let judged = stream::iter(ranges)
        .flat_map(open)
        .map_err(QueryError::from)
        .and_then(move |mut rows| {
            let (selection, engine) = (selection.clone(), engine.clone());
            async move {
                selection
                    .judge(&mut rows, &**engine.directory(), deadline)
                    .await?;
                Ok(rows)
            }
        });
    Ok(limited(judged, scan.limit.unwrap_or(u64::MAX)).boxed())
}

/// The base time of a row key; `None` if it is cut off before or is no hour, which the scan shows.
fn base_time(row_key: &[u8], at: usize) -> Option<BaseTime> {
    let bytes = row_key.get(at..)?.first_chunk()?;
    BaseTime::from_seconds_exact(u32::from_be_bytes(*bytes)).ok()
}

/// What of the ranges lies behind a row.
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

/// So many rows, and no batch without any.
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
