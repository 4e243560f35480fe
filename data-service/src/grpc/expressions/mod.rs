//! `DataService.QueryExpressions`: reads the inputs as sub-queries, evaluates expressions over them and streams the
//! series of the requested outputs.
//!
//! The result is complete before its first message is sent, since an expression can refer to any input. Inputs and
//! results are charged to the memory budget of the query until the last message is encoded.

mod convert;
mod frames;
mod function;

pub use function::function_message;

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use futures::stream::{self, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{QueryExpressionsRequest, QueryExpressionsResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::Admitted;
use oxtsdb_query::Held;
use oxtsdb_query::expression::formulas::{Input, Outcome, evaluate};
use oxtsdb_query::expression::{ExpressionError, Series, Work, run};
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Engine, QueryError, QuerySpec, Statistics};
use tonic::{Code, Request, Response, Status};

use super::query::query_status;
use super::results::{context_of, result_stream};
use convert::ExpressionsQuery;

type Messages = MessageStream<QueryExpressionsResponse>;

/// Evaluates expressions. The call's deadline and a disconnecting client cancel the query.
pub(super) async fn query_expressions(
    engine: &Engine,
    request: Request<QueryExpressionsRequest>,
) -> Result<Response<Messages>, Status> {
    let started = Instant::now();
    let context = context_of(&request);
    let request = request.into_inner();
    let query = convert::expressions_query(&request, now_ms())?;
    let table = engine.storage().table.to_string();
    let spec = query.spec();
    let failed = |error: ExpressionError| expression_status(&error, &table);
    let admitted = engine
        .admit(context, spec.description(), spec.max_scanned_points)
        .await;
    let admitted = admitted.map_err(|error| failed(error.into()))?;
    let context = admitted.context().clone();
    let evaluated = context.run(evaluated(engine, admitted, query, &spec)).await;
    let (lists, mut statistics, memory) = evaluated.map_err(failed)?;
    let points = lists
        .iter()
        .flat_map(|(_, list)| list)
        .map(|series| series.points.len() as u64);
    statistics.points_sent = points.sum();
    statistics.elapsed = started.elapsed();
    let messages = frames::messages(lists, statistics, &request);
    let messages = stream::iter(messages.map(Ok)).inspect(move |_| {
        // Held until the last message is encoded.
        let _ = &memory;
    });
    Ok(Response::new(result_stream(messages, engine, None)))
}

/// The series of each output.
type Outputs = Vec<(String, Vec<Series>)>;

/// Runs the inputs, then computes the outputs.
async fn evaluated(
    engine: &Engine,
    mut admitted: Admitted,
    query: ExpressionsQuery,
    spec: &QuerySpec,
) -> Result<(Outputs, Statistics, Option<Held>), ExpressionError> {
    let (inputs, statistics, held) = read(engine, &query, spec, &mut admitted).await?;
    let quirks = query.quirks;
    let range_ms = (query.start_ms, query.end_ms);
    let outputs = query.outputs.clone();
    let compute = move |cancelled: &_| {
        let mut work = Work::new(quirks, range_ms, cancelled).holding(held);
        let results = evaluate(&inputs, &query.formulas, &mut work)?;
        let results = query.formulas.into_iter().zip(results);
        let mut series: HashMap<String, Outcome> = inputs
            .into_iter()
            .map(|input| (input.name, Ok(input.series)))
            .chain(results.map(|(formula, outcome)| (formula.name, outcome)))
            .collect();
        let mut lists: Outputs = Vec::with_capacity(outputs.len());
        for (place, name) in outputs.iter().enumerate() {
            // An output can be requested several times: all but the last one copy its series.
            let list = if outputs[place + 1..].contains(name) {
                copied(series.get(name), &mut work)?
            } else {
                series.remove(name).unwrap_or_else(|| Ok(Vec::new()))?
            };
            let in_range = |mut series: Series| {
                series.points = work.in_range(series.points);
                series
            };
            lists.push((name.clone(), list.into_iter().map(in_range).collect()));
        }
        Ok::<_, ExpressionError>((lists, work.into_held()))
    };
    let pool = &engine.resources().expressions;
    let (lists, held) = run::computed(pool, &mut admitted, compute).await?;
    Ok((lists, statistics, held))
}

/// Copies series after charging the copy to the budget.
fn copied(series: Option<&Outcome>, work: &mut Work<'_>) -> Result<Vec<Series>, ExpressionError> {
    let Some(series) = series else {
        return Ok(Vec::new());
    };
    let series = series.as_ref().map_err(ExpressionError::clone)?;
    work.count_copy(series)?;
    Ok(series.clone())
}

/// Reads the series of the inputs. Inputs with the same time shift run as one query.
async fn read(
    engine: &Engine,
    query: &ExpressionsQuery,
    spec: &QuerySpec,
    admitted: &mut Admitted,
) -> Result<(Vec<Input>, Statistics, Held), QueryError> {
    let query_tags = run::query_tags(engine, &spec.sub_queries, admitted.context()).await?;
    let mut held = admitted.budget().hold(0)?;
    let mut by_shift: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for (place, input) in query.inputs.iter().enumerate() {
        by_shift.entry(input.shift_ms).or_default().push(place);
    }
    let mut series: Vec<Vec<Series>> = vec![Vec::new(); query.inputs.len()];
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
        let part = run::series(engine, &shifted, admitted).await?;
        held.merge(part.held);
        for (place, list) in places.into_iter().zip(part.series) {
            series[place] = list.into_iter().map(|series| series.moved(shift_ms)).collect();
        }
        total.series += part.statistics.series;
        total.rows += part.statistics.rows;
        total.bytes += part.statistics.bytes;
        total.add_read(part.statistics);
    }
    let inputs = query.inputs.iter().zip(series).zip(query_tags);
    let input = |((input, series), query_tags): ((&convert::QueryInput, _), _)| Input {
        name: input.name.clone(),
        fill: input.fill,
        query_tags,
        series,
    };
    Ok((inputs.map(input).collect(), total, held))
}

/// The status of failed expressions.
fn expression_status(error: &ExpressionError, table: &str) -> Status {
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
        E::Query(error) => query_status(error, "inputs.query.", table),
        E::Arithmetic(_)
        | E::Operands(_)
        | E::Lengths { .. }
        | E::NoIntersection { .. }
        | E::NoMoreValues { .. }
        | E::ResultType { .. }
        | E::AliasOfCombined => invalid_field("expressions", message),
        E::TooManyValues { .. } => too_large(oxtsdb_query::expression::error::MAX_VALUES as u64),
        E::TooManySteps => too_large(oxtsdb_query::expression::error::MAX_STEPS),
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
