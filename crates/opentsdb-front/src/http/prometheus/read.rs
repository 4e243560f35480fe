//! Prometheus' remote read: `/api/v1/read`.
//!
//! ```text
//!   ReadRequest ─► matchers ─► metrics and filters ─► query of each series ─► all tests ─┬► SAMPLES: one message, in Snappy
//!                                                                                        └► STREAMED_XOR_CHUNKS: frames
//! ```
//!
//! Filters of OpenTSDB select the series of a request as far as they can: a filter requires its tag, a matcher also passes
//! series without the label. So each series that a query returns is tested by all matchers.
//!
//! A response has the first type that the sender accepts ([`samples`], [`chunks`]). Both are collected before they are sent,
//! within the memory of the query: chunks are sent in the order of their series' labels, which no query returns its series in.
//! Chunks of regular points take about a tenth of the memory of samples, and the sender reads them series by series.
//!
//! Source: <https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/>; `prompb/remote.proto` and
//! `storage/remote/codec.go` of Prometheus 3.

mod chunks;
mod labels;
mod matcher;
mod request;
mod samples;
#[cfg(test)]
mod tests;
mod xor;

use std::sync::Arc;

use http::header::{CONTENT_ENCODING, HeaderValue};
use oxtsdb_query::{
    Aggregator, AnnotationSelection, Engine, GroupEncoder, QueryError, QuerySpec, Quirks, RequestContext,
    RollupRequest, SeriesFilter, Source, SubQuery, TagFilter,
};

use self::chunks::ChunkEncoder;
use self::matcher::{Selection, SeriesTests};
use self::request::{ReadQuery, ResponseType};
use self::samples::SampleEncoder;
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
    let (queries, response_type) = request::decode(&body.bytes)?;
    let mut results = Vec::with_capacity(queries.len());
    for (index, query) in queries.iter().enumerate() {
        let selection = Selection::new(&query.matchers, &map)?;
        let result = result(
            parts,
            context,
            query,
            selection,
            |tests| -> Arc<dyn GroupEncoder> {
                match response_type {
                    ResponseType::Samples => Arc::new(SampleEncoder(tests)),
                    ResponseType::Chunks => Arc::new(ChunkEncoder::new(tests, index)),
                }
            },
        );
        results.push(result.await.map_err(of_query)?);
    }
    let compute = parts.engine.resources().compute.for_client(context.client);
    let response = compute.run(move || match response_type {
        ResponseType::Samples => samples::response(results),
        ResponseType::Chunks => chunks::response(results),
    });
    let body = response
        .await
        .map_err(QueryError::from)
        .flatten()
        .map_err(of_query)?;
    Ok(match response_type {
        ResponseType::Samples => Reply::protobuf(body).with_header(CONTENT_ENCODING, SNAPPY),
        ResponseType::Chunks => Reply::binary(body, chunks::CONTENT_TYPE),
    })
}

/// The series of a query, encoded. Unknown names select none.
async fn result(
    parts: &ApiParts,
    context: RequestContext,
    query: &ReadQuery<'_>,
    selection: Selection,
    encoder: impl FnOnce(SeriesTests) -> Arc<dyn GroupEncoder>,
) -> Result<ReplyBody, QueryError> {
    let Selection {
        mut metrics,
        filters,
        tests,
    } = selection;
    let encoder = encoder(tests);
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
            with_infinities: false,
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
    encoder: Arc<dyn GroupEncoder>,
) -> Result<ReplyBody, QueryError> {
    let mut deliveries = engine.run_encoded(spec, context, encoder).await;
    let mut series = ReplyBody::default();
    while let Next::Groups(groups, held) = next_of(&mut deliveries).await? {
        series.extend(ReplyBody::from_parts(groups, held));
    }
    Ok(series)
}
