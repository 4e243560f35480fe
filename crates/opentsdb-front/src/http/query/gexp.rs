//! `/api/query/gexp`: evaluates expressions in call syntax, `exp=scale(sum:m,2)`; a request may have several.
//!
//! The response has the form of `/api/query` and contains the series of each expression. Series that a function
//! combined have an empty list `annotations`.
//!
//! Functions see the points around the range, as far as the scan reads them; the results are clipped to the range.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `Expressions.parseExpressions`.

use jiff::tz::TimeZone;
use oxtsdb_query::expression::call::{self, Call, CallError, CallSyntaxError};
use oxtsdb_query::expression::series::Origin;
use oxtsdb_query::expression::{Series, Work, run};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Group, GroupEncoder as _, Held, QueryError, Quirks};
use oxtsdb_schema::UidWidths;

use super::query_echo::TagkUids;
use super::render::{GroupRenderer, ResponseWriter};
use super::{failure, parse, query_echo};
use crate::http::api_request::ApiRequest;
use crate::http::body::ReplyBody;
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;

/// Most expressions of a request.
const MAX_EXPRESSIONS: usize = 100;

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        parameters,
        context: request,
        ..
    } = request;
    let (engine, rules) = (&parts.engine, parts.query_rules);
    let mut calls = Vec::new();
    let sub_queries = || {
        let (parsed, sub_queries) = parse_calls(parameters)?;
        calls = parsed;
        Ok(sub_queries)
    };
    let mut query = parse::from_parameters_and(parameters, rules, &TimeZone::UTC, now_ms(), sub_queries)?;
    let uids = if query.output.query {
        let uids = query_echo::tagk_uids(engine, &query.spec).await;
        uids.map_err(|error| failure::query_error(&error))?
    } else {
        TagkUids::default()
    };
    let renderer = GroupRenderer::new(&query, &uids);
    let mut writer = ResponseWriter::new(&query);
    query.spec.with_surroundings = query.spec.quirks.expressions_see_surroundings;
    let range_ms = (query.spec.start_ms, query.spec.end_ms);
    let spec = query.spec;
    let resources = engine.resources();
    let admitted = engine
        .admit(request, spec.description(), spec.max_scanned_points)
        .await?;
    let context = admitted.context().clone();
    let evaluated = async {
        let mut admitted = admitted;
        let query_result = run::series(engine, &spec, &mut admitted).await?;
        let (results, held) = (query_result.series, query_result.held);
        let evaluate = move |cancelled: &_| {
            let mut work = Work::new(Quirks::OPENTSDB, range_ms, cancelled).holding(held);
            let mut all = Vec::new();
            for call in &calls {
                for mut series in call::evaluate(call, &results, &mut work)? {
                    series.points = work.in_range(series.points);
                    all.push(series);
                }
            }
            Ok::<_, CallError>((all, work.into_held()))
        };
        let computed = run::computed(&resources.expressions, &mut admitted, evaluate).await;
        let (computed, held) = computed.map_err(|error| call_error(&error))?;
        Ok::<_, HttpError>((
            computed,
            held,
            query_result.statistics,
            query_result.global_annotations,
        ))
    };
    let (computed, held, statistics, global_annotations) = context.run(evaluated).await?;
    let widths = engine.storage().layout.widths;
    let with_annotations = !parameters.has("no_annotations");
    let mut groups = Vec::with_capacity(computed.len());
    for (number, series) in computed.into_iter().enumerate() {
        series.check().map_err(HttpError::from)?;
        groups.push(group(number, series, &widths, with_annotations)?);
    }
    let mut body = ReplyBody::default();
    if !groups.is_empty() {
        // The query may have started again, with another budget than the one that it was admitted with.
        let budget = held.as_ref().map_or(context.budget(), Held::budget).clone();
        let render = move || {
            let mut groups = groups.into_iter().map(|group| (group, None));
            let rendered = renderer.encode(&mut groups, global_annotations.as_deref(), &budget);
            // The groups are rendered.
            drop(held);
            rendered
        };
        let rendered = context.compute(&resources.compute).run(render).await;
        let rendered = rendered.map_err(QueryError::from);
        let (parts, held) = rendered.flatten()?;
        body.extend(writer.groups(parts, held));
    }
    body.extend(writer.end(&statistics));
    Ok(Reply::json(body))
}

/// POST, which OpenTSDB does not implement either.
pub(crate) async fn post(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(HttpError::bad_request(
        "Expressions are asked for with GET and the parameter exp",
    ))
}

/// Parses the calls of a request and returns them with the sub-queries that they contain.
fn parse_calls(parameters: &Parameters) -> Result<(Vec<Call>, Vec<String>), HttpError> {
    let texts: Vec<&str> = parameters.all("exp").collect();
    if texts.len() > MAX_EXPRESSIONS {
        return Err(HttpError::bad_request(format!(
            "request has {} expressions, at most {MAX_EXPRESSIONS} are allowed",
            texts.len()
        )));
    }
    let mut sub_queries = Vec::new();
    let calls: Result<Vec<Call>, _> = texts
        .into_iter()
        .map(|text| call::parse(text, &mut sub_queries))
        .collect();
    Ok((calls.map_err(|error| syntax_error(&error))?, sub_queries))
}

/// A series in the form in which `/api/query` renders groups.
fn group(
    number: usize,
    series: Series,
    widths: &UidWidths,
    with_annotations: bool,
) -> Result<Group, HttpError> {
    // In OpenTSDB a series that is combined with an aliased one has no name.
    let metric = series.name().ok_or_else(|| {
        let width = widths.metric.bytes();
        let message = format!("Wrong id.length = 0 which is != {width} required for 'metrics'");
        HttpError::bad_request(message.clone()).with_details(message)
    })?;
    let with_names = series.alias.is_none();
    let tags = series.tags.values().filter(|_| with_names);
    let aggregate_tags = series.aggregate_tags.values().filter(|_| with_names);
    Ok(Group {
        rollup: None,
        number,
        is_whole: true,
        query: series.query,
        metric,
        part: None,
        tags: tags.map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        aggregate_tags: aggregate_tags.cloned().collect(),
        tsuids: match series.origin {
            Origin::Query => series.tsuids,
            Origin::Combined { .. } | Origin::OfCombined => Vec::new(),
        },
        annotations: match series.origin {
            Origin::Query => series.annotations,
            Origin::Combined { .. } | Origin::OfCombined => with_annotations.then(Vec::new),
        },
        points: series.points,
    })
}

/// The response to a syntax error: 400, where OpenTSDB responds 500.
fn syntax_error(error: &CallSyntaxError) -> HttpError {
    HttpError::bad_request(error.to_string())
}

/// The error of a call that has no result.
fn call_error(error: &CallError) -> HttpError {
    match error {
        CallError::Argument(message) => HttpError::bad_request(message.clone()).with_details(message.clone()),
        CallError::Expression(error) => failure::expression_error(error),
    }
}

#[cfg(test)]
mod tests;
