//! Bad input gets an error that names field, value and rule; the good rest of a batch is stored.

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::common::v1::{SeriesKey, series_key};
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source, TsuidSource};
use oxtsdb_proto::data::v1::tag_filter::FilterType;
use oxtsdb_proto::data::v1::{
    AggregateFunction, Downsample, Point, PointError, QueryRequest, SubQuery, TagFilter, TimestampPrecision,
    WriteColumnsRequest, WriteRequest, downsample,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::read_back::{self, always, query_refused, range, refused, sub_query};
use oxtsdb_tests::sample::{ColumnsBuilder, Number, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::{Tsdb, until};
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const GOOD: &str = "good.points";
const T: i64 = 1_500_000_000_000;

/// A point that is refused, and what its error says.
struct Bad {
    what: &'static str,
    sample: Sample,
    reason: ErrorReason,
    /// Parts of the message: the field or value, and the rule.
    says: &'static [&'static str],
}

fn bad(what: &'static str, sample: Sample, reason: ErrorReason, says: &'static [&'static str]) -> Bad {
    Bad {
        what,
        sample,
        reason,
        says,
    }
}

fn host(metric: &str, timestamp_ms: i64, value: Number) -> Sample {
    Sample::new(metric, &[("host", "a")], timestamp_ms, value)
}

fn tags(tags: &[(&str, &str)]) -> Sample {
    Sample::int("m", tags, T, 1)
}

fn bad_points() -> Vec<Bad> {
    let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|key| (key, "v"));
    let one = Number::Int(1);
    let long = "x".repeat(40_000);
    vec![
        bad(
            "empty metric",
            host("", T, one),
            InvalidName,
            &["metric", "empty"],
        ),
        bad(
            "illegal metric",
            host("a b", T, one),
            InvalidName,
            &["metric", "`a b`", "` `"],
        ),
        bad(
            "metric outside ISO-8859-1",
            host("日本", T, one),
            InvalidName,
            &["metric", "日本", "ISO-8859-1"],
        ),
        bad(
            "metric too long",
            host(&long, T, one),
            InvalidName,
            &["metric", "40000", "at most"],
        ),
        bad(
            "empty tag key",
            tags(&[("", "v")]),
            InvalidName,
            &["tag key", "empty"],
        ),
        bad(
            "illegal tag key",
            tags(&[("a=b", "v")]),
            InvalidName,
            &["tag key", "`a=b`", "`=`"],
        ),
        bad(
            "empty tag value",
            tags(&[("host", "")]),
            InvalidName,
            &["tag value", "host", "empty"],
        ),
        bad(
            "illegal tag value",
            tags(&[("host", "a:b")]),
            InvalidName,
            &["tag value", "host", "`a:b`"],
        ),
        bad("no tags", tags(&[]), InvalidTags, &["no tags", "at least 1"]),
        bad(
            "nine tags",
            tags(&nine),
            InvalidTags,
            &["has 9 tags", "at most 8"],
        ),
        bad(
            "a tag key twice",
            tags(&[("host", "a"), ("host", "b")]),
            InvalidTags,
            &["`host`", "twice"],
        ),
        bad(
            "NaN",
            host("m", T, Number::Double(f64::NAN)),
            InvalidValue,
            &["NaN"],
        ),
        bad(
            "infinity",
            host("m", T, Number::Double(f64::INFINITY)),
            InvalidValue,
            &["Infinity"],
        ),
        bad(
            "negative infinity",
            host("m", T, Number::Double(f64::NEG_INFINITY)),
            InvalidValue,
            &["-Infinity"],
        ),
        bad(
            "time zero",
            host("m", 0, one),
            InvalidTimestamp,
            &["timestamp 0", "1 to 4294967295999"],
        ),
        bad(
            "negative time",
            host("m", -5, one),
            InvalidTimestamp,
            &["timestamp -5", "1 to 4294967295999"],
        ),
        bad(
            "time beyond 32 bits of seconds",
            host("m", 4_294_967_296_000, one),
            InvalidTimestamp,
            &["4294967296000", "1 to 4294967295999"],
        ),
    ]
}

/// A batch that has good points before, between and after the bad ones.
fn mixed(bad: &[Bad], door: &str) -> Vec<Sample> {
    let good = |number: usize| {
        let number = i64::try_from(number).expect("few points");
        Sample::int(GOOD, &[("door", door)], T + number * 1000, number)
    };
    let mut samples = vec![good(0)];
    for (number, bad) in bad.iter().enumerate() {
        samples.push(bad.sample.clone());
        samples.push(good(number + 1));
    }
    samples
}

fn check_errors(bad: &[Bad], errors: &[PointError]) -> anyhow::Result<()> {
    for (number, bad) in bad.iter().enumerate() {
        let place = u64::try_from(number * 2 + 1)?;
        let error = errors.iter().find(|error| error.point == place);
        let error = error
            .and_then(|error| error.error.as_ref())
            .with_context(|| format!("{}: no error for point {place} in {errors:?}", bad.what))?;
        ensure!(error.reason() == bad.reason, "{}: {error:?}", bad.what);
        ensure!(
            Code::from(error.code) == Code::InvalidArgument && !error.retryable,
            "{}: {error:?}",
            bad.what
        );
        for part in bad.says {
            ensure!(error.message.contains(part), "{}: {:?}", bad.what, error.message);
        }
    }
    ensure!(errors.len() == bad.len(), "{errors:?}");
    Ok(())
}

/// The good points of [`mixed`] are all there.
async fn check_good(tsdb: &Tsdb, door: &str, count: usize) -> anyhow::Result<()> {
    let series = read_back::series_of(&mut tsdb.data(), GOOD).await?;
    let tags = [("door".to_owned(), door.to_owned())].into();
    let found = series
        .get(&tags)
        .with_context(|| format!("no series of {door}"))?;
    let expected: Vec<(i64, Number)> = (0..i64::try_from(count)?)
        .map(|number| (T + number * 1000, Number::Int(number)))
        .collect();
    ensure!(*found == expected, "{door}: {found:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn write_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = WriteRequest {
        points: mixed(&bad, "write").iter().map(Sample::to_point).collect(),
        ..WriteRequest::default()
    };
    let answer = tsdb.data().write(request).await?.into_inner();
    assert_eq!(answer.written, bad.len() as u64 + 1);
    assert_eq!(answer.failed, bad.len() as u64);
    check_errors(&bad, &answer.errors)?;
    check_good(&tsdb, "write", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_columns_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = WriteColumnsRequest {
        columns: Some(ColumnsBuilder::default().columns(&mixed(&bad, "columns"))),
        ..WriteColumnsRequest::default()
    };
    let answer = tsdb.data().write_columns(request).await?.into_inner();
    assert_eq!(answer.written, bad.len() as u64 + 1);
    assert_eq!(answer.failed, bad.len() as u64);
    check_errors(&bad, &answer.errors)?;
    check_good(&tsdb, "columns", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_stream_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let mut stream = WriteStream::open(&mut tsdb.data()).await?;
    let frame = stream.send(&mixed(&bad, "stream")).await?;
    let ack = stream.ack().await?;
    assert_eq!(ack.sequence, frame);
    assert_eq!(ack.written, bad.len() as u64 + 1);
    assert_eq!(ack.failed, bad.len() as u64);
    assert!(ack.errors.iter().all(|error| error.sequence == frame));
    let errors: Vec<PointError> = ack.errors.into_iter().filter_map(|error| error.error).collect();
    check_errors(&bad, &errors)?;
    check_good(&tsdb, "stream", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn points_that_only_grpc_can_say_are_refused() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let good = Sample::int(GOOD, &[("door", "odd")], T, 0).to_point();
    let tsuid = |bytes: &[u8]| {
        Some(SeriesKey {
            key: Some(series_key::Key::Tsuid(bytes.to_vec().into())),
        })
    };
    let cases: Vec<(&str, Point, Code, &[ErrorReason])> = vec![
        (
            "no series",
            Point {
                series: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidField, InvalidTags, InvalidName],
        ),
        (
            "no value",
            Point {
                value: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidValue],
        ),
        (
            "short TSUID",
            Point {
                series: tsuid(&[0, 0, 1, 0]),
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidUidWidth],
        ),
        (
            "TSUID of nobody",
            Point {
                series: tsuid(&[0, 0, 9, 0, 0, 9, 0, 0, 9]),
                ..good.clone()
            },
            Code::NotFound,
            &[UidNotFound],
        ),
    ];
    for (what, point, code, reasons) in cases {
        let request = WriteRequest {
            points: vec![good.clone(), point],
            ..WriteRequest::default()
        };
        let answer = tsdb.data().write(request).await?.into_inner();
        assert_eq!((answer.written, answer.failed), (1, 1), "{what}: {answer:?}");
        assert_eq!(answer.errors[0].point, 1, "{what}");
        let error = answer.errors[0].error.as_ref().context(what)?;
        assert_eq!(Code::from(error.code), code, "{what}: {error:?}");
        assert!(reasons.contains(&error.reason()), "{what}: {error:?}");
    }

    let request = WriteRequest {
        points: vec![Sample::int("m", &[("host", "a")], T + 1, 1).to_point()],
        precision: TimestampPrecision::Seconds.into(),
        ..WriteRequest::default()
    };
    let answer = tsdb.data().write(request).await?.into_inner();
    let error = answer.errors[0].error.as_ref().context("an error")?;
    assert_eq!(error.reason(), InvalidTimestamp);
    assert!(error.message.contains("not a whole second"), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_a_wrong_size_are_refused_whole() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int("m", &[("host", "a")], T, 1).to_point();
    for points in [Vec::new(), vec![point; 10_001]] {
        let count = points.len();
        let request = WriteRequest {
            points,
            ..WriteRequest::default()
        };
        let status = refused(tsdb.data().write(request).await)?;
        assert_eq!(status.code(), Code::InvalidArgument, "{count} points");
        assert_eq!(
            reason_of(&status),
            Some(BatchTooLarge),
            "{count} points: {status:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breach_of_the_stream_protocol_ends_the_stream() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let samples = [Sample::int("m", &[("host", "a")], T, 1)];
    let columns = ColumnsBuilder::default().columns(&samples);
    let mut undeclared = columns.clone();
    undeclared.new_series[0].metric_symbol = 99;
    let cases = [
        ("a sequence that does not begin with 1", 2, columns),
        ("a symbol that was not declared", 1, undeclared),
    ];
    for (what, sequence, columns) in cases {
        let mut stream = WriteStream::open(&mut tsdb.data()).await?;
        stream.send_frame(sequence, columns).await?;
        let status: Status = loop {
            match stream.next().await {
                Err(status) => break status,
                Ok(Some(message)) => println!("{what}: {message:?}"),
                Ok(None) => anyhow::bail!("{what}: the stream ended well"),
            }
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
        assert!(reason_of(&status).is_some(), "{what}: {status:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn put_refuses_points_with_opentsdbs_texts() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = |metric: Value, timestamp: Value, value: Value, tags: Value| json!({"metric": metric, "timestamp": timestamp, "value": value, "tags": tags});
    let seconds = json!(T / 1000);
    let host = json!({"host": "a"});
    let nine: serde_json::Map<String, Value> =
        (0..9).map(|number| (format!("k{number}"), json!("v"))).collect();
    let m = || json!("m");
    let cases: Vec<(Value, &str)> = vec![
        (
            point(json!(""), seconds.clone(), json!(1), host.clone()),
            "Metric name was empty",
        ),
        (
            json!({"timestamp": 1, "value": 1, "tags": {"host": "a"}}),
            "Metric name was empty",
        ),
        (point(m(), json!(0), json!(1), host.clone()), "Invalid timestamp"),
        (point(m(), json!(-1), json!(1), host.clone()), "Invalid timestamp"),
        (
            point(m(), seconds.clone(), json!(""), host.clone()),
            "Empty value",
        ),
        (point(m(), seconds.clone(), json!(1), json!({})), "Missing tags"),
        (
            point(m(), seconds.clone(), json!("abc"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("NaN"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("9223372036854775808"), host.clone()),
            "Unable to parse value to a number",
        ),
        (
            point(m(), seconds.clone(), json!("1e400"), host.clone()),
            "value is NaN or Infinite: Infinity for metric=m timestamp=1500000000",
        ),
        (
            point(m(), json!(10_000_000_000_000_i64), json!(1), host.clone()),
            "bad timestamp=10000000000000 when trying to add value=[1]/0 to metric=m, tags={host=a}",
        ),
        (
            point(m(), seconds.clone(), json!(1), Value::Object(nine)),
            "Too many tags: 9 maximum allowed: 8, tags: {",
        ),
        (
            point(json!("a b"), seconds.clone(), json!(1), host.clone()),
            "Invalid metric name (\"a b\"): illegal character:  ",
        ),
        (
            point(m(), seconds.clone(), json!(1), json!({"ho st": "a"})),
            "Invalid tag name with value [a] (\"ho st\"): illegal character:  ",
        ),
        (
            point(m(), seconds.clone(), json!(1), json!({"host": "a b"})),
            "Invalid tag value with key [host] (\"a b\"): illegal character:  ",
        ),
        (
            point(m(), seconds, json!(1), json!({"host": ""})),
            "Invalid tag value with key [host] (\"\"): empty string",
        ),
    ];
    let good = |number: i64| Sample::int(GOOD, &[("door", "http")], T + number * 1000, number).to_json();
    for (number, (bad, text)) in cases.iter().enumerate() {
        let number = i64::try_from(number)?;
        let body = json!([good(2 * number), bad, good(2 * number + 1)]);
        let answer = tsdb.http().post("/api/put?details", &body).await?;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
        let answer = answer.json()?;
        assert_eq!(
            (&answer["success"], &answer["failed"]),
            (&json!(2), &json!(1)),
            "{bad}: {answer}"
        );
        let error = answer["errors"][0]["error"].as_str().context("an error text")?;
        // Of nine tags the text ends with a list in the order of a hash table.
        assert!(
            error == *text || (text.ends_with('{') && error.starts_with(text)),
            "{bad}: `{error}` is not `{text}`"
        );
        assert_eq!(
            answer["errors"][0]["datapoint"]["tags"], bad["tags"],
            "{bad}: the point is shown"
        );
    }
    check_good(&tsdb, "http", cases.len() * 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn put_answers_bad_bodies_with_opentsdbs_envelope() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let cases: &[(&str, &str)] = &[
        ("[]", "No datapoints found in content"),
        ("", "Missing request content"),
        ("put m 1 1 a=b", "The JSON must start as an object or an array"),
        (r#"{"metric":"m""#, "Unable to parse the given JSON"),
        (r#"[{"metric":]"#, "Unable to parse the given JSON"),
        (
            r#"{"metric":"m","timestamp":{"a":1},"value":1,"tags":{"a":"b"}}"#,
            "Unable to parse the given JSON",
        ),
    ];
    for (body, message) in cases {
        let answer = tsdb
            .http()
            .post_bytes("/api/put", &[], body.as_bytes().to_vec())
            .await?;
        assert_eq!(answer.status, 400, "`{body}`: {answer:?}");
        assert_eq!(answer.error_message()?, *message, "`{body}`");
    }

    let answer = tsdb.http().get("/api/put").await?;
    assert_eq!(
        (answer.status, answer.error_message()?.as_str()),
        (405, "Method not allowed")
    );
    let answer = tsdb.http().get("/api/nonsense").await?;
    assert_eq!(
        (answer.status, answer.error_message()?.as_str()),
        (404, "Endpoint not found")
    );

    // Nested so deep that a parser which calls itself would run out of stack.
    for open in ["[", "{\"a\":"] {
        let body = open.repeat(200_000).into_bytes();
        let answer = tsdb.http().post_bytes("/api/put", &[], body).await?;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(tsdb.http().get("/api/version").await?.status, 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_and_a_null_point_are_treated_as_opentsdb_does() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut point = Sample::int(GOOD, &[("door", "unknown")], T, 0).to_json();
    point["comment"] = json!({"any": ["thing", 1, null]});
    let answer = tsdb
        .http()
        .post("/api/put?details", &json!([point, null]))
        .await?;
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = answer.json()?;
    assert_eq!((&answer["success"], &answer["failed"]), (&json!(1), &json!(1)));
    assert_eq!(
        answer["errors"][0]["error"],
        "Unexpected null datapoint encountered in set."
    );
    check_good(&tsdb, "unknown", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn gzip_is_read_and_broken_gzip_refused() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int(GOOD, &[("door", "gzip")], T, 0).to_json();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(point.to_string().as_bytes())?;
    let whole = encoder.finish()?;
    let gzip = [("Content-Encoding", "gzip")];

    let half = whole[..whole.len() / 2].to_vec();
    let mut damaged = whole.clone();
    let last = damaged.len() - 6;
    damaged[last] ^= 0xff;
    for broken in [half, damaged, b"no gzip at all".to_vec()] {
        let answer = tsdb.http().post_bytes("/api/put", &gzip, broken).await?;
        assert_eq!(answer.status, 400, "{answer:?}");
        answer.error_message()?;
    }
    let answer = tsdb.http().post_bytes("/api/put", &gzip, whole).await?;
    assert_eq!(answer.status, 204, "{answer:?}");
    check_good(&tsdb, "gzip", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn telnet_answers_bad_lines_with_opentsdbs_texts() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut telnet = tsdb.telnet().await?;
    let cases: &[(&str, &str)] = &[
        (
            "put m 1500000000 1",
            "put: illegal argument: not enough arguments (need least 4, got 3)",
        ),
        ("put m 0 1 host=a", "put: illegal argument: invalid timestamp: 0"),
        (
            "put m x 1 host=a",
            "put: invalid value: Invalid character 'x' in x",
        ),
        (
            "put m 1500000000 x host=a",
            "put: invalid value: Invalid character 'x' in x",
        ),
        ("put m 1500000000  host=a", "put: illegal argument: empty value"),
        (
            "put  1500000000 1 host=a",
            "put: illegal argument: empty metric name",
        ),
        (
            "put m 1500000000 1 host",
            "put: illegal argument: invalid tag: host",
        ),
        (
            "put m 1500000000 1 host=a host=b",
            "put: illegal argument: duplicate tag: host=b, tags={host=a}",
        ),
        ("nonsense 1 2 3", "unknown command: nonsense.  Try `help'."),
        ("", "unknown command: .  Try `help'."),
    ];
    for (number, (line, reply)) in cases.iter().enumerate() {
        let number = i64::try_from(number)?;
        let good = Sample::int(GOOD, &[("door", "telnet")], T + number * 1000, number).to_telnet_line();
        // The good line comes first and with a bad one in a packet: one must not harm the other.
        telnet.send(format!("{good}{line}\n").as_bytes()).await?;
        assert_eq!(telnet.line().await?, *reply, "`{line}`");
    }
    until("the good lines are stored", || {
        check_good(&tsdb, "telnet", cases.len())
    })
    .await?;

    for line in [
        "put m 1500000000 1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
        "put m 1500000000 NaN host=a",
        "put m 1500000000 Infinity host=a",
        "put m 1500000000 99999999999999999999 host=a",
        "put m 99999999999999 1 host=a",
        "put a:b 1500000000 1 host=a",
        "put m 1500000000 1 ho:st=a",
        "put m 1500000000 1 host=a:b",
    ] {
        telnet.send(format!("{line}\n").as_bytes()).await?;
        let reply = telnet.line().await?;
        assert!(reply.starts_with("put: "), "`{line}`: `{reply}`");
    }
    telnet.send(b"exit\n").await?;
    assert_eq!(telnet.rest().await?, "");
    assert!(
        read_back::series_of_or_none(&mut tsdb.data(), "m")
            .await?
            .is_empty()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_telnet_line_is_not_stored() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let mut telnet = tsdb.telnet().await?;
    // The second line would be a point even so; its value could go on, so it is none.
    let whole = Sample::int(GOOD, &[("door", "half")], T, 0).to_telnet_line();
    let next = Sample::int(GOOD, &[("door", "half")], T + 1000, 1).to_telnet_line();
    telnet
        .send(format!("{whole}{}", next.trim_end()).as_bytes())
        .await?;
    telnet.finish().await?;
    until("the whole line is stored", || check_good(&tsdb, "half", 1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telnet_line_over_the_limit_closes_the_connection() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for ended in [false, true] {
        let mut telnet = tsdb.telnet().await?;
        let mut line = format!("put m 1500000000 1 host={}", "x".repeat(5000));
        if ended {
            line.push('\n');
        }
        telnet.send(line.as_bytes()).await?;
        let reply = telnet.rest().await?;
        assert!(
            !reply.is_empty() && reply.ends_with('\n'),
            "an error before the end: `{reply}`"
        );
    }
    assert!(
        read_back::series_of_or_none(&mut tsdb.data(), "m")
            .await?
            .is_empty()
    );
    Ok(())
}

/// A question that is refused.
struct BadQuery {
    what: &'static str,
    request: QueryRequest,
    code: Code,
    reason: ErrorReason,
    says: &'static [&'static str],
}

fn bad_queries() -> Vec<BadQuery> {
    let sum = || sub_query(GOOD, AggregateFunction::Sum);
    let ask = |query: SubQuery| QueryRequest {
        range: Some(always()),
        queries: vec![query],
        ..QueryRequest::default()
    };
    let filter = |key: &str, value: &str| TagFilter {
        key: key.to_owned(),
        r#type: FilterType::LiteralOr.into(),
        values: vec![value.to_owned()],
        ..TagFilter::default()
    };
    let filtered = |filter: TagFilter| {
        let mut query = sum();
        if let Some(Source::Metric(MetricSource { filters, .. })) = &mut query.source {
            filters.push(filter);
        }
        ask(query)
    };
    let refusal = |what, request, code, reason, says| BadQuery {
        what,
        request,
        code,
        reason,
        says,
    };
    use Code::{InvalidArgument, NotFound};
    vec![
        refusal(
            "unknown metric",
            ask(sub_query("no.such.metric", AggregateFunction::Sum)),
            NotFound,
            NameNotFound,
            &["no.such.metric"],
        ),
        refusal(
            "unknown tag key",
            filtered(filter("nokey", "query")),
            NotFound,
            NameNotFound,
            &["nokey"],
        ),
        refusal(
            "unknown tag value",
            filtered(filter("door", "novalue")),
            NotFound,
            NameNotFound,
            &["novalue"],
        ),
        refusal(
            "end before start",
            QueryRequest {
                range: Some(range(2000, 1000)),
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["end"],
        ),
        refusal(
            "no range",
            QueryRequest {
                range: None,
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["range"],
        ),
        refusal(
            "no questions",
            QueryRequest {
                queries: Vec::new(),
                ..ask(sum())
            },
            InvalidArgument,
            InvalidField,
            &["queries"],
        ),
        refusal(
            "no source",
            ask(SubQuery {
                source: None,
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["source"],
        ),
        refusal(
            "no aggregator",
            ask(sub_query(GOOD, AggregateFunction::Unspecified)),
            InvalidArgument,
            InvalidField,
            &["aggregator"],
        ),
        refusal(
            "an aggregator of the future",
            ask(SubQuery {
                aggregator: 4711,
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["aggregator", "4711"],
        ),
        refusal(
            "no interval",
            ask(SubQuery {
                downsample: Some(Downsample {
                    interval: None,
                    function: AggregateFunction::Avg.into(),
                    ..Downsample::default()
                }),
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["interval"],
        ),
        refusal(
            "downsampling with none",
            ask(SubQuery {
                downsample: Some(Downsample {
                    interval: Some(downsample::Interval::WholeRange(true)),
                    function: AggregateFunction::None.into(),
                    ..Downsample::default()
                }),
                ..sum()
            }),
            InvalidArgument,
            InvalidField,
            &["function"],
        ),
        refusal(
            "a TSUID of a wrong length",
            ask(SubQuery {
                source: Some(Source::Tsuids(TsuidSource {
                    tsuids: vec![vec![0, 0, 1, 0].into()],
                    filters: Vec::new(),
                })),
                ..sum()
            }),
            InvalidArgument,
            InvalidUidWidth,
            &["tsuid"],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn query_names_the_field_that_is_wrong() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let request = WriteRequest {
        points: vec![Sample::int(GOOD, &[("door", "query")], T, 0).to_point()],
        ..WriteRequest::default()
    };
    tsdb.data().write(request).await?;
    for bad in bad_queries() {
        let status = query_refused(&mut tsdb.data(), bad.request)
            .await
            .context(bad.what)?;
        assert_eq!(status.code(), bad.code, "{}: {status:?}", bad.what);
        assert_eq!(reason_of(&status), Some(bad.reason), "{}: {status:?}", bad.what);
        for part in bad.says {
            let message = status.message().to_ascii_lowercase();
            assert!(message.contains(part), "{}: {status:?}", bad.what);
        }
        if bad.reason == InvalidField {
            let violations = status
                .get_details_bad_request()
                .context(bad.what)?
                .field_violations;
            assert!(!violations.is_empty(), "{}: no field", bad.what);
        }
    }
    check_good(&tsdb, "query", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn http_queries_are_refused_as_opentsdb_does() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int(GOOD, &[("door", "query")], T, 0).to_json();
    tsdb.http().post("/api/put", &point).await?;
    let cases: &[(&str, &str)] = &[
        (
            "start=1&m=sum:no.such.metric",
            "No such name for 'metrics': 'no.such.metric'",
        ),
        (
            "start=1&m=sum:good.points%7Bnokey=x%7D",
            "No such name for 'tagk': 'nokey'",
        ),
        (
            "start=1&m=sum:good.points%7Bdoor=novalue%7D",
            "No such name for 'tagv': 'novalue'",
        ),
        (
            "start=1&m=bogus:good.points",
            "No such aggregation function: bogus",
        ),
        ("start=1", "Missing sub queries"),
    ];
    for (query, message) in cases {
        let answer = tsdb.http().get(&format!("/api/query?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert_eq!(answer.error_message()?, *message, "{query}");
    }
    for query in [
        "start=2000&end=1000&m=sum:good.points",
        "start=nonsense&m=sum:good.points",
        "m=sum:good.points",
        "start=1&m=sum:1x-avg:good.points",
    ] {
        let answer = tsdb.http().get(&format!("/api/query?{query}")).await?;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(!answer.error_message()?.is_empty(), "{query}");
    }
    Ok(())
}
