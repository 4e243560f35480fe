//! Calls of `--expr` as a request: sub-queries become inputs, calls named expressions.

use anyhow::Context as _;
use data_service::grpc::function_message;
use jiff::tz::TimeZone;
use oxtsdb_proto::data::v1::QueryExpressionsRequest;
use oxtsdb_proto::data::v1::query_expressions_request::expression::Body;
use oxtsdb_proto::data::v1::query_expressions_request::{Arithmetic, Expression, Input};
use oxtsdb_query::expression::call::{Step, StepBody, parse, steps};

use super::request::{Times, sub_query};

/// The request of calls such as `scale(sum:m,2)`.
///
/// # Errors
///
/// If a text is not a call, or contains an invalid sub-query.
pub(super) fn request(
    texts: &[String],
    times: Times,
    zone: &TimeZone,
) -> anyhow::Result<QueryExpressionsRequest> {
    let mut queries = Vec::new();
    let mut calls = Vec::with_capacity(texts.len());
    for text in texts {
        calls.push(parse(text, &mut queries).with_context(|| format!("--expr `{text}`"))?);
    }
    let (steps, outputs) = steps(&calls).with_context(|| format!("--expr `{}`", texts.join("`, `")))?;
    let inputs = queries.iter().enumerate().map(|(place, query)| {
        anyhow::Ok(Input {
            name: format!("q{place}"),
            query: Some(sub_query(query, zone)?),
            ..Input::default()
        })
    });
    Ok(QueryExpressionsRequest {
        range: Some(times.range),
        allow_any_time: times.allow_any_time,
        inputs: inputs.collect::<anyhow::Result<_>>()?,
        expressions: steps.into_iter().map(expression).collect(),
        outputs,
        ..QueryExpressionsRequest::default()
    })
}

fn expression(step: Step) -> Expression {
    let body = match step.body {
        StepBody::Combine(sign) => Body::Arithmetic(Arithmetic {
            text: step.of.join(&format!(" {sign} ")),
            join: None,
        }),
        StepBody::Function(function) => Body::Function(function_message(function, step.of)),
    };
    Expression {
        name: step.name,
        body: Some(body),
        fill: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::data::v1::query_expressions_request::function::{
        Function as Kind, MovingAverage, moving_average,
    };

    use super::*;

    fn parsed(texts: &[&str]) -> anyhow::Result<QueryExpressionsRequest> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        request(&texts, Times::default(), &TimeZone::UTC)
    }

    #[test]
    fn calls_become_expressions_over_their_sub_queries() {
        let request = parsed(&[
            "movingAverage(sum(sum:a{host=*},max:1m-avg:b),'90s')",
            "alias(sum:c,x,y)",
        ])
        .unwrap();
        let names: Vec<&str> = request.inputs.iter().map(|input| input.name.as_str()).collect();
        assert_eq!(names, ["q0", "q1", "q2"]);
        assert!(request.inputs[1].query.as_ref().unwrap().downsample.is_some());
        assert_eq!(request.outputs, ["e1", "e2"]);
        let bodies: Vec<&Body> = request
            .expressions
            .iter()
            .filter_map(|e| e.body.as_ref())
            .collect();
        let Body::Arithmetic(sum) = bodies[0] else {
            panic!("{bodies:?}")
        };
        assert_eq!(sum.text, "q0 + q1");
        let Body::Function(average) = bodies[1] else {
            panic!("{bodies:?}")
        };
        let window = moving_average::Window::Time(prost_types::Duration {
            seconds: 90,
            nanos: 0,
        });
        assert_eq!(average.of, ["e0"]);
        assert_eq!(
            average.function,
            Some(Kind::MovingAverage(MovingAverage { window: Some(window) }))
        );
        let Body::Function(alias) = bodies[2] else {
            panic!("{bodies:?}")
        };
        assert_eq!(alias.function, Some(Kind::Alias("x,y".to_owned())));
    }

    #[test]
    fn rejects_texts_that_are_not_calls() {
        let error = |text: &str| format!("{:#}", parsed(&[text]).unwrap_err());
        assert_eq!(error("sum:a"), "--expr `sum:a`: Failed to parse sum:a");
        assert_eq!(
            error("root(sum:a)"),
            "--expr `root(sum:a)`: Function root has not been implemented"
        );
        assert_eq!(
            error("sum(sum:a)"),
            "--expr `sum(sum:a)`: Must have 2 to 26 series, got 1 instead"
        );
        assert_eq!(
            error("scale(total:a,2)"),
            "expression `total:a`: No such aggregation function: total"
        );
    }
}
