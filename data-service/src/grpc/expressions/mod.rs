//! `DataService.QueryExpressions`.

mod convert;
mod frames;

use std::collections::BTreeMap;
use std::time::Instant;

use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{QueryExpressionsRequest, QueryExpressionsResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_schema::DuplicatePolicy;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::query::of_query;
use crate::query::expression::formulas::{Input, evaluate};
use crate::query::expression::{ExpressionError, Series, Work, run};
use crate::query::time::now_ms;
use crate::query::{Engine, QueryError, QuerySpec, Statistics, SubQuery};

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
    let read = read(engine, &question, deadline).await;
    let (inputs, mut statistics) = read.map_err(|error| failed(error.into()))?;
    let quirks = question.quirks;
    let outputs = question.outputs.clone();
    let compute = move |cancelled: &_| {
        let mut results = evaluate(&inputs, &question.formulas, &mut Work::new(quirks, cancelled))?;
        let mut of_output = |name: &String| {
            let formula = question.formulas.iter().position(|formula| formula.name == *name);
            let result = formula.and_then(|place| results.get_mut(place));
            let input = || inputs.iter().find(|input| input.name == *name);
            // A name can be asked for more than once.
            result
                .map(|series| series.clone())
                .or_else(|| input().map(|input| input.series.clone()))
        };
        let lists = outputs
            .iter()
            .map(|name| (name.clone(), of_output(name).unwrap_or_default()));
        Ok(lists.collect::<Vec<(String, Vec<Series>)>>())
    };
    let lists = run::computed(compute, deadline).await.map_err(failed)?;
    let points = lists
        .iter()
        .flat_map(|(_, list)| list)
        .map(|series| series.points.len() as u64);
    statistics.points_sent = points.sum();
    statistics.elapsed = started.elapsed();
    let messages = frames::messages(lists, statistics, request.frame_points, request.tsuids);
    Ok(Response::new(stream::iter(messages.map(Ok)).boxed()))
}

/// The series of the inputs. Those that are moved by the same time are one query.
async fn read(
    engine: &Engine,
    question: &Question,
    deadline: Option<Instant>,
) -> Result<(Vec<Input>, Statistics), QueryError> {
    let sub_queries: Vec<SubQuery> = question.inputs.iter().map(|input| input.query.clone()).collect();
    let query_tags = run::query_tags(engine, &sub_queries, deadline).await?;
    let mut by_shift: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, input) in question.inputs.iter().enumerate() {
        by_shift.entry(input.shift_ms).or_default().push(place);
    }
    let mut found: Vec<Vec<Series>> = vec![Vec::new(); question.inputs.len()];
    let mut total = Statistics::default();
    for (shift_ms, places) in by_shift {
        let spec = QuerySpec {
            start_ms: question.start_ms - shift_ms,
            end_ms: question.end_ms - shift_ms,
            sub_queries: places.iter().map(|place| sub_queries[*place].clone()).collect(),
            duplicates: DuplicatePolicy::KeepNewest,
            max_scanned_points: question
                .max_scanned_points
                .map(|max| max.saturating_sub(total.points)),
            quirks: question.quirks,
            skip_damaged_rows: false,
        };
        let (results, statistics) = run::series(engine, spec, deadline).await?;
        for (place, list) in places.into_iter().zip(results) {
            found[place] = list.into_iter().map(|series| series.moved(shift_ms)).collect();
        }
        total.series += statistics.series;
        total.rows += statistics.rows;
        total.bytes += statistics.bytes;
        total.points += statistics.points;
        total.duplicates += statistics.duplicates;
        total.skipped_cells += statistics.skipped_cells;
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
