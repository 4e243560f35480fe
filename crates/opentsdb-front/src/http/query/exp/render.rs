//! Renders series as OpenTSDB's JSON.
//!
//! ```text
//!   {"outputs":[{"id":"e",["alias":"E",]"dps":[[ms,v1,v2,…],…],
//!     "dpsMeta":{"firstTimestamp":ms,"lastTimestamp":ms,"setCount":rows,"series":columns},
//!     "meta":[{"index":0,"metrics":["timestamp"]},{"index":1,"metrics":["m"],"commonTags":{…},
//!     "aggregatedTags":[]},…]},…],"query":{…}}
//! ```
//!
//! As in OpenTSDB the last timestamp of an expression with one row is 0, and all columns have the metrics of the
//! first.
//!
//! Source: OpenTSDB 2.4, `QueryExecutor.serialize`.

use std::collections::BTreeSet;

use oxtsdb_query::expression::arithmetic::{Arithmetic, Operator};
use oxtsdb_query::expression::combine::Term;
use oxtsdb_query::expression::fill::Fill;
use oxtsdb_query::expression::formulas::{Input, Outcome};
use oxtsdb_query::expression::join::{Joined, Operand, SetOperator};
use oxtsdb_query::expression::lockstep::{Kind, lockstep};
use oxtsdb_query::expression::{ExpressionError, Series, Work};
use oxtsdb_query::{Points, QueryError};

use super::request::{Output, Query};
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::json;

/// Columns of a row that are written between two checks of the budget.
const COLUMNS_AT_A_TIME: usize = 1024;

/// Renders the requested outputs, by default all expressions, without expressions all metrics. Unknown outputs are
/// left out. The body is charged to the budget of the series.
pub(super) fn render(
    query: &Query,
    inputs: &[Input],
    mut results: Vec<Outcome>,
    work: &mut Work<'_>,
) -> Result<ReplyBody, ExpressionError> {
    let expressions = query.expressions.as_deref().unwrap_or_default();
    let unnamed = |id: &Option<String>| Output {
        id: id.clone(),
        alias: None,
    };
    let outputs: Vec<Output> = match query.outputs.as_deref().unwrap_or_default() {
        [] if expressions.is_empty() => query
            .metrics
            .iter()
            .flatten()
            .map(|metric| unnamed(&metric.id))
            .collect(),
        [] => expressions
            .iter()
            .map(|expression| unnamed(&expression.id))
            .collect(),
        outputs => outputs.to_vec(),
    };
    let mut body = BodyWriter::new();
    if let Some(budget) = work.budget() {
        body.hold_of(budget)?;
    }
    body.out().extend_from_slice(b"{\"outputs\":[");
    let mut is_first = true;
    for output in &outputs {
        let of_expression = expressions
            .iter()
            .position(|expression| expression.id == output.id);
        let input = inputs
            .iter()
            .find(|input| output.id.as_ref() == Some(&input.name));
        let of_expression = of_expression.and_then(|place| results.get_mut(place));
        let (columns, is_expression) = match (of_expression, input) {
            (Some(outcome), _) => (used_up(outcome, work)?, true),
            (None, Some(input)) => (in_rows(input, work)?, false),
            (None, None) => continue,
        };
        if !std::mem::replace(&mut is_first, false) {
            body.out().push(b',');
        }
        write(&mut body, output, &columns, is_expression)?;
    }
    body.out().extend_from_slice(b"],\"query\":");
    // Strings, numbers and booleans always serialize; `finish` charges the memory.
    let _ = serde_json::to_writer(body.out(), query);
    body.out().push(b'}');
    Ok(body.finish()?)
}

/// The series of an expression, clipped to the range. This takes their points: as in OpenTSDB, a second output of
/// the same expression has none.
fn used_up(outcome: &mut Outcome, work: &Work<'_>) -> Outcome {
    let series = outcome.as_mut().map_err(|error| error.clone())?;
    let mut with_points = |series: &mut Series| {
        let points = work.in_range(std::mem::take(&mut series.points));
        Series {
            points,
            ..series.clone()
        }
    };
    Ok(series.iter_mut().map(&mut with_points).collect())
}

/// The series of a metric with a value in every row, 0 where a series has none.
fn in_rows(input: &Input, work: &mut Work<'_>) -> Result<Vec<Series>, ExpressionError> {
    let alone = |(index, series): (usize, &Series)| Joined {
        members: vec![Some(index)],
        all: vec![(0, index)],
        series: Series {
            points: Points::default(),
            ..series.clone()
        },
    };
    let mut joined: Vec<Joined> = input.series.iter().enumerate().map(alone).collect();
    let operand = Operand {
        name: &input.name,
        series: &input.series,
        query_tags: &input.query_tags,
    };
    let fill = Fill::Zero;
    let terms = [(Term { operand, fill }, Kind::Input)];
    let itself = Arithmetic::fold(Operator::Add, vec![input.name.clone()]);
    lockstep(&itself, &terms, &mut joined, SetOperator::Union, work)?;
    Ok(joined.into_iter().map(|joined| joined.series).collect())
}

fn write(
    body: &mut BodyWriter,
    output: &Output,
    columns: &[Series],
    is_expression: bool,
) -> Result<(), QueryError> {
    let times_ms = columns.first().map_or(&[][..], |series| series.points.times_ms());
    let out = body.out();
    out.extend_from_slice(b"{\"id\":");
    json::write_string(out, output.id.as_deref().unwrap_or_default());
    if let Some(alias) = &output.alias {
        out.extend_from_slice(b",\"alias\":");
        json::write_string(out, alias);
    }
    out.extend_from_slice(b",\"dps\":[");
    for (row, time_ms) in times_ms.iter().enumerate() {
        body.roll()?;
        let out = body.out();
        out.extend_from_slice(if row > 0 { b",[" } else { b"[" });
        json::write_integer(out, *time_ms);
        for (place, column) in columns.iter().enumerate() {
            if place % COLUMNS_AT_A_TIME == COLUMNS_AT_A_TIME - 1 {
                body.roll()?;
            }
            let out = body.out();
            out.push(b',');
            json::write_double(out, column.points.values().get(row).as_f64());
        }
        body.out().push(b']');
    }
    let (first, last) = match (times_ms, is_expression) {
        ([], true) => (0, 0),
        ([], false) => (i64::MAX, 0),
        ([only], true) => (*only, 0),
        ([first, ..], _) => (*first, times_ms.last().copied().unwrap_or_default()),
    };
    let out = body.out();
    out.extend_from_slice(b"],\"dpsMeta\":{\"firstTimestamp\":");
    json::write_integer(out, first);
    out.extend_from_slice(b",\"lastTimestamp\":");
    json::write_integer(out, last);
    out.extend_from_slice(b",\"setCount\":");
    json::write_integer(out, times_ms.len());
    out.extend_from_slice(b",\"series\":");
    json::write_integer(out, columns.len());
    out.push(b'}');
    if let Some(first) = columns.first() {
        write_meta(body, first, columns)?;
    }
    body.out().push(b'}');
    body.roll()
}

fn write_meta(body: &mut BodyWriter, first: &Series, columns: &[Series]) -> Result<(), QueryError> {
    let metrics: BTreeSet<&str> = first.metrics.values().map(|metric| &**metric).collect();
    body.out()
        .extend_from_slice(b",\"meta\":[{\"index\":0,\"metrics\":[\"timestamp\"]}");
    for (index, column) in columns.iter().enumerate() {
        body.roll()?;
        let out = body.out();
        out.extend_from_slice(b",{\"index\":");
        json::write_integer(out, index + 1);
        out.extend_from_slice(b",\"metrics\":");
        json::write_strings(out, &metrics);
        out.extend_from_slice(b",\"commonTags\":");
        json::write_map(out, column.tags.values().map(|tag| (&*tag.key, &*tag.value)));
        out.extend_from_slice(b",\"aggregatedTags\":");
        json::write_strings(out, column.aggregate_tags.values().map(|key| &**key));
        out.push(b'}');
    }
    body.out().push(b']');
    Ok(())
}
