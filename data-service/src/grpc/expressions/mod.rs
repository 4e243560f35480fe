//! `DataService.QueryExpressions`.

mod convert;
mod frames;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{QueryExpressionsRequest, QueryExpressionsResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::query::of_query;
use crate::query::expression::formulas::{Input, evaluate};
use crate::query::expression::{ExpressionError, Series, Work, run};
use crate::query::time::now_ms;
use crate::query::{Engine, QueryError, QuerySpec, Resource, Statistics};

use convert::Question;

type Answer = BoxStream<'static, Result<QueryExpressionsResponse, Status>>;

/// Answers expressions. The deadline of the call ends all of it, and so does a client that goes away.
pub(super) async fn query_expressions(
    engine: &Engine,
    request: Request<QueryExpressionsRequest>,
) -> Result<Response<Answer>, Status> {
    let started = Instant::now();
    let deadline = deadline_of(request.extensions());
    let request = request.into_inner();
    let question = convert::question(&request, now_ms())?;
    let table = engine.table().to_string();
    let failed = |error: ExpressionError| of_expression(&error, &table);
    let spec = question.spec();
    let read = read(engine, &question, &spec, deadline).await;
    let (inputs, mut statistics) = read.map_err(|error| failed(error.into()))?;
    let quirks = question.quirks;
    let range_ms = (question.start_ms, question.end_ms);
    let outputs = question.outputs.clone();
    let compute = move |cancelled: &_| {
        let mut work = Work::new(quirks, range_ms, cancelled);
        let results = evaluate(&inputs, &question.formulas, &mut work)?;
        // A name can be asked for more than once.
        let of_output = |name: &String| {
            let formula = question.formulas.iter().position(|formula| formula.name == *name);
            let input = || inputs.iter().find(|input| input.name == *name);
            let mut series = match formula.and_then(|place| results.get(place)) {
                Some(outcome) => outcome.clone()?,
                None => input().map(|input| input.series.clone()).unwrap_or_default(),
            };
            for series in &mut series {
                series.points = work.in_range(std::mem::take(&mut series.points));
            }
            Ok((name.clone(), series))
        };
        let lists: Result<Vec<(String, Vec<Series>)>, ExpressionError> =
            outputs.iter().map(of_output).collect();
        lists
    };
    let registration = engine.running().register(&spec, Arc::default());
    let lists = run::computed(registration, compute, deadline)
        .await
        .map_err(failed)?;
    let points = lists
        .iter()
        .flat_map(|(_, list)| list)
        .map(|series| series.points.len() as u64);
    statistics.points_sent = points.sum();
    statistics.elapsed = started.elapsed();
    let messages = frames::messages(lists, statistics, request.frame_points, request.tsuids);
    Ok(Response::new(stream::iter(messages.map(Ok)).boxed()))
}

/// The series of the inputs. Those that are moved by the same time are one query; limits are those of all.
async fn read(
    engine: &Engine,
    question: &Question,
    spec: &QuerySpec,
    deadline: Option<Instant>,
) -> Result<(Vec<Input>, Statistics), QueryError> {
    let query_tags = run::query_tags(engine, &spec.sub_queries, deadline).await?;
    let mut by_shift: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, input) in question.inputs.iter().enumerate() {
        by_shift.entry(input.shift_ms).or_default().push(place);
    }
    let limits = engine.limits().with_request(spec.max_scanned_points);
    let mut found: Vec<Vec<Series>> = vec![Vec::new(); question.inputs.len()];
    let mut total = Statistics::default();
    for (shift_ms, places) in by_shift {
        let shifted = QuerySpec {
            start_ms: spec.start_ms - shift_ms,
            end_ms: spec.end_ms - shift_ms,
            sub_queries: places
                .iter()
                .map(|place| spec.sub_queries[*place].clone())
                .collect(),
            ..spec.clone()
        };
        let (results, statistics) = run::series(engine, shifted, deadline).await?;
        for (place, list) in places.into_iter().zip(results) {
            found[place] = list.into_iter().map(|series| series.moved(shift_ms)).collect();
        }
        total.series += statistics.series;
        total.rows += statistics.rows;
        total.bytes += statistics.bytes;
        total.add_read(statistics);
        for (resource, used) in [
            (Resource::Series, total.series),
            (Resource::Rows, total.rows),
            (Resource::Bytes, total.bytes),
            (Resource::Points, total.points),
        ] {
            limits.check(resource, used)?;
        }
    }
    let inputs = question.inputs.iter().zip(found).zip(query_tags);
    let input = |((input, series), query_tags): ((&convert::Asked, _), _)| Input {
        name: input.name.clone(),
        fill: input.fill,
        query_tags,
        series,
    };
    Ok((inputs.map(input).collect(), total))
}

/// Why expressions have no answer.
fn of_expression(error: &ExpressionError, table: &str) -> Status {
    use ExpressionError as E;
    let message = error.to_string();
    let too_large = |limit: u64| {
        let metadata = [("limit", limit.to_string())];
        let metadata = metadata.each_ref().map(|(key, value)| (*key, value.as_str()));
        status(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            message.clone(),
            &metadata,
        )
    };
    match error {
        E::Query(error) => of_query(error, "inputs.query", table),
        E::Arithmetic(_)
        | E::Lengths { .. }
        | E::NoIntersection { .. }
        | E::NoMoreValues { .. }
        | E::ResultType { .. }
        | E::AliasOfCombined => invalid_field("expressions", message),
        E::TooManyValues { .. } => too_large(crate::query::expression::error::MAX_VALUES as u64),
        E::TooManySteps => too_large(crate::query::expression::error::MAX_STEPS),
        E::Cancelled => status(
            Code::DeadlineExceeded,
            ErrorReason::DeadlineExceeded,
            message,
            &[],
        ),
    }
}

#[cfg(test)]
mod tests;
