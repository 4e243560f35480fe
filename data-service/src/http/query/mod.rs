//! `/api/query`: runs queries in OpenTSDB's JSON or query-string form and returns OpenTSDB's JSON.
//!
//! Each group is rendered when the engine emits it and then freed; only its JSON stays in memory, counted
//! against the query's budget. The response starts after the last group, so an error in the middle of the scan
//! still decides the HTTP status.
//!
//! `showStats` and `showSummary` report this server's own statistics, which are fewer than OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `HttpJsonSerializer.formatQueryAsyncV1`.

pub(crate) mod ascii;
pub(crate) mod bounded;
pub(crate) mod exp;
pub(crate) mod failure;
pub(in crate::http) mod flag;
pub(crate) mod gexp;
pub(crate) mod last;
mod parse;
mod query_echo;
mod render;
pub(crate) mod rules;
pub(in crate::http) mod scalar;

use futures::StreamExt as _;
use jiff::tz::TimeZone;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;
use oxtsdb_query::Delivery;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::plan::tsuids::check_tsuid;
use oxtsdb_query::{Engine, Frame, QueryError, RequestContext, Source};

use parse::ParsedQuery;
use query_echo::TagkUids;

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        ..
    } = request;
    // A query string has no time zone.
    let query = parse::from_parameters(parameters, parts.query_rules, &TimeZone::UTC, now_ms())?;
    run(&parts.engine, context, query).await
}

/// POST.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let (engine, rules, parameters) = (&parts.engine, parts.query_rules, parameters.clone());
    let parse = move |content: &[u8]| parse::from_json(content, &parameters, rules, now_ms());
    let query = parsed(&mut body, &engine.resources().compute, parse).await?;
    run(engine, context, query).await
}

/// DELETE, which OpenTSDB implements only where deleting is enabled.
pub(crate) async fn delete(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let details = "Deleting data is not enabled (tsd.http.query.allow_delete=false)";
    Err(HttpError::bad_request("Bad request").with_details(details))
}

async fn run(engine: &Engine, request: RequestContext, mut query: ParsedQuery) -> Result<Reply, HttpError> {
    // A TSUID whose bytes are no tags matches no series, as in OpenTSDB; gRPC rejects it.
    for sub_query in &mut query.spec.sub_queries {
        if let Source::Tsuids(tsuids) = &mut sub_query.source {
            tsuids.retain(|tsuid| check_tsuid(tsuid, &engine.storage().layout).is_ok());
        }
    }
    let of_query = |error: QueryError| failure::of_query(&error);
    let uids = if query.output.query {
        query_echo::tagk_uids(engine, &query.spec)
            .await
            .map_err(of_query)?
    } else {
        TagkUids::default()
    };
    let mut response = render::ResponseWriter::new(&query, &uids);
    let compute = &engine.resources().compute;
    let mut deliveries = engine.run_whole(query.spec, request);
    while let Some(delivery) = deliveries.next().await {
        let Delivery { frame, held } = delivery.map_err(of_query)?;
        response.hold_of(held.budget()).map_err(of_query)?;
        match frame {
            Frame::Group(group) => {
                response = response.add_in(compute, group).await.map_err(of_query)?;
            }
            Frame::GlobalAnnotations(annotations) => {
                response.set_global(&annotations).map_err(of_query)?;
            }
            Frame::More { .. } | Frame::Annotations { .. } | Frame::Done { .. } => {}
            Frame::Statistics(statistics) => {
                return Ok(Reply::json(response.finish(&statistics).map_err(of_query)?));
            }
        }
        // The body holds the rendered group.
        drop(held);
    }
    // Without the last frame the response is incomplete.
    Err(HttpError::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        "the query ended without its last frame",
    ))
}

#[cfg(test)]
mod annotation_tests;
#[cfg(test)]
mod tests;
