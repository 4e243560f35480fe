use proptest::prelude::*;

use super::*;
use crate::row_key::{RowKeyLayout, write_row_key};
use crate::timestamp::BaseTime;
use crate::value::parse_telnet;

/// The configuration of the vectors.
const CONFIG: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
    "intervals": [
        {"table": "tsdb", "preAggregationTable": "r1m-agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"}
    ]}"#;

fn config() -> RollupConfig {
    RollupConfig::parse(CONFIG).unwrap()
}

fn interval(interval: &str, row_span: &str) -> Result<RollupInterval, RollupConfigError> {
    let json = format!(
        r#"{{"aggregationIds":{{"sum":0}},"intervals":[{{"table":"t","preAggregationTable":"a","interval":"{interval}",
            "rowSpan":"{row_span}"}}]}}"#
    );
    RollupConfig::parse(&json).map(|config| config.intervals()[0].clone())
}

#[test]
fn stores_rollups_byte_for_byte_as_opentsdb() {
    // Written by OpenTSDB 2.4.1: interval, aggregator, time and value of the line; TSUID; row key, qualifier and value.
    for line in "
        1h sum 1356998400 42 000001000001000001 00000150e22700000001000001 000000 2a
        1h count 1357016400 60 000001000001000001 00000150e22700000001000001 010050 3c
        1h sum 1357081259 3.5 000001000001000001 00000150e22700000001000001 00017b 40600000
        1h sum 1357005600 70000 000001000001000001000002000003 00000150e22700000001000001000002000003 000023 00011170
        1m min 1356998520 -9 000001000001000001 00000150e22700000001000001 020020 f7"
        .lines()
        .skip(1)
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, aggregator, seconds, value, tsuid, key, stored, bytes] = words[..] else {
            panic!("{line}");
        };
        let config = config();
        let interval = config.interval(name).unwrap();
        let (base, offset) = interval.place(seconds.parse().unwrap()).unwrap();
        let value = parse_telnet(value).unwrap();
        let id = config.id(aggregator).unwrap();
        let cell = qualifier(id, offset, &value);
        let mut row = Vec::new();
        write_row_key(&RowKeyLayout::default(), &hex::decode(tsuid).unwrap(), base, &mut row);
        assert_eq!(hex::encode(row), key);
        assert_eq!(hex::encode(cell), stored);
        assert_eq!(hex::encode(value.encoded()), bytes);
        let expected = RollupCell {
            aggregate: Aggregate::Id(id),
            offset,
            value,
        };
        assert_eq!(RollupCell::decode(&cell, value.encoded().as_bytes(), interval), Ok(expected));
    }
}

#[test]
fn offsets_that_opentsdb_cannot_read_are_not_encoded() {
    let interval = interval("1s", "2h").unwrap();
    let base = 1_356_998_400;
    assert_eq!(
        interval.place(base + 3839),
        Ok((BaseTime::from_seconds(base), 3839))
    );
    assert_eq!(hex::encode(qualifier(0, 3839, &Value::Int(1))), "00eff0");
    for offset in [3840, 4096, 7199] {
        let error = interval.place(base + offset).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("offset of {offset} intervals of `1s` in a row of `2h`, at most 3839 can be stored")
        );
    }
}

#[test]
fn reads_qualifiers_with_names() {
    let config = config();
    let interval = config.interval("1h").unwrap();
    let cell = hex::decode("73756d3a0010").unwrap();
    let decoded = RollupCell::decode(&cell, &[42], interval).unwrap();
    assert_eq!((decoded.offset, decoded.value), (1, Value::Int(42)));
    assert!(decoded.aggregate.is(0, "sum") && !decoded.aggregate.is(1, "count"));
}

#[test]
fn rejects_other_cells() {
    let config = config();
    let interval = config.interval("1h").unwrap();
    for wrong in ["", "00", "0010", "003a0010", "00000010", "73c33a0010"] {
        let error = RollupCell::decode(&hex::decode(wrong).unwrap(), &[1], interval).unwrap_err();
        assert!(matches!(error, RollupError::Qualifier { .. }), "{wrong}: {error}");
    }
    let error = RollupCell::decode(&[0, 0x01, 0x80], &[1], interval).unwrap_err();
    assert_eq!(
        error.to_string(),
        "qualifier `000180` has the offset 24, its row has 24 intervals"
    );
    let error = RollupCell::decode(&[0, 0, 0x03], &[1], interval).unwrap_err();
    assert!(matches!(error, RollupError::Value(_)));
}

#[test]
fn spans_begin_in_utc() {
    for (name, row_span, seconds, base) in [
        ("1m", "1h", 1_357_002_059, 1_357_002_000),
        ("1m", "2h", 1_357_002_059, 1_356_998_400),
        ("1m", "6h", 1_357_084_799, 1_357_063_200),
        ("1h", "1d", 1_357_084_799, 1_356_998_400),
        // 29 February 2012.
        ("1h", "1n", 1_330_559_999, 1_328_054_400),
        ("1d", "1y", 1_330_559_999, 1_325_376_000),
        ("1d", "1y", 0, 0),
    ] {
        let interval = interval(name, row_span).unwrap();
        assert_eq!(interval.base_time(seconds).seconds(), base, "{name} {row_span}");
    }
    assert_eq!(interval("1d", "1y").unwrap().intervals(), 366);
    assert_eq!(interval("1h", "1n").unwrap().intervals(), 768);
}

#[test]
fn rejects_intervals_as_opentsdb() {
    for (name, row_span, expected) in [
        ("1h", "2d", "Multipliers are only usable with the 'h' unit"),
        ("1m", "3h", "The multiplier must be 1 or an even value"),
        ("1h", "1w", "Unrecogznied span 'w'"),
        ("1d", "1d", "Interval [86400] is too large for the span [d]"),
        (
            "1s",
            "1d",
            "Too many intervals [86400] in the span. Must be smaller than [7774] to fit in 14 bits",
        ),
        (
            "6h",
            "1d",
            "Not enough intervals [4] for the span. Must be at least [12]",
        ),
        (
            "1500ms",
            "1d",
            "interval `1500ms` is not a duration of whole seconds such as 1h",
        ),
        (
            "0h",
            "1d",
            "interval `0h` is not a duration of whole seconds such as 1h",
        ),
        (
            "1h",
            "day",
            "rowSpan `day` is not a duration of whole seconds such as 1h",
        ),
        ("1h", "99999998h", "interval `1h`: rowSpan `99999998h` is not"),
    ] {
        let error = interval(name, row_span).unwrap_err().to_string();
        assert!(error.contains(expected), "{name} {row_span}: {error}");
    }
}

#[test]
fn rejects_configurations_as_opentsdb() {
    let of = |ids: &str, intervals: &str| {
        RollupConfig::parse(&format!(r#"{{"aggregationIds":{ids},"intervals":{intervals}}}"#))
            .unwrap_err()
            .to_string()
    };
    let hour =
        r#"{"table":"r","preAggregationTable":"a","interval":"1h","rowSpan":"1d","defaultInterval":true}"#;
    let minute = hour.replace("1h", "1m").replace("1d", "1h");
    let sum = r#"{"sum":0}"#;
    assert_eq!(of(sum, "[]"), "Rollup config given but no intervals were found.");
    assert_eq!(
        of("{}", &format!("[{hour}]")),
        "Rollup config given but no aggegation ID mappings found."
    );
    assert_eq!(
        of(sum, &format!("[{hour},{hour}]")),
        "Only one interval of each type can be configured: 1h"
    );
    assert_eq!(
        of(sum, &format!("[{hour},{minute}]")),
        "Multiple default intervals configured. Only one is allowed: 1m"
    );
    assert_eq!(
        of(r#"{"sum":128}"#, &format!("[{hour}]")),
        "ID for aggregator must be between 0 and 127: sum=128"
    );
    assert_eq!(
        of(r#"{"sum":1,"max":1}"#, &format!("[{hour}]")),
        "Multiple mappings for the ID '1' are not allowed."
    );
    assert!(
        of(sum, &format!("[{}]", hour.replace("\"r\"", "\"\"")))
            .ends_with("The rollup table cannot be null or empty")
    );
    assert!(of("[]", "[]").starts_with("expected a JSON object"));
}

#[test]
fn finds_intervals_by_multiples() {
    let config = config();
    let names = |seconds| -> Vec<String> {
        let intervals = config.intervals_of(seconds).into_iter();
        intervals.map(|interval| interval.name().to_owned()).collect()
    };
    assert_eq!(names(7200), ["1h", "1m"]);
    assert_eq!(names(120), ["1m"]);
    assert!(names(30).is_empty() && names(0).is_empty());
    assert_eq!(config.id("SUM"), Ok(0));
    assert_eq!(
        config.id("avg").unwrap_err().to_string(),
        "No ID found mapping to aggregator: avg"
    );
    assert_eq!(config.tables(), ["r1h", "r1h-agg", "r1m-agg", "tsdb"]);
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<i64>().prop_map(Value::Int),
        any::<i8>().prop_map(|int| Value::Int(int.into())),
        (-1e30_f32..1e30).prop_map(Value::Float),
        (-1e300..1e300).prop_map(Value::Double),
    ]
}

proptest! {
    #[test]
    fn decode_reverses_encode(id in 0_u8..=127, seconds: u32, value in values()) {
        for (name, row_span) in [("1m", "1h"), ("1h", "1d"), ("1h", "1n"), ("1d", "1y")] {
            let interval = interval(name, row_span).unwrap();
            let (base, offset) = interval.place(seconds).unwrap();
            let cell = qualifier(id, offset, &value);
            let decoded = RollupCell::decode(&cell, value.encoded().as_bytes(), &interval).unwrap();
            prop_assert_eq!(decoded, RollupCell { aggregate: Aggregate::Id(id), offset, value });
            let start = interval.time_ms(base, offset) / 1000;
            prop_assert!((start..start + i64::from(interval.seconds())).contains(&i64::from(seconds)));
            prop_assert_eq!(interval.base_time(base.seconds()), base);
        }
    }

    #[test]
    fn any_bytes_decode_or_fail(cell: Vec<u8>, value: Vec<u8>) {
        let interval = interval("1m", "1h").unwrap();
        if let Ok(decoded) = RollupCell::decode(&cell, &value, &interval) {
            prop_assert!(decoded.offset < interval.intervals());
        }
    }

    #[test]
    fn any_text_parses_or_fails(text: String) {
        let _ = RollupConfig::parse(&text);
    }
}
