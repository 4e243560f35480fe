//! `/api/query`: runs queries in OpenTSDB's JSON or query-string form and returns OpenTSDB's JSON.
//!
//! Groups are rendered by the threads that compute them and then freed; only their JSON stays in memory, counted against
//! the query's budget. A result of up to 256 KiB is sent as a whole, with its length. For a larger result, the status
//! and the first part are sent at that size, and the rest in chunks, as the client reads it; a later error ends the
//! connection before the end of the body. With `--http-buffer-results` every result is sent as a whole, so an error
//! always decides the status.
//!
//! With `Accept: application/vnd.apache.arrow.stream` the result is a table in Arrow's format, in the same pieces: see `arrow`.
//!
//! `showStats` and `showSummary` report this server's own statistics, which are fewer than OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `HttpJsonSerializer.formatQueryAsyncV1`.

mod arrow;
pub(crate) mod bounded;
mod delete;
pub(crate) mod exp;
pub(crate) mod failure;
pub(in crate::http) mod flag;
pub(crate) mod gexp;
pub(crate) mod last;
pub(in crate::http) mod parse;
mod query_echo;
mod render;
pub(crate) mod rules;
pub(in crate::http) mod scalar;

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use http::StatusCode;
use jiff::tz::TimeZone;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Delivery, Held, Statistics};
use oxtsdb_query::{Frame, QueryError, RequestContext, Source, check_tsuid};
use oxtsdb_server::telemetry::used;

use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::ReplyBody;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;
use parse::ParsedQuery;
use query_echo::TagkUids;
use render::{GroupRenderer, ResponseWriter};

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        accepts_arrow,
        ..
    } = request;
    // As in OpenTSDB, which ignores it where deletes are not allowed.
    let overrides = parameters
        .get("method_override")
        .is_some_and(|method| method.eq_ignore_ascii_case("delete"));
    // A query string has no time zone.
    let mut query = parse::from_parameters(parameters, parts.query_rules, &TimeZone::UTC, now_ms())?;
    query.delete = overrides && parts.query_rules.allow_delete;
    run(parts, context, query, accepts_arrow).await
}

/// POST.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        accepts_arrow,
        mut body,
        ..
    } = request;
    let (rules, parameters) = (parts.query_rules, parameters.clone());
    let parse = move |content: &[u8]| parse::from_json(content, &parameters, rules, now_ms());
    let query = parsed(&mut body, &parts.engine.resources().compute, parse).await?;
    run(parts, context, query, accepts_arrow).await
}

/// DELETE: runs a query by its query string and deletes its points.
pub(crate) async fn delete(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        accepts_arrow,
        ..
    } = request;
    if !parts.query_rules.allow_delete {
        return Err(failure::delete_not_allowed());
    }
    let mut query = parse::from_parameters(parameters, parts.query_rules, &TimeZone::UTC, now_ms())?;
    query.delete = true;
    run(parts, context, query, accepts_arrow).await
}

/// DELETE of endpoints that compute from queries.
pub(crate) async fn reject_delete(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(failure::delete_not_allowed())
}

async fn run(
    parts: &ApiParts,
    request: RequestContext,
    mut query: ParsedQuery,
    is_arrow: bool,
) -> Result<Reply, HttpError> {
    let engine = &parts.engine;
    if query.delete && !parts.query_rules.may_delete {
        let message = "the caller has no right to delete points by `/api/query` (administer)";
        return Err(HttpError::new(StatusCode::FORBIDDEN, message));
    }
    // A TSUID with bytes that are no tags matches no series, as in OpenTSDB; gRPC rejects it.
    for sub_query in &mut query.spec.sub_queries {
        if let Source::Tsuids(tsuids) = &mut sub_query.source {
            tsuids.retain(|tsuid| check_tsuid(tsuid, &engine.storage().layout).is_ok());
        }
    }
    if !query.delete {
        return reply(parts, request, query, is_arrow, parts.buffers_results).await;
    }
    let deletions = delete::deletions(&query.spec)?;
    // Complete before anything is deleted: a query that fails deletes nothing.
    let reply = reply(parts, request, query, is_arrow, true).await?;
    for deletion in deletions {
        delete::run(engine, request, deletion).await?;
    }
    Ok(reply)
}

/// The response to a query.
async fn reply(
    parts: &ApiParts,
    request: RequestContext,
    query: ParsedQuery,
    is_arrow: bool,
    buffers_results: bool,
) -> Result<Reply, HttpError> {
    let engine = &parts.engine;
    let of_query = |error: QueryError| failure::query_error(&error);
    if is_arrow {
        let body = arrow::body(parts, request, query, buffers_results).await;
        return body.map(Reply::arrow).map_err(of_query);
    }
    let uids = if query.output.query {
        query_echo::tagk_uids(engine, &query.spec)
            .await
            .map_err(of_query)?
    } else {
        TagkUids::default()
    };
    let renderer = Arc::new(GroupRenderer::new(&query, &uids));
    let writer = ResponseWriter::new(&query);
    let deliveries = engine.run_encoded(query.spec, request, renderer).await;
    let pieces = stream::try_unfold(Some((deliveries, writer)), async |state| {
        let Some((mut deliveries, mut writer)) = state else {
            return Ok(None);
        };
        Ok(Some(match next_of(&mut deliveries).await? {
            Next::Groups(parts, held) => (writer.groups(parts, held), Some((deliveries, writer))),
            Next::End(statistics) => (writer.end(&statistics), None),
        }))
    });
    let body = ReplyBody::from_pieces(pieces, buffers_results, "a query").await;
    body.map(Reply::json).map_err(of_query)
}

/// A piece of an encoded result.
pub(in crate::http) enum Next {
    /// Groups, one or more, and their memory.
    Groups(Vec<Bytes>, Held),
    /// The end of the result.
    End(Statistics),
}

/// The next piece of an encoded result. Notes at the end what the query has read.
///
/// # Errors
///
/// The errors of the query, and if it ends without its last frame.
pub(in crate::http) async fn next_of(
    deliveries: &mut (impl Stream<Item = Result<Delivery, QueryError>> + Unpin),
) -> Result<Next, QueryError> {
    while let Some(delivery) = deliveries.next().await {
        let Delivery { frame, held } = delivery?;
        match frame {
            Frame::Encoded(groups) => return Ok(Next::Groups(groups.parts, held)),
            Frame::Statistics(statistics) => {
                used(statistics.rows, statistics.points);
                return Ok(Next::End(statistics));
            }
            // Of other forms of a result.
            Frame::Group(_)
            | Frame::More { .. }
            | Frame::Annotations { .. }
            | Frame::GlobalAnnotations(_)
            | Frame::Done { .. } => {}
        }
    }
    Err(incomplete())
}

/// Error of a result without its last frame.
fn incomplete() -> QueryError {
    QueryError::Internal {
        detail: "the query ended without its last frame".to_owned(),
    }
}

#[cfg(test)]
mod annotation_tests;
#[cfg(test)]
mod histogram_tests;
#[cfg(test)]
mod tests;
