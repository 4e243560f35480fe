//! Prometheus' remote read: `/api/v1/read`, with samples.
//!
//! ```text
//!   ReadRequest ─► matchers ─► metrics and filters ─► query of each series ─► all tests ─► QueryResult ─► ReadResponse, in Snappy
//! ```
//!
//! Filters of OpenTSDB select the series of a request as far as they can: a filter requires its tag, a matcher also passes
//! series without the label. So each series that a query returns is tested by all matchers.
//!
//! The response has the type `SAMPLES`, whether or not the sender prefers `STREAMED_XOR_CHUNKS`: it accepts both.
//!
//! Source: <https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/>; `prompb/remote.proto` and
//! `storage/remote/codec.go` of Prometheus 3.

mod encode;
mod matcher;
mod request;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderValue};
use oxtsdb_query::{
    Aggregator, AnnotationSelection, Engine, Held, QueryError, QuerySpec, Quirks, RequestContext,
    RollupRequest, SeriesFilter, Source, SubQuery, TagFilter,
};

use self::encode::{FIRST_MESSAGE, SeriesEncoder};
use self::matcher::Selection;
use self::request::ReadQuery;
use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::ReplyBody;
use crate::http::error::HttpError;
use crate::http::mapped::NameMap;
use crate::http::query::{Next, failure, next_of};
use crate::http::reply::Reply;

const SNAPPY: HeaderValue = HeaderValue::from_static("snappy");

/// Answers the queries of a body.
pub(in crate::http) async fn read(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts, context, body, ..
    } = request;
    let map = NameMap::new(parts.writer.uids().name_rules(), "prometheus");
    let of_query = |error: QueryError| failure::query_error(&error);
    let mut response = Response::default();
    for query in request::decode(&body.bytes)? {
        let selection = Selection::new(&query.matchers, &map)?;
        let result = result(parts, context, &query, selection)
            .await
            .map_err(of_query)?;
        response.add(result).map_err(of_query)?;
    }
    let compute = parts.engine.resources().compute.for_client(context.client);
    let compressed = compute.run(move || response.compressed()).await;
    let body = compressed.map_err(QueryError::from).flatten().map_err(of_query)?;
    Ok(Reply::protobuf(body).with_header(CONTENT_ENCODING, SNAPPY))
}

/// The series of a query, encoded. Unknown names select none.
async fn result(
    parts: &ApiParts,
    context: RequestContext,
    query: &ReadQuery<'_>,
    selection: Selection,
) -> Result<ReplyBody, QueryError> {
    let Selection {
        mut metrics,
        filters,
        tests,
    } = selection;
    let encoder = Arc::new(SeriesEncoder { tests });
    let start_ms = query.start_ms.max(0);
    while !metrics.is_empty() && start_ms <= query.end_ms {
        let spec = QuerySpec {
            start_ms,
            end_ms: query.end_ms,
            sub_queries: metrics.iter().map(|metric| sub_query(metric, &filters)).collect(),
            duplicates: parts.query_rules.duplicates(),
            max_scanned_points: None,
            quirks: Quirks::NONE,
            skip_damaged_rows: false,
            with_surroundings: false,
            annotations: AnnotationSelection::default(),
        };
        match run(&parts.engine, context, spec, Arc::clone(&encoder)).await {
            // Names are resolved before anything is read.
            Err(QueryError::UnknownName { name, .. }) if metrics.contains(&name) => {
                metrics.retain(|metric| *metric != name);
            }
            // A tag key or a tag value of all metrics.
            Err(QueryError::UnknownName { .. }) => break,
            result => return result,
        }
    }
    Ok(ReplyBody::default())
}

/// All points of the series of a metric, each for itself.
fn sub_query(metric: &str, filters: &[TagFilter]) -> SubQuery {
    SubQuery {
        source: Source::Metric(metric.to_owned()),
        filter: SeriesFilter {
            tags: filters.to_vec(),
            explicit_tags: false,
        },
        aggregator: Aggregator::NONE,
        downsample: None,
        rate: None,
        histogram: None,
        rollup: RollupRequest::default(),
    }
}

/// The whole result of a query.
async fn run(
    engine: &Engine,
    context: RequestContext,
    spec: QuerySpec,
    encoder: Arc<SeriesEncoder>,
) -> Result<ReplyBody, QueryError> {
    let mut deliveries = engine.run_encoded(spec, context, encoder).await;
    let mut series = ReplyBody::default();
    while let Next::Groups(groups, held) = next_of(&mut deliveries).await? {
        series.extend(ReplyBody::from_parts(groups, held));
    }
    Ok(series)
}

/// A `ReadResponse`, with its memory.
#[derive(Default)]
struct Response {
    message: Vec<u8>,
    held: Option<Held>,
}

impl Response {
    /// Adds a result.
    fn add(&mut self, result: ReplyBody) -> Result<(), QueryError> {
        let (parts, held) = result.into_parts();
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        // Each query has a budget of its own: its memory is released when the copy is made.
        let (mut own, other) = match self.held.take() {
            Some(own) => (Some(own), held),
            None => (held, None),
        };
        if let Some(own) = &mut own {
            own.grow(bytes as u64)?;
        }
        encode::begin(&mut self.message, FIRST_MESSAGE, bytes);
        self.message.reserve_exact(bytes);
        for part in parts {
            self.message.extend_from_slice(&part);
        }
        drop(other);
        if let Some(own) = &mut own {
            own.shrink_to(self.message.len() as u64);
        }
        self.held = own;
        Ok(())
    }

    /// The whole message in Snappy's block format.
    fn compressed(mut self) -> Result<ReplyBody, QueryError> {
        if let Some(held) = &mut self.held {
            held.grow(snap::raw::max_compress_len(self.message.len()) as u64)?;
        }
        let compressed = snap::raw::Encoder::new().compress_vec(&self.message);
        let compressed = compressed.map_err(|error| QueryError::Internal {
            detail: format!("the response cannot be compressed: {error}"),
        })?;
        let Some(mut held) = self.held else {
            return Ok(compressed.into());
        };
        held.shrink_to(compressed.len() as u64);
        Ok(ReplyBody::from_parts(vec![compressed.into()], held))
    }
}
