use futures::TryStreamExt as _;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::query_expressions_request::expression::Body;
use oxtsdb_proto::data::v1::query_expressions_request::function::moving_average::Window;
use oxtsdb_proto::data::v1::query_expressions_request::function::{
    Absolute, Function as Kind, MovingAverage,
};
use oxtsdb_proto::data::v1::query_expressions_request::join::Operator;
use oxtsdb_proto::data::v1::query_expressions_request::{Arithmetic, Expression, Function, Input, Join};
use oxtsdb_proto::data::v1::query_expressions_response::Frame;
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source};
use oxtsdb_proto::data::v1::{
    AggregateFunction, SubQuery as SubQueryMessage, TagFilter, tag_filter::FilterType,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::RowStore as _;
use oxtsdb_schema::{Timestamp, Value};
use tonic_types::StatusExt as _;
use uid_service::UidSettings;

use super::*;
use crate::NewPoint;
use crate::settings::DataSettings;
use crate::test_stack::TestStack;

const T: u32 = 1_356_998_400;

/// `in` of hosts a and b, `out` of a, which has other instants and begins an hour earlier.
async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    let points = [
        ("in", "a", T, 1),
        ("in", "a", T + 10, 2),
        ("in", "a", T + 20, 3),
        ("in", "b", T, 10),
        ("in", "b", T + 10, -20),
        ("out", "a", T + 10, 5),
        ("out", "a", T + 25, 7),
        ("out", "a", T - 3600, 100),
    ];
    for (metric, host, second, value) in points {
        let point = NewPoint {
            metric,
            tags: &[("host", host), ("dc", "lga")],
            timestamp: Timestamp::from_seconds(second),
            value: Value::Int(value),
        };
        let outcome = stack.service.writer.write(&[point], None).await.unwrap();
        assert_eq!(outcome.written, 1);
    }
    stack
}

fn input(name: &str, metric: &str) -> Input {
    let filter = TagFilter {
        key: "host".to_owned(),
        r#type: FilterType::Wildcard.into(),
        pattern: "*".to_owned(),
        group_by: true,
        ..TagFilter::default()
    };
    let source = MetricSource {
        metric: metric.to_owned(),
        filters: vec![filter],
        explicit_tags: false,
    };
    Input {
        name: name.to_owned(),
        query: Some(SubQueryMessage {
            source: Some(Source::Metric(source)),
            aggregator: Some(AggregateFunction::Sum.into()),
            ..SubQueryMessage::default()
        }),
        ..Input::default()
    }
}

fn arithmetic(name: &str, text: &str) -> Expression {
    let body = Arithmetic {
        text: text.to_owned(),
        join: None,
    };
    Expression {
        name: name.to_owned(),
        body: Some(Body::Arithmetic(body)),
        fill: 0.0,
    }
}

fn function(name: &str, of: &[&str], kind: Kind) -> Expression {
    let body = Function {
        of: of.iter().map(|of| (*of).to_owned()).collect(),
        function: Some(kind),
    };
    Expression {
        name: name.to_owned(),
        body: Some(Body::Function(body)),
        fill: 0.0,
    }
}

/// A function without a kind.
fn function_of_none() -> Expression {
    let body = Function {
        of: vec!["a".to_owned()],
        function: None,
    };
    Expression {
        name: "e".to_owned(),
        body: Some(Body::Function(body)),
        fill: 0.0,
    }
}

fn request(expressions: Vec<Expression>) -> QueryExpressionsRequest {
    let start_ms = i64::from(T) * 1000;
    QueryExpressionsRequest {
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(start_ms)),
            end: Some(time_range::End::EndMs(start_ms + 3_600_000)),
        }),
        inputs: vec![input("a", "in"), input("b", "out")],
        expressions,
        ..QueryExpressionsRequest::default()
    }
}

async fn frames(stack: &TestStack, request: QueryExpressionsRequest) -> Result<Vec<Frame>, Status> {
    let answer = query_expressions(&stack.service.engine, Request::new(request)).await?;
    let responses: Vec<QueryExpressionsResponse> = answer.into_inner().try_collect().await?;
    Ok(responses
        .into_iter()
        .map(|response| response.frame.unwrap())
        .collect())
}

/// Each series in a line: output, alias or host, values as `second:value`.
async fn lines(stack: &TestStack, request: QueryExpressionsRequest) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for frame in frames(stack, request).await.unwrap() {
        match frame {
            Frame::Series(series) => {
                let host = series.tags.get("host").cloned().unwrap_or_default();
                let name = if series.alias.is_empty() {
                    host
                } else {
                    series.alias
                };
                lines.push(format!("{} {name}", series.output));
            }
            Frame::Points(points) => {
                let ints = points.int_values.iter().map(|value| value.to_string());
                let doubles = points.values.iter().map(|value| format!("{value:?}"));
                for (time_ms, value) in points.timestamps_ms.iter().zip(ints.chain(doubles)) {
                    let second = time_ms / 1000 - i64::from(T);
                    lines.last_mut().unwrap().push_str(&format!(" {second}:{value}"));
                }
            }
            Frame::Done(_) | Frame::Statistics(_) => {}
        }
    }
    lines
}

#[tokio::test]
async fn an_output_has_its_series_with_their_points_and_is_then_done() {
    let stack = stack().await;
    let request = QueryExpressionsRequest {
        outputs: vec!["e".to_owned(), "b".to_owned()],
        include_tsuids: true,
        frame_points: 2,
        ..request(vec![arithmetic("e", "a + b")])
    };
    let frames = frames(&stack, request).await.unwrap();
    let [
        Frame::Series(first),
        Frame::Points(_),
        Frame::Points(rest),
        Frame::Series(second),
        Frame::Points(_),
        Frame::Done(done),
        Frame::Series(input),
        Frame::Points(ints),
        Frame::Done(last),
        Frame::Statistics(statistics),
    ] = frames.as_slice()
    else {
        panic!("{frames:?}")
    };
    assert_eq!(
        (first.series, second.series, input.series, rest.series),
        (0, 1, 2, 0)
    );
    assert_eq!(
        (first.output.as_str(), &first.metrics),
        ("e", &vec!["in".to_owned(), "out".to_owned()])
    );
    assert_eq!((first.tsuids.len(), second.tsuids.len()), (2, 1));
    assert_eq!(first.tags["dc"], "lga");
    assert_eq!((done.output.as_str(), done.series_count), ("e", 2));
    assert_eq!((last.output.as_str(), last.series_count), ("b", 1));
    assert_eq!(ints.int_values, [5, 7]);
    assert_eq!(
        (statistics.rows, statistics.points, statistics.points_sent),
        (3, 7, 8)
    );
}

#[tokio::test]
async fn arithmetic_joins_by_tags_and_by_time() {
    let stack = stack().await;
    let joined = |name: &str, join: Join| Expression {
        body: Some(Body::Arithmetic(Arithmetic {
            text: "a - b".to_owned(),
            join: Some(join),
        })),
        ..arithmetic(name, "")
    };
    let intersection = Join {
        operator: Operator::Intersection.into(),
        ..Join::default()
    };
    let nothing = Join {
        query_tags: true,
        ..intersection
    };
    let mut request = request(vec![
        arithmetic("nested", "sum * 2"),
        arithmetic("sum", "a + b"),
        joined("both", intersection),
        joined("host", nothing),
    ]);
    request.inputs[1].fill = 1000.0;
    let expected = [
        "nested a 0:2002.0 10:14.0 20:2006.0 25:14.0",
        "nested b 0:2020.0 10:1960.0",
        "sum a 0:1001.0 10:7.0 20:1003.0 25:7.0",
        "sum b 0:1010.0 10:980.0",
        "both a 0:-999.0 10:-3.0 20:-997.0 25:-7.0",
        "host a 0:-999.0 10:-3.0 20:-997.0 25:-7.0",
    ];
    assert_eq!(lines(&stack, request).await, expected);
}

#[tokio::test]
async fn functions_work_on_lists_of_series() {
    let stack = stack().await;
    let time = prost_types::Duration {
        seconds: 10,
        nanos: 0,
    };
    let average = |window| Kind::MovingAverage(MovingAverage { window: Some(window) });
    let request = request(vec![
        function("scaled", &["a"], Kind::Scale(2.0)),
        function("half", &["b"], Kind::Scale(0.5)),
        function("positive", &["a"], Kind::Absolute(Absolute {})),
        function("named", &["positive"], Kind::Alias("@host.@dc".to_owned())),
        function("two", &["a"], average(Window::Values(2))),
        function("recent", &["a"], average(Window::Time(time))),
        function("max", &["a", "b"], Kind::HighestMax(2)),
        function("last", &["a", "b"], Kind::HighestCurrent(1)),
    ]);
    let expected = [
        "scaled a 0:2 10:4 20:6",
        "scaled b 0:20 10:-40",
        "half a 10:2.5 25:3.5",
        "positive a 0:1 10:2 20:3",
        "positive b 0:10 10:20",
        "named a.lga 0:1 10:2 20:3",
        "named b.lga 0:10 10:20",
        "two a 10:1.5 20:2.5",
        "two b 10:-5.0",
        "recent a 10:2.0 20:3.0",
        "recent b 10:-20.0",
        "max b 0:10 10:-20",
        "max a 10:5 25:7",
        "last a 10:5 25:7",
    ];
    assert_eq!(lines(&stack, request).await, expected);
}

#[tokio::test]
async fn an_input_can_be_of_an_earlier_time() {
    let stack = stack().await;
    let mut request = request(vec![arithmetic("more", "b - before")]);
    request.inputs.push(Input {
        shift: Some(prost_types::Duration {
            seconds: 3600,
            nanos: 0,
        }),
        ..input("before", "out")
    });
    request.outputs = vec!["before".to_owned(), "more".to_owned()];
    let expected = ["before a 0:100", "more a 0:-100.0 10:5.0 25:7.0"];
    assert_eq!(lines(&stack, request).await, expected);
}

/// Each oddity with an example.
#[tokio::test]
async fn oddities_are_there_on_request() {
    let stack = stack().await;
    let average = MovingAverage {
        window: Some(Window::Values(2)),
    };
    for (expressions, without, with) in [
        // Every series has a value wherever one has, and none of `b` is 0.
        (
            vec![arithmetic("e", "a * 1 + b")],
            vec!["e a 0:1.0 10:7.0 20:3.0 25:7.0", "e b 0:10.0 10:-20.0"],
            vec![
                "e a 0:1.0 10:7.0 20:3.0 25:7.0",
                "e b 0:10.0 10:-20.0 20:0.0 25:0.0",
            ],
        ),
        // A nested expression gives its next value, and `x` has none at 25 s.
        (
            vec![arithmetic("e", "b - x"), arithmetic("x", "a")],
            vec![
                "e a 0:-1.0 10:3.0 20:-3.0 25:7.0",
                "e b 0:-10.0 10:20.0",
                "x a 0:1.0 10:2.0 20:3.0",
                "x b 0:10.0 10:-20.0",
            ],
            vec![],
        ),
        (
            vec![arithmetic("e", "((a)) + b * 0.123456789")],
            vec![
                "e a 0:1.0 10:2.617283945 20:3.0 25:0.864197523",
                "e b 0:10.0 10:-20.0",
            ],
            vec!["e a 10:0.61728395 25:0.86419753"],
        ),
        (
            vec![arithmetic("e", "b > 5 ? 1 : 0")],
            vec!["e a 10:0.0 25:1.0"],
            vec![],
        ),
        (
            vec![function("e", &["a"], Kind::Alias("x".to_owned()))],
            vec!["e x 0:1 10:2 20:3", "e x 0:10 10:-20"],
            vec!["e x 0:1 10:2 20:3", "e x 0:10 10:20"],
        ),
        (
            vec![function("e", &["a"], Kind::MovingAverage(average))],
            vec!["e a 10:1.5 20:2.5", "e b 10:-5.0"],
            vec!["e a 0:0.0 10:1.5 20:2.5", "e b 0:0.0 10:-5.0"],
        ),
        // At 25 s there is one value, 7, and the first place is that of host a of `in`.
        (
            vec![function("e", &["a", "b"], Kind::HighestCurrent(1))],
            vec!["e a 10:5 25:7"],
            vec!["e a 0:1 10:2 20:3"],
        ),
    ] {
        let sane = request(expressions);
        let odd = QueryExpressionsRequest {
            opentsdb_quirks: true,
            ..sane.clone()
        };
        assert_eq!(lines(&stack, sane.clone()).await, without);
        if with.is_empty() {
            let status = frames(&stack, odd).await.unwrap_err();
            assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField), "{status:?}");
        } else {
            assert_eq!(lines(&stack, odd).await, with);
        }
    }
}

/// OpenTSDB takes the tags of `b`, which comes before `z` in a map, and has no host b.
#[tokio::test]
async fn joined_series_have_the_tags_of_one_operand_on_request() {
    let stack = stack().await;
    let mut sane = request(vec![arithmetic("e", "z + b")]);
    sane.inputs[0].name = "z".to_owned();
    let odd = QueryExpressionsRequest {
        opentsdb_quirks: true,
        ..sane.clone()
    };
    let hosts = |lines: Vec<String>| -> Vec<String> {
        let words = lines
            .iter()
            .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "));
        words.collect()
    };
    assert_eq!(hosts(lines(&stack, sane).await), ["e a", "e b"]);
    assert_eq!(hosts(lines(&stack, odd).await), ["e a", "e "]);
}

#[tokio::test]
async fn refusals_name_their_field() {
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

#[tokio::test]
async fn what_goes_wrong_while_reading_ends_it() {
    let stack = stack().await;
    let mut unknown = request(vec![arithmetic("e", "a")]);
    unknown.inputs[0] = input("a", "nope");
    let status = frames(&stack, unknown).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::NameNotFound));
    let small = QueryExpressionsRequest {
        max_scanned_points: 3,
        ..request(vec![arithmetic("e", "a")])
    };
    let status = frames(&stack, small).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge));
}

#[tokio::test]
async fn damaged_rows_are_left_out_and_told() {
    let stack = stack().await;
    let mut batch = oxtsdb_row_store::WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    // The hour of `in`, host a.
    let key = [
        0, 0, 1, 0x50, 0xe2, 0x27, 0x00, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2,
    ];
    // Flags of 4 bytes, in the resolution whose flags are trusted; the value has 2.
    batch.row(&key).put(family, &[0xf0, 0, 0, 0x03], &[1, 2]);
    stack.store.write(batch).await.unwrap();
    let asked = request(vec![arithmetic("e", "a + b")]);
    let status = frames(&stack, asked.clone()).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::CorruptCell));
    let skipping = QueryExpressionsRequest {
        skip_damaged_rows: true,
        ..asked
    };
    let frames = frames(&stack, skipping).await.unwrap();
    let Some(Frame::Statistics(statistics)) = frames.last() else {
        panic!("{frames:?}")
    };
    assert_eq!((statistics.damaged_rows, statistics.damaged.len()), (1, 1));
}

#[tokio::test]
async fn copies_of_an_output_hold_memory() {
    let mut settings = DataSettings::default();
    settings.queries.query_max_memory_mib = Some(1);
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let point = |second: u32| NewPoint {
        metric: "in",
        tags: &[("host", "a")],
        timestamp: Timestamp::from_seconds(T + second),
        value: Value::Int(second.into()),
    };
    let points: Vec<_> = (0..2000).map(point).collect();
    stack.service.writer.write(&points, None).await.unwrap();
    let asked = |times: usize| QueryExpressionsRequest {
        inputs: vec![input("a", "in")],
        outputs: vec!["a".to_owned(); times],
        ..request(Vec::new())
    };
    let twice = frames(&stack, asked(2)).await.unwrap();
    let points_of = |place: u32| -> usize {
        let points = twice.iter().filter_map(|frame| match frame {
            Frame::Points(points) if points.series == place => Some(points.int_values.len()),
            _ => None,
        });
        points.sum()
    };
    assert_eq!((points_of(0), points_of(1)), (2000, 2000));
    let status = frames(&stack, asked(100)).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge), "{status}");
    assert!(status.message().contains("--query-max-memory-mib"), "{status}");
}

#[tokio::test]
async fn the_query_time_out_is_named() {
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    settings.queries.query_timeout_seconds = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let running = stack
        .service
        .engine
        .admit(
            oxtsdb_query::RequestContext::local(None),
            oxtsdb_query::context::running::QueryDescription::default(),
            None,
        )
        .await;
    let request = request(vec![arithmetic("e", "a + b")]);
    let request = QueryExpressionsRequest {
        inputs: request
            .inputs
            .into_iter()
            .map(|input| Input {
                query: input.query.map(|mut query| {
                    if let Some(Source::Metric(source)) = &mut query.source {
                        source.filters.clear();
                    }
                    query
                }),
                ..input
            })
            .collect(),
        ..request
    };
    let status = frames(&stack, request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::DeadlineExceeded,
            "query was not answered within 1 s, the limit of --query-timeout-seconds"
        )
    );
    drop(running);
}
