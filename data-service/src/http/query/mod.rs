//! `/api/query`: questions in OpenTSDB's JSON or in a query string, answers in its JSON.
//!
//! The status is decided when the whole answer is there, so an error in the middle is still an
//! error for the client. Groups are written as the engine brings them; what is kept is the JSON.
//!
//! `showStats` and `showSummary` tell this server's own figures, which are fewer than OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `HttpJsonSerializer.formatQueryAsyncV1`.

pub(crate) mod ascii;
mod asked;
pub(crate) mod bounded;
pub(crate) mod exp;
pub(crate) mod failure;
mod flag;
pub(crate) mod gexp;
pub(crate) mod last;
mod parse;
mod render;
pub(crate) mod rules;
mod scalar;

use futures::StreamExt as _;
use jiff::tz::TimeZone;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json_body::parsed;
use crate::http::reply::Reply;
use oxtsdb_query::exec::frame::Delivery;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::plan::tsuids::check_tsuid;
use oxtsdb_query::{Engine, Frame, QueryError, RequestContext, Source};

use asked::TagkUids;
use parse::Question;

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        ..
    } = request;
    // A query string has no time zone.
    let question = parse::from_parameters(parameters, parts.query_rules, &TimeZone::UTC, now_ms())?;
    answer(&parts.engine, context, question).await
}

/// POST.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        mut body,
    } = request;
    let (engine, rules, parameters) = (&parts.engine, parts.query_rules, parameters.clone());
    let parse = move |content: &[u8]| parse::from_json(content, &parameters, rules, now_ms());
    let question = parsed(&mut body, &engine.resources().compute, parse).await?;
    answer(engine, context, question).await
}

/// DELETE, which OpenTSDB has only where deleting is enabled.
pub(crate) async fn delete(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let details = "Deleting data is not enabled (tsd.http.query.allow_delete=false)";
    Err(HttpError::bad_request("Bad request").with_details(details))
}

async fn answer(
    engine: &Engine,
    request: RequestContext,
    mut question: Question,
) -> Result<Reply, HttpError> {
    // TSUIDs with bytes that make no tags are of no series; gRPC refuses them.
    for sub_query in &mut question.spec.sub_queries {
        if let Source::Tsuids(tsuids) = &mut sub_query.source {
            tsuids.retain(|tsuid| check_tsuid(tsuid, &engine.storage().layout).is_ok());
        }
    }
    let of_query = |error: QueryError| failure::of_query(&error);
    let uids = if question.output.query {
        asked::tagk_uids(engine, &question.spec).await.map_err(of_query)?
    } else {
        TagkUids::default()
    };
    let mut answer = render::Answer::new(&question, &uids);
    let compute = &engine.resources().compute;
    let mut deliveries = engine.run_whole(question.spec, request);
    while let Some(delivery) = deliveries.next().await {
        let Delivery { frame, held } = delivery.map_err(of_query)?;
        answer.hold_of(held.budget()).map_err(of_query)?;
        match frame {
            Frame::Group(group) => {
                answer = answer.add_in(compute, group, false).await.map_err(of_query)?;
            }
            Frame::More { .. } | Frame::Done { .. } => {}
            Frame::Statistics(statistics) => {
                return Ok(Reply::json(answer.finish(&statistics).map_err(of_query)?));
            }
        }
        // The group is in the body now.
        drop(held);
    }
    // An answer without its last frame is not whole.
    Err(HttpError::new(
        http::StatusCode::INTERNAL_SERVER_ERROR,
        "the query ended without its last frame",
    ))
}

#[cfg(test)]
mod tests;
