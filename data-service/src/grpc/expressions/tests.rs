use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
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
use oxtsdb_test_stack::TestStack;
use tonic_types::StatusExt as _;
use uid_service::UidSettings;

use super::*;

const T: u32 = 1_356_998_400;

/// `in` of hosts a and b, `out` of host a, which has other timestamps and starts an hour earlier.
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
    let response = query_expressions(&stack.service.engine, Request::new(request)).await?;
    let responses: Vec<QueryExpressionsResponse> = response.into_inner().try_collect().await?;
    Ok(responses
        .into_iter()
        .map(|response| response.frame.unwrap())
        .collect())
}

/// One line for each series: output, alias or host, values as `second:value`.
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
async fn an_output_is_its_series_with_points_then_done() {
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
async fn arithmetic_joins_by_tags_and_time() {
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
async fn functions_take_lists_of_series() {
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
async fn inputs_can_be_shifted_in_time() {
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

/// Each quirk with an example.
#[tokio::test]
async fn applies_quirks_on_request() {
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
        // A nested expression returns its next value, and `x` has none at 25 s.
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
        // At 25 s there is one value, 7, and the first place belongs to host a of `in`.
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

mod failures;
mod rejections;
