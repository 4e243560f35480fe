use oxtsdb_proto::common::v1::SeriesName;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration, block};
use oxtsdb_proto::data::v1::{Columns, DoubleColumn, IntColumn, TimestampPrecision, WriteColumnsRequest};
use oxtsdb_proto::error::reason_of;
use tonic::Code;
use tonic_types::StatusExt as _;
use uid_service::UidSettings;

use super::*;
use crate::settings::DataSettings;
use crate::test_stack::{Gate, TestStack};

fn point(metric: &str, tags: &[(&str, &str)], timestamp_ms: i64, value: Option<point::Value>) -> Point {
    let tags = tags.iter().map(|(key, value)| Tag {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    });
    let name = SeriesName {
        metric: metric.to_owned(),
        tags: tags.collect(),
    };
    Point {
        series: Some(SeriesKey {
            key: Some(series_key::Key::Name(name)),
        }),
        timestamp_ms,
        value,
    }
}

fn int(value: i64) -> Option<point::Value> {
    Some(point::Value::IntValue(value))
}

fn double(value: f64) -> Option<point::Value> {
    Some(point::Value::DoubleValue(value))
}

#[tokio::test]
async fn a_mixed_batch_stores_the_good_and_tells_the_bad() {
    let stack = TestStack::start().await;
    let host = [("host", "a")];
    let tsuid = series_key::Key::Tsuid(vec![0, 0, 1, 0, 0, 1, 0, 0, 1].into());
    let points = vec![
        point("m", &host, 1000, int(1)),
        point("m", &host, 0, int(1)),
        point("", &host, 1000, int(1)),
        point("m", &host, 1000, None),
        point("m", &host, 1000, double(f64::NAN)),
        point("m", &host, 1500, double(0.5)),
        Point {
            series: None,
            timestamp_ms: 1000,
            value: int(1),
        },
        point("m", &host, 2000, double(4.2)),
    ];
    let mut client = stack.client();
    let request = WriteRequest {
        points: points.clone(),
        ..WriteRequest::default()
    };
    let answer = client.write(request).await.unwrap().into_inner();
    assert_eq!((answer.written, answer.failed), (3, 5));
    let told: Vec<_> = answer
        .errors
        .iter()
        .map(|error| {
            let item = error.error.as_ref().unwrap();
            assert_eq!(
                (item.code, error.count),
                (Code::InvalidArgument as i32, 1),
                "{item:?}"
            );
            (error.point, item.reason(), item.message.as_str())
        })
        .collect();
    let expected = [
        (
            1,
            ErrorReason::InvalidTimestamp,
            "timestamp 0 ms is out of range, expected 1 to 4294967295999",
        ),
        (2, ErrorReason::InvalidName, "metric: name is empty"),
        (3, ErrorReason::InvalidValue, "value is missing"),
        (4, ErrorReason::InvalidValue, "value is NaN or Infinite: NaN"),
        (6, ErrorReason::InvalidField, "series is missing"),
    ];
    assert_eq!(told, expected);
    let expected = [
        "00000100000000000001000001 t:0010 01",
        "00000100000000000001000001 t:002f 4010cccccccccccd",
        "00000100000000000001000001 t:f001770b 3f000000",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);

    let again = Point {
        series: Some(SeriesKey { key: Some(tsuid) }),
        timestamp_ms: 1000,
        value: int(1),
    };
    let request = WriteRequest {
        points: vec![again],
        ..WriteRequest::default()
    };
    assert_eq!(client.write(request).await.unwrap().into_inner().written, 1);
    assert_eq!(stack.cells("tsdb").await, expected, "the same cell by its TSUID");

    let request = WriteRequest {
        points,
        max_errors: 2,
        ..WriteRequest::default()
    };
    let answer = client.write(request).await.unwrap().into_inner();
    assert_eq!((answer.failed, answer.errors.len()), (5, 2));
}

#[tokio::test]
async fn the_precision_decides_the_qualifier() {
    let stack = TestStack::start().await;
    let write = async |precision: TimestampPrecision, timestamp_ms| {
        let points = vec![point("m", &[("host", "a")], timestamp_ms, int(1))];
        let request = WriteRequest {
            points,
            precision: precision.into(),
            max_errors: 0,
        };
        stack.client().write(request).await.unwrap().into_inner().written
    };
    assert_eq!(write(TimestampPrecision::Milliseconds, 1000).await, 1);
    assert_eq!(write(TimestampPrecision::Seconds, 2000).await, 1);
    assert_eq!(write(TimestampPrecision::Seconds, 2001).await, 0);
    let expected = [
        "00000100000000000001000001 t:0020 01",
        "00000100000000000001000001 t:f000fa00 01",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);

    let request = WriteRequest {
        points: vec![Point::default()],
        precision: 7,
        max_errors: 0,
    };
    let status = stack.client().write(request).await.unwrap_err();
    assert_eq!(
        status.message(),
        "precision: 7 is not a precision, expected 0, 1 or 2"
    );
}

#[tokio::test]
async fn a_batch_has_1_to_10000_points() {
    let stack = TestStack::start().await;
    for count in [0, 10_001] {
        let points = vec![point("m", &[("host", "a")], 1000, int(1)); count];
        let status = stack
            .client()
            .write(WriteRequest {
                points,
                ..WriteRequest::default()
            })
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge));
        assert_eq!(
            status.message(),
            format!("points: has {count} points, expected 1 to 10000")
        );
    }
    let status = stack
        .client()
        .write_columns(WriteColumnsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge));
}

#[tokio::test]
async fn a_message_over_the_limit_is_out_of_range() {
    let mut settings = DataSettings::default();
    settings.connections.max_message_mib = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let name = "n".repeat(2 << 20);
    let points = vec![point(&name, &[("host", "a")], 1000, int(1))];
    let status = stack
        .client()
        .write(WriteRequest {
            points,
            ..WriteRequest::default()
        })
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
}

/// Two series of one metric, by symbols.
fn declarations() -> Columns {
    Columns {
        new_symbols: ["m", "host", "a", "b"].map(str::to_owned).to_vec(),
        new_series: [2, 3]
            .map(|tagv| SeriesDeclaration {
                metric_symbol: 0,
                tag_symbols: vec![1, tagv],
                ..Default::default()
            })
            .to_vec(),
        blocks: Vec::new(),
    }
}

fn ints(series: Vec<u32>, base_timestamp_ms: i64, deltas: Vec<i64>, values: Vec<i64>) -> Block {
    let values = Some(block::Values::Ints(IntColumn { values }));
    Block {
        series,
        base_timestamp_ms,
        timestamp_deltas_ms: deltas,
        values,
    }
}

#[tokio::test]
async fn columns_are_the_points_that_they_stand_for() {
    let stack = TestStack::start().await;
    let doubles = Block {
        series: vec![1],
        base_timestamp_ms: 3_600_000,
        timestamp_deltas_ms: vec![0, 500],
        values: Some(block::Values::Doubles(DoubleColumn {
            values: vec![0.5, 4.2],
        })),
    };
    let blocks = vec![
        ints(vec![0, 1, 0], 0, vec![1000, 0, 1000], vec![1, 2, 300]),
        doubles,
    ];
    let request = WriteColumnsRequest {
        columns: Some(Columns {
            blocks,
            ..declarations()
        }),
        ..Default::default()
    };
    let answer = stack
        .client()
        .write_columns(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert_eq!((answer.written, answer.failed, answer.errors.len()), (5, 0, 0));
    let expected = [
        "00000100000000000001000001 t:0010 01",
        "00000100000000000001000001 t:0021 012c",
        "00000100000000000001000002 t:0010 02",
        "00000100000e10000001000002 t:000b 3f000000",
        "00000100000e10000001000002 t:f0007d0f 4010cccccccccccd",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
    stack.client().write_columns(request).await.unwrap();
    assert_eq!(stack.cells("tsdb").await, expected, "the same points once more");
}

#[tokio::test]
async fn bad_points_of_columns_are_told_in_runs() {
    let stack = TestStack::start().await;
    let mut columns = declarations();
    columns.new_symbols.push("a b".to_owned());
    columns.new_series.push(SeriesDeclaration {
        metric_symbol: 4,
        tag_symbols: vec![1, 2],
        ..Default::default()
    });
    columns.new_series.push(SeriesDeclaration {
        tag_symbols: [1, 2].repeat(9),
        ..Default::default()
    });
    columns.blocks = vec![
        // Numbers 0 to 4: the third series is illegal.
        ints(vec![0, 2, 2, 2, 1], 1000, vec![0; 5], vec![1; 5]),
        // 5 to 7: more timestamps than values.
        ints(vec![0], 1000, vec![0; 3], vec![1]),
        // 8 to 10: one timestamp is negative.
        ints(vec![0], 1000, vec![0, -5000, 5000], vec![1; 3]),
        // 11 to 13: from the second on the sum is beyond 64 bits.
        ints(
            vec![0],
            i64::MAX,
            vec![-i64::MAX + 2000, i64::MAX, i64::MAX],
            vec![1; 3],
        ),
        // 14: nine tags.
        ints(vec![3], 1000, vec![0], vec![1]),
    ];
    let request = WriteColumnsRequest {
        columns: Some(columns),
        ..Default::default()
    };
    let answer = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((answer.written, answer.failed), (5, 10));
    let told: Vec<_> = answer
        .errors
        .iter()
        .map(|error| {
            let item = error.error.as_ref().unwrap();
            (error.point, error.count, item.reason(), item.message.as_str())
        })
        .collect();
    let overflow = "timestamp is out of range, the deltas overflow 64 bits";
    let expected = [
        (
            1,
            3,
            ErrorReason::InvalidName,
            "metric: name `a b` has the illegal character ` ` at position 1, allowed are letters, digits, `-`, `_`, `.` and `/`",
        ),
        (
            5,
            3,
            ErrorReason::InvalidField,
            "block has 1 series, 3 timestamps and 1 values, expected as many values as timestamps",
        ),
        (
            9,
            1,
            ErrorReason::InvalidTimestamp,
            "timestamp -4000 ms is out of range, expected 1 to 4294967295999",
        ),
        (12, 1, ErrorReason::InvalidTimestamp, overflow),
        (13, 1, ErrorReason::InvalidTimestamp, overflow),
        (
            14,
            1,
            ErrorReason::InvalidTags,
            "series has 9 tags, at most 8 are allowed",
        ),
    ];
    assert_eq!(told, expected);
}

/// One point each of series that share a tag value and differ in another.
fn many_series(count: u32, shared: String) -> WriteColumnsRequest {
    let mut columns = Columns {
        new_symbols: vec!["m".to_owned(), "a".to_owned(), shared, "b".to_owned()],
        ..Columns::default()
    };
    for number in 0..count {
        columns.new_symbols.push(number.to_string());
        columns.new_series.push(SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2, 3, 4 + number],
            tsuid: Default::default(),
        });
    }
    let points = count as usize;
    columns.blocks = vec![ints((0..count).collect(), 1000, vec![0; points], vec![1; points])];
    WriteColumnsRequest {
        columns: Some(columns),
        max_errors: count,
        ..WriteColumnsRequest::default()
    }
}

#[tokio::test]
async fn a_long_bad_name_of_many_series_is_told_as_an_excerpt() {
    let stack = TestStack::start().await;
    let request = many_series(200, "!".repeat(1 << 20));
    let answer = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((answer.written, answer.failed), (0, 200));
    assert_eq!(answer.errors.len(), 200);
    let size = prost::Message::encoded_len(&answer);
    assert!(size < 200 * 1024, "{size} bytes");
}

#[tokio::test]
async fn series_whose_names_are_many_bytes_are_resolved_in_parts() {
    let stack = TestStack::start().await;
    let request = many_series(600, "x".repeat(32_000));
    let answer = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((answer.written, answer.failed), (600, 0));
    assert_eq!(
        stack.cells("tsdb").await.len(),
        600,
        "each series has a row of its own"
    );
}

#[tokio::test]
async fn overload_is_unavailable_and_says_which_limit() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::stack(settings).await;
    let columns = |count| WriteColumnsRequest {
        columns: Some(Columns {
            blocks: vec![ints(vec![0], 1000, vec![1000; count], vec![1; count])],
            ..declarations()
        }),
        ..WriteColumnsRequest::default()
    };
    let mut client = stack.client();
    let large = tokio::spawn(async move { client.write_columns(columns(200_000)).await });
    gate.until_waiting(1).await;
    // Not before: large columns are encoded by a thread that knows no paused clock.
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    let status = stack.client().write_columns(columns(10)).await.unwrap_err();
    assert!(
        began.elapsed() <= std::time::Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Unavailable, Some(ErrorReason::Overloaded)),
        "{status:?}"
    );
    let message = status.message();
    assert!(
        message.contains("1 MiB") && message.contains("--max-writes-mib"),
        "{message}"
    );
    assert!(status.get_details_retry_info().is_some());
    let metadata = status.get_details_error_info().unwrap().metadata;
    assert_eq!(metadata["setting"], "--max-writes-mib");
    gate.release(10);
    assert_eq!(large.await.unwrap().unwrap().into_inner().written, 200_000);
    assert_eq!(
        stack
            .client()
            .write_columns(columns(10))
            .await
            .unwrap()
            .into_inner()
            .written,
        10
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_uid_service_columns_of_known_series_are_stored() {
    let (stack, gate) = Gate::uid_stack().await;
    gate.release(1);
    let known = SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, 2],
        ..Default::default()
    };
    let unknown = SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, 3],
        ..Default::default()
    };
    let request = |series: Vec<SeriesDeclaration>| {
        let numbers = 0..u32::try_from(series.len()).unwrap();
        let blocks = numbers.map(|number| ints(vec![number], 1000, vec![0, 1000], vec![1, 2]));
        WriteColumnsRequest {
            columns: Some(Columns {
                new_symbols: ["m", "host", "a", "new"].map(str::to_owned).to_vec(),
                blocks: blocks.collect(),
                new_series: series,
            }),
            ..WriteColumnsRequest::default()
        }
    };
    let mut client = stack.client();
    let response = client.write_columns(request(vec![known.clone()])).await.unwrap();
    assert_eq!(response.into_inner().written, 2);
    let response = client
        .write_columns(request(vec![unknown.clone(), known]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (response.written, response.failed, response.errors.len()),
        (2, 2, 1)
    );
    assert!(response.errors[0].error.as_ref().unwrap().retryable);
    let status = client.write_columns(request(vec![unknown])).await.unwrap_err();
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::UidServiceUnavailable),
        "{status:?}"
    );
}

#[tokio::test]
async fn columns_that_refer_to_nothing_are_refused_as_a_whole() {
    let stack = TestStack::start().await;
    let refused = async |change: fn(&mut Columns)| {
        let mut columns = declarations();
        columns.blocks = vec![ints(vec![0], 1000, vec![0], vec![1])];
        change(&mut columns);
        let request = WriteColumnsRequest {
            columns: Some(columns),
            ..Default::default()
        };
        let status = stack.client().write_columns(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        (reason_of(&status).unwrap(), status.message().to_owned())
    };
    let undeclared = |message: &str| (ErrorReason::UndeclaredReference, message.to_owned());
    assert_eq!(
        refused(|columns| columns.blocks.push(ints(vec![2], 1000, vec![0], vec![1]))).await,
        undeclared("columns.blocks[1].series: refers to series 2, 2 are declared")
    );
    assert_eq!(
        refused(|columns| columns.new_series[1].metric_symbol = 4).await,
        undeclared("columns.new_series[1].metric_symbol: refers to symbol 4, 4 are declared")
    );
    assert_eq!(
        refused(|columns| columns.new_series[1].tag_symbols[1] = u32::MAX).await,
        undeclared("columns.new_series[1].tag_symbols: refers to symbol 4294967295, 4 are declared")
    );
    assert_eq!(
        refused(|columns| columns.new_series[0].tag_symbols.push(0)).await,
        (
            ErrorReason::InvalidTags,
            "columns.new_series[0].tag_symbols: has 3 elements, expected pairs of key and value".to_owned()
        )
    );
    assert_eq!(stack.cells("tsdb").await, Vec::<String>::new());
}

mod any_columns {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn series() -> impl Strategy<Value = SeriesDeclaration> {
        let tsuid = prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..12)];
        (0..6_u32, vec(0..6_u32, 0..20), tsuid).prop_map(|(metric_symbol, tag_symbols, tsuid)| {
            SeriesDeclaration {
                metric_symbol,
                tag_symbols,
                tsuid: tsuid.into(),
            }
        })
    }

    fn blocks() -> impl Strategy<Value = Block> {
        let base = prop_oneof![any::<i64>(), 0..4_294_967_296_000_i64];
        let deltas = vec(prop_oneof![any::<i64>(), -5000..5000_i64], 0..4);
        let values = prop_oneof![
            Just(None),
            vec(any::<i64>(), 0..4).prop_map(|values| Some(block::Values::Ints(IntColumn { values }))),
            vec(any::<f64>(), 0..4).prop_map(|values| Some(block::Values::Doubles(DoubleColumn { values }))),
        ];
        (vec(0..4_u32, 0..4), base, deltas, values).prop_map(|(series, base_timestamp_ms, deltas, values)| {
            Block {
                series,
                base_timestamp_ms,
                timestamp_deltas_ms: deltas,
                values,
            }
        })
    }

    proptest! {
        #[test]
        fn are_refused_or_every_point_of_them_is_accounted_for(
            new_symbols in vec("[a-c é日 ]{0,3}", 0..8),
            new_series in vec(series(), 0..4),
            blocks in vec(blocks(), 0..5),
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let columns = Columns { new_symbols, new_series, blocks };
            let count = convert::point_count(&columns) as u64;
            runtime.block_on(async {
                let stack = TestStack::start().await;
                let request = WriteColumnsRequest { columns: Some(columns), ..Default::default() };
                match stack.client().write_columns(request).await {
                    Ok(answer) => {
                        let answer = answer.into_inner();
                        assert_eq!(answer.written + answer.failed, count);
                        let told: u64 = answer.errors.iter().map(|error| error.count).sum();
                        assert_eq!(told, answer.failed, "no more errors than are told");
                        let cells = stack.cells("tsdb").await.len() as u64;
                        assert!(cells <= answer.written && (cells > 0) == (answer.written > 0));
                    }
                    Err(status) => {
                        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
                        assert_eq!(stack.cells("tsdb").await, Vec::<String>::new());
                    }
                }
            });
        }
    }
}
