use proptest::prelude::*;

use super::*;
use crate::testing::{TableRow, read, read_batches};
use crate::{END, schema};

const T: i64 = 1_767_571_200_000;

fn series(query: usize, number: usize, tags: &[(&str, &str)]) -> Series {
    Series::new(query, number, "sys.cpu.user", tags.iter().copied())
}

/// A stream of series with their rows.
fn stream(all: &[(Series, Vec<Row>)]) -> Vec<u8> {
    let mut stream = schema();
    let mut batch = BatchWriter::default();
    for (series, rows) in all {
        let mut rows = rows.iter().copied().peekable();
        while rows.peek().is_some() {
            batch.fill(series, &mut rows);
            if batch.is_full() {
                let bytes = batch.bytes();
                let messages = batch.take();
                assert!(
                    messages.len() <= bytes + 2048,
                    "{} of {bytes} bytes",
                    messages.len()
                );
                stream.extend(messages);
            }
        }
    }
    stream.extend(batch.take());
    stream.extend(END);
    stream
}

fn row(second: i64, value: Value) -> Row {
    Row {
        time_ms: T + second * 1000,
        value,
    }
}

fn rows(count: i64) -> Vec<Row> {
    (0..count).map(|n| row(n, Value::Int(n))).collect()
}

/// The rows that a reader has to find.
fn expected(all: &[(Series, Vec<Row>)]) -> Vec<TableRow> {
    let of_series = |(series, rows): &(Series, Vec<Row>)| {
        let series = series.clone();
        let table_row = move |row: &Row| {
            let (value, integer) = match row.value {
                Value::Int(integer) => (Some(integer as f64), Some(integer)),
                Value::Double(double) => (Some(double), None),
                Value::Null => (None, None),
            };
            TableRow {
                metric: series.metric.to_string(),
                timestamp_ms: row.time_ms,
                value,
                integer,
                tags: series
                    .tags
                    .iter()
                    .map(|(key, value)| (key.to_string(), value.to_string()))
                    .collect(),
                query: i32::try_from(series.query).unwrap(),
                series: i32::try_from(series.number).unwrap(),
            }
        };
        rows.iter().map(table_row).collect::<Vec<_>>()
    };
    all.iter().flat_map(of_series).collect()
}

/// The stream in `golden.hex`, which `tests/real/arrow.sh` reads with other readers.
fn golden() -> Vec<(Series, Vec<Row>)> {
    let first = vec![
        row(0, Value::Int(i64::MAX)),
        row(1, Value::Double(-0.5)),
        row(2, Value::Null),
    ];
    vec![
        (series(0, 0, &[("host", "web01"), ("dc", "lga")]), first),
        (Series::new::<&str>(1, 1, "é", []), vec![row(0, Value::Int(7))]),
    ]
}

#[test]
fn a_stream_has_the_bytes_that_other_readers_have_read() {
    let lines = include_str!("golden.hex").lines().collect::<String>();
    let stream = stream(&golden());
    assert_eq!(hex::encode(&stream), lines, "{}", folded(&stream));
    assert_eq!(read(&stream).unwrap(), expected(&golden()));
}

/// Bytes in lines of 32.
fn folded(bytes: &[u8]) -> String {
    bytes.chunks(32).map(|line| hex::encode(line) + "\n").collect()
}

#[test]
fn a_stream_without_rows_is_a_table_without_rows() {
    let empty = stream(&[]);
    assert_eq!(empty, [schema(), END.to_vec()].concat());
    assert_eq!(read(&empty).unwrap(), []);
    assert_eq!(stream(&[(series(0, 0, &[]), Vec::new())]), empty);
}

#[test]
fn batches_are_bounded_by_rows_and_bytes() {
    let many = [(series(0, 0, &[("host", "a")]), rows(20_000))];
    let long: String = "x".repeat(1000);
    let large = [(series(0, 1, &[(&*long, "a"), ("host", &*long)]), rows(3000))];
    let sizes = |all: &[_]| {
        let stream = stream(all);
        assert_eq!(read(&stream).unwrap(), expected(all));
        let batches = read_batches(&stream).unwrap();
        batches.iter().map(Vec::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&many), [8192, 8192, 3616]);
    let large = sizes(&large);
    assert!(
        large.len() == 4 && large[..3].iter().all(|rows| *rows > 900),
        "{large:?}"
    );
}

#[test]
fn a_dictionary_is_sent_when_it_has_changed() {
    let one = |count| vec![(series(0, 0, &[("host", "a")]), rows(count))];
    let dictionaries = |all: &[_]| {
        let stream = stream(all);
        // The type of a message in its metadata: the first fields of the root table are the version, 4, and the type.
        stream.windows(4).filter(|bytes| *bytes == [4, 0, 2, 0]).count()
    };
    assert_eq!(dictionaries(&one(1)), 2);
    assert_eq!(dictionaries(&one(20_000)), 2);
    let mut all = one(20_000);
    all.push((series(0, 1, &[("host", "b")]), rows(20_000)));
    assert_eq!(dictionaries(&all), 3, "another value");
    // So many values that the next batch has another dictionary.
    let many = |n: usize| (series(0, n, &[("host", &*format!("web{n:0100}"))]), rows(1));
    let many: Vec<_> = (0..20_000).map(many).collect();
    assert_eq!(read(&stream(&many)).unwrap(), expected(&many));
}

#[test]
fn an_incomplete_stream_is_an_error() {
    let stream = stream(&golden());
    for length in 0..stream.len() {
        assert!(read(&stream[..length]).is_err(), "{length} bytes");
    }
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        proptest::num::f64::NORMAL.prop_map(Value::Double),
        Just(Value::Null)
    ]
}

proptest! {
    #[test]
    fn rows_are_read_as_they_were_written(
        all in proptest::collection::vec(
            (
                0..3_usize,
                "[a-z]{1,3}",
                proptest::collection::btree_map("[a-z]{1,3}", "\\PC{0,5}", 0..4),
                proptest::collection::vec((any::<i64>(), values()), 0..20),
            ),
            0..10,
        )
    ) {
        let all: Vec<(Series, Vec<Row>)> = all
            .into_iter()
            .enumerate()
            .map(|(number, (query, metric, tags, rows))| {
                let rows = rows.into_iter().map(|(time_ms, value)| Row { time_ms, value });
                (Series::new(query, number, metric, tags), rows.collect())
            })
            .collect();
        prop_assert_eq!(read(&stream(&all)).unwrap(), expected(&all));
    }
}
