//! `/api/query/gexp`: expressions in the form of calls, `exp=scale(sum:m,2)`, several in a request.
//!
//! The answer is that of `/api/query`, with the series of each expression. What is combined has
//! `annotations`, which are empty.
//!
//! Points around the range count as far as they are read, and are cut off at the end.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.handleQuery`, `Expressions.parseExpressions`.

use http::StatusCode;
use jiff::tz::TimeZone;
use oxtsdb_schema::UidWidths;

use super::asked::TagkUids;
use super::{asked, failure, parse, render};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use oxtsdb_query::expression::call::{self, Call, CallError, CallSyntaxError};
use oxtsdb_query::expression::series::Origin;
use oxtsdb_query::expression::{Series, Work, run};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Group, Quirks};

/// Expressions of a request.
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
    let questions = || {
        let (read, questions) = parse_calls(parameters)?;
        calls = read;
        Ok(questions)
    };
    let mut question = parse::from_parameters_and(parameters, rules, &TimeZone::UTC, now_ms(), questions)?;
    let uids = if question.output.query {
        let found = asked::tagk_uids(engine, &question.spec).await;
        found.map_err(|error| failure::of_query(&error))?
    } else {
        TagkUids::default()
    };
    let mut answer = render::Answer::new(&question, &uids);
    question.spec.with_surroundings = question.spec.quirks.expressions_see_surroundings;
    let range_ms = (question.spec.start_ms, question.spec.end_ms);
    let spec = question.spec;
    let resources = engine.resources();
    let admitted = engine
        .admit(request, spec.description(), spec.max_scanned_points)
        .await?;
    let context = admitted.context().clone();
    let evaluated = async {
        let mut admitted = admitted;
        let found = run::series(engine, &spec, &mut admitted).await?;
        let (results, held) = (found.series, found.held);
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
        let (computed, held) = computed.map_err(|error| of_call(&error))?;
        Ok::<_, HttpError>((computed, held, found.statistics))
    };
    let (computed, held, statistics) = context.run(evaluated).await?;
    if let Some(held) = &held {
        answer.hold_of(held.budget())?;
    }
    let widths = engine.storage().layout.widths;
    let with_annotations = !parameters.has("no_annotations");
    for (number, series) in computed.into_iter().enumerate() {
        let annotations = with_annotations && series.origin != Origin::Query;
        series.check().map_err(HttpError::from)?;
        let group = group(number, series, &widths)?;
        let added = answer.add_in(&resources.compute, group, annotations).await;
        answer = added?;
    }
    Ok(Reply::json(answer.finish(&statistics)?))
}

/// POST, which OpenTSDB has not either.
pub(crate) async fn post(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(HttpError::bad_request(
        "Expressions are asked for with GET and the parameter exp",
    ))
}

/// The calls of a request, and the questions in them.
fn parse_calls(parameters: &Parameters) -> Result<(Vec<Call>, Vec<String>), HttpError> {
    let texts: Vec<&str> = parameters.all("exp").collect();
    if texts.len() > MAX_EXPRESSIONS {
        return Err(HttpError::bad_request(format!(
            "request has {} expressions, at most {MAX_EXPRESSIONS} are allowed",
            texts.len()
        )));
    }
    let mut questions = Vec::new();
    let calls: Result<Vec<Call>, _> = texts
        .into_iter()
        .map(|text| call::parse(text, &mut questions))
        .collect();
    Ok((calls.map_err(|error| of_syntax(&error))?, questions))
}

/// A series as `/api/query` shows groups.
fn group(number: usize, series: Series, widths: &UidWidths) -> Result<Group, HttpError> {
    // In OpenTSDB a series that was combined with an aliased one has no name.
    let metric = series.name().ok_or_else(|| {
        let width = widths.metric.bytes();
        let message = format!("Wrong id.length = 0 which is != {width} required for 'metrics'");
        HttpError::bad_request(message.clone()).with_details(message)
    })?;
    let with_names = series.alias.is_none();
    let tags = series.tags.values().filter(|_| with_names);
    let aggregate_tags = series.aggregate_tags.values().filter(|_| with_names);
    Ok(Group {
        number,
        is_whole: true,
        query: series.query,
        metric,
        tags: tags.map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        aggregate_tags: aggregate_tags.cloned().collect(),
        tsuids: match series.origin {
            Origin::Query => series.tsuids,
            Origin::Combined { .. } | Origin::OfCombined => Vec::new(),
        },
        points: series.points,
    })
}

/// Texts that are no calls: 500, as from OpenTSDB.
fn of_syntax(error: &CallSyntaxError) -> HttpError {
    let status = match error {
        CallSyntaxError::Syntax { .. } | CallSyntaxError::UnknownFunction { .. } => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        CallSyntaxError::Depth | CallSyntaxError::Length { .. } => StatusCode::BAD_REQUEST,
    };
    HttpError::new(status, error.to_string())
}

/// Calls without a result.
fn of_call(error: &CallError) -> HttpError {
    match error {
        CallError::Argument(message) => HttpError::bad_request(message.clone()).with_details(message.clone()),
        CallError::Expression(error) => failure::of_expression(error),
    }
}

#[cfg(test)]
mod tests;
