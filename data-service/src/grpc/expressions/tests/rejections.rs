//! Requests that are rejected before anything is read.

use super::*;

#[tokio::test]
async fn names_the_field_of_an_invalid_request() {
    let stack = stack().await;
    let one = || request(vec![arithmetic("e", "a + b")]);
    let with = |expression: Expression| request(vec![expression]);
    let shifted = |seconds: i64| {
        let mut request = one();
        request.inputs[1].shift = Some(prost_types::Duration { seconds, nanos: 0 });
        request
    };
    let renamed = |name: &str| {
        let mut request = one();
        request.inputs[0].name = name.to_owned();
        request
    };
    let average =
        |window: Option<Window>| function("e", &["a"], Kind::MovingAverage(MovingAverage { window }));
    let join = Arithmetic {
        text: "a".to_owned(),
        join: Some(Join {
            operator: 7,
            ..Join::default()
        }),
    };
    let joined = Expression {
        body: Some(Body::Arithmetic(join)),
        ..arithmetic("e", "")
    };
    let no_query = |mut request: QueryExpressionsRequest| {
        request.inputs[1].query = None;
        request
    };
    for (request, field, description) in [
        (
            QueryExpressionsRequest { range: None, ..one() },
            "range",
            "is missing",
        ),
        (
            QueryExpressionsRequest {
                inputs: Vec::new(),
                ..one()
            },
            "inputs",
            "has 0 items, expected 1 to 50",
        ),
        (
            QueryExpressionsRequest {
                expressions: vec![arithmetic("e", "a"); 51],
                ..one()
            },
            "expressions",
            "has 51 items, at most 50 are allowed",
        ),
        (
            QueryExpressionsRequest {
                outputs: vec!["z".to_owned()],
                ..one()
            },
            "outputs[0]",
            "is `z`, expected the name of an input or of an expression",
        ),
        (
            renamed(""),
            "inputs[0].name",
            "is ``, expected 1 to 100 ASCII letters, digits and `_`",
        ),
        (
            renamed("é"),
            "inputs[0].name",
            "is `é`, expected 1 to 100 ASCII letters, digits and `_`",
        ),
        (
            renamed("7"),
            "inputs[0].name",
            "is `7`, which is a number or a word of arithmetic",
        ),
        (
            renamed("and"),
            "inputs[0].name",
            "is `and`, which is a number or a word of arithmetic",
        ),
        (renamed("b"), "inputs[1].name", "is `b`, which another one has"),
        (
            with(arithmetic("a", "b")),
            "expressions[0].name",
            "is `a`, which another one has",
        ),
        (no_query(one()), "inputs[1].query", "is missing"),
        (
            shifted(0),
            "inputs[1].shift",
            "is 0 s 0 ns, expected at least 1 ms",
        ),
        (
            shifted(2_000_000_000),
            "inputs[1].shift",
            "is 2000000000000 ms, which is before 1970 from a start at 1356998400000 ms",
        ),
        (
            with(Expression {
                body: None,
                ..arithmetic("e", "")
            }),
            "expressions[0]",
            "has no body, expected arithmetic or function",
        ),
        (
            with(arithmetic("e", "a +")),
            "expressions[0].arithmetic.text",
            "parsing error at 4 in 'a +', expected a number, a name or `(`",
        ),
        (
            with(arithmetic("e", "1")),
            "expressions[0].arithmetic.text",
            "has no name of an input or of an expression",
        ),
        (
            with(arithmetic("e", "a + z")),
            "expressions[0].arithmetic.text",
            "has `z`, which is no name of an input or of an expression",
        ),
        (
            with(joined),
            "expressions[0].arithmetic.join.operator",
            "is 7, expected one of the named values",
        ),
        (
            with(arithmetic("e", "e")),
            "expressions[0]",
            "uses itself, or expressions that do",
        ),
        (
            with(function("e", &[], Kind::Absolute(Absolute {}))),
            "expressions[0].function.of",
            "has 0 items, expected 1 to 26",
        ),
        (
            with(function("e", &["a", "z"], Kind::Absolute(Absolute {}))),
            "expressions[0].function.of[1]",
            "is `z`, expected the name of an input or of an expression",
        ),
        (
            with(function_of_none()),
            "expressions[0].function",
            "has no function, expected one of its kinds",
        ),
        (
            with(function("e", &["a"], Kind::Scale(f64::NAN))),
            "expressions[0].function.scale",
            "is NaN, expected a finite number",
        ),
        (
            with(function("e", &["a"], Kind::Alias(String::new()))),
            "expressions[0].function.alias",
            "is empty",
        ),
        (
            with(function("e", &["a"], Kind::HighestMax(0))),
            "expressions[0].function.highest_max",
            "is 0, expected at least 1",
        ),
        (
            with(function("e", &["a"], Kind::HighestCurrent(0))),
            "expressions[0].function.highest_current",
            "is 0, expected at least 1",
        ),
        (
            with(average(None)),
            "expressions[0].function.moving_average",
            "has no window, expected values or time",
        ),
        (
            with(average(Some(Window::Values(0)))),
            "expressions[0].function.moving_average.values",
            "is 0, expected at least 1",
        ),
    ] {
        let status = frames(&stack, request).await.unwrap_err();
        let details = status.get_error_details();
        let violation = &details.bad_request().unwrap().field_violations[0];
        assert_eq!(
            (violation.field.as_str(), violation.description.as_str()),
            (field, description)
        );
    }
}
