//! `/q` in its ascii form: one line for each point.
//!
//! ```text
//!   m 1356998400 18 host=web01 dc=lga
//! ```
//!
//! The query string is that of `/api/query`; `tz` is the time zone of its dates. Points around the range are
//! printed too, as far as the scan reads them, because OpenTSDB clips them only when it draws. Graphs are not
//! implemented: requests for them are rejected.
//!
//! Source: OpenTSDB 2.4, `GraphHandler.respondAsciiQuery`.

use std::io::Write as _;

use http::StatusCode;
use jiff::tz::TimeZone;
use oxtsdb_schema::java;

use super::rules::QueryRules;
use super::{failure, parse};
use crate::http::api_request::ApiRequest;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use oxtsdb_query::language::time::{find_zone, now_ms};
use oxtsdb_query::{Engine, Group, Number, QueryError, QuerySpec, RequestContext};

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context,
        ..
    } = request;
    let text = run(&parts.engine, parts.query_rules, context, parameters).await?;
    Ok(Reply::text(text))
}

async fn run(
    engine: &Engine,
    rules: QueryRules,
    request: RequestContext,
    parameters: &Parameters,
) -> Result<ReplyBody, HttpError> {
    if !parameters.has("ascii") {
        let message = "Graphs are not drawn here; with the parameter ascii the points are printed";
        return Err(HttpError::new(StatusCode::NOT_IMPLEMENTED, message));
    }
    let zone = match parameters.get("tz").filter(|zone| !zone.is_empty()) {
        Some(name) => find_zone(name).map_err(|error| HttpError::bad_request(error.to_string()))?,
        None => TimeZone::UTC,
    };
    let query = parse::from_parameters(parameters, rules, &zone, now_ms())?;
    let spec = QuerySpec {
        with_surroundings: true,
        annotations: oxtsdb_query::AnnotationSelection::default(),
        ..query.spec
    };
    let of_query = |error: QueryError| failure::of_query(&error);
    let collected = engine.collect(spec, request).await.map_err(of_query)?;
    let render = move || {
        let mut body = BodyWriter::new();
        body.hold_of(collected.held.budget())?;
        for group in &collected.groups {
            write(&mut body, group)?;
        }
        body.finish()
    };
    let rendered = engine.resources().compute.run(render).await;
    rendered.map_err(QueryError::from).flatten().map_err(of_query)
}

fn write(body: &mut BodyWriter, group: &Group) -> Result<(), QueryError> {
    let tags: String = group
        .tags
        .iter()
        .map(|(key, value)| format!(" {key}={value}"))
        .collect();
    for (time_ms, value) in group.points.iter() {
        let out = body.out();
        let _ = write!(out, "{} {} ", group.metric, time_ms / 1000);
        match value {
            Number::Int(int) => {
                let _ = write!(out, "{int}");
            }
            Number::Double(double) => java::write_double(out, double),
        }
        out.extend_from_slice(tags.as_bytes());
        out.push(b'\n');
        body.roll()?;
    }
    Ok(())
}
