//! Reads stored points, as a client does: by query and by scan.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::data_admin_service_client::DataAdminServiceClient;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::query_response::Frame;
use oxtsdb_proto::data::v1::scan_rows_request::Source;
use oxtsdb_proto::data::v1::sub_query::{self, MetricSource};
use oxtsdb_proto::data::v1::{
    AggregateFunction, CellView, QueryRequest, ScanRowsRequest, ScanTableRequest, StoredRow, SubQuery,
};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic::transport::Channel;

use crate::sample::Number;

/// The last millisecond that can be stored.
pub const LAST_MS: i64 = 4_294_967_295_999;

/// A group of a result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Metric name.
    pub metric: String,
    /// Tags that all its series share.
    pub tags: BTreeMap<String, String>,
    /// Keys of the tags that differ.
    pub aggregate_tags: Vec<String>,
    /// Points in order of time.
    pub points: Vec<(i64, Number)>,
}

/// All time.
pub fn always() -> TimeRange {
    range(0, LAST_MS + 1)
}

/// From an instant (inside) to an instant (outside).
pub fn range(start_ms: i64, end_ms: i64) -> TimeRange {
    TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms)),
    }
}

/// A sub-query for all series of a metric.
pub fn sub_query(metric: &str, aggregator: AggregateFunction) -> SubQuery {
    SubQuery {
        source: Some(sub_query::Source::Metric(MetricSource {
            metric: metric.to_owned(),
            filters: Vec::new(),
            explicit_tags: false,
        })),
        aggregator: Some(aggregator.into()),
        ..SubQuery::default()
    }
}

/// Returns each series of a metric with all its points.
///
/// # Errors
///
/// The server's.
pub async fn series_of(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
) -> anyhow::Result<BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>> {
    series_in(client, metric, always()).await
}

/// Returns each series of a metric with its points in a range of time.
///
/// # Errors
///
/// The server's.
pub async fn series_in(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
    range: TimeRange,
) -> anyhow::Result<BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>> {
    let request = QueryRequest {
        range: Some(range),
        queries: vec![sub_query(metric, AggregateFunction::None)],
        ..QueryRequest::default()
    };
    let mut series = BTreeMap::new();
    for group in query(client, request).await? {
        let twice = series.insert(group.tags, group.points);
        ensure!(twice.is_none(), "a series of `{metric}` came twice");
    }
    Ok(series)
}

/// As [`series_of`], with nothing for a metric that does not exist.
///
/// # Errors
///
/// The server's, other than NOT_FOUND.
pub async fn series_of_or_none(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
) -> anyhow::Result<BTreeMap<BTreeMap<String, String>, Vec<(i64, Number)>>> {
    match series_of(client, metric).await {
        Err(error) if code_of(&error) == Some(tonic::Code::NotFound) => Ok(BTreeMap::new()),
        other => other,
    }
}

fn code_of(error: &anyhow::Error) -> Option<tonic::Code> {
    error.downcast_ref::<Status>().map(Status::code)
}

/// Returns the groups of a query's result; checks the order of frames that the contract defines.
///
/// # Errors
///
/// The server's, or a violation of the contract.
pub async fn query(
    client: &mut DataServiceClient<Channel>,
    request: QueryRequest,
) -> anyhow::Result<Vec<Group>> {
    let sub_queries = request.queries.len();
    let mut frames = client.query(request).await?.into_inner();
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    let mut done = 0;
    let mut closed = false;
    while let Some(response) = frames.next().await {
        ensure!(!closed, "a frame followed the statistics");
        match response?.frame.context("an empty frame")? {
            Frame::Series(series) => {
                let group = Group {
                    metric: series.metric,
                    tags: series.tags.into_iter().collect(),
                    aggregate_tags: series.aggregate_tags,
                    points: Vec::new(),
                };
                let twice = groups.insert(series.series, group);
                ensure!(twice.is_none(), "group {} began twice", series.series);
            }
            Frame::Annotations(_) => anyhow::bail!("annotations, which were not requested"),
            Frame::Points(points) => {
                let group = groups.get_mut(&points.series).context("points of no group")?;
                let ints = points.int_values.into_iter().map(Number::Int);
                let doubles = points.values.into_iter().map(Number::Double);
                let values: Vec<Number> = ints.chain(doubles).collect();
                ensure!(
                    values.len() == points.timestamps_ms.len(),
                    "{} values at {} instants",
                    values.len(),
                    points.timestamps_ms.len()
                );
                for (instant, value) in points.timestamps_ms.into_iter().zip(values) {
                    if let Some((last, _)) = group.points.last() {
                        ensure!(*last < instant, "instant {instant} after {last}");
                    }
                    group.points.push((instant, value));
                }
            }
            Frame::Done(_) => done += 1,
            Frame::Statistics(_) => closed = true,
        }
    }
    ensure!(closed && done == sub_queries, "the result ended early");
    Ok(groups.into_values().collect())
}

/// Returns all rows of the table as they are stored.
///
/// # Errors
///
/// The server's.
pub async fn all_rows(client: &mut DataAdminServiceClient<Channel>) -> anyhow::Result<Vec<StoredRow>> {
    let request = ScanTableRequest {
        view: CellView::Full.into(),
        ..ScanTableRequest::default()
    };
    let mut responses = client.scan_table(request).await?.into_inner();
    let mut rows = Vec::new();
    while let Some(response) = responses.next().await {
        rows.extend(response?.rows);
    }
    Ok(rows)
}

/// Returns the rows of a metric as they are stored.
///
/// # Errors
///
/// The server's.
pub async fn rows_of(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
) -> anyhow::Result<Vec<StoredRow>> {
    let metric = MetricSource {
        metric: metric.to_owned(),
        ..MetricSource::default()
    };
    let request = ScanRowsRequest {
        source: Some(Source::Metric(metric)),
        range: Some(always()),
        view: CellView::Full.into(),
        ..ScanRowsRequest::default()
    };
    let mut responses = client.scan_rows(request).await?.into_inner();
    let mut rows = Vec::new();
    while let Some(response) = responses.next().await {
        rows.extend(response?.rows);
    }
    Ok(rows)
}

/// Returns the status with which a call failed.
///
/// # Errors
///
/// If it did not fail.
pub fn call_error<T: std::fmt::Debug>(answer: Result<T, Status>) -> anyhow::Result<Status> {
    match answer {
        Err(status) => Ok(status),
        Ok(answer) => bail!("did not fail: {answer:?}"),
    }
}

/// Returns the status with which a query failed, at its start or in its stream.
///
/// # Errors
///
/// If it did not fail.
pub async fn query_error(
    client: &mut DataServiceClient<Channel>,
    request: QueryRequest,
) -> anyhow::Result<Status> {
    let mut frames = match client.query(request).await {
        Err(status) => return Ok(status),
        Ok(answer) => answer.into_inner(),
    };
    while let Some(frame) = frames.next().await {
        if let Err(status) = frame {
            return Ok(status);
        }
    }
    bail!("the query succeeded")
}
