use proptest::prelude::*;

use super::*;
use crate::row_key::{RowKeyLayout, write_row_key};

const CODECS: HistogramCodecs = HistogramCodecs::with_simple(42);

fn bounds(lower: f32, upper: f32) -> Bounds {
    Bounds { lower, upper }
}

fn histogram(text: &str) -> Histogram {
    parse_histogram(text).unwrap()
}

#[test]
fn stores_histograms_byte_for_byte_as_opentsdb() {
    // Written by OpenTSDB 2.4.1: the telnet line's time and payload; row key, qualifier and value of the cell.
    let vectors = [
        (
            1_356_998_405,
            "0,1=5:1,2.5=300:u=2:o=7",
            ("00000250e22700000001000001", "060005"),
            "2a0002000000003f800000053f80000040200000ac020207",
        ),
        (
            1_356_998_405_500,
            "0,1=5",
            ("00000250e22700000001000001", "060000157c"),
            "2a0001000000003f800000050000",
        ),
    ];
    for (time, payload, (key, cell), value) in vectors {
        let time = Timestamp::from_opentsdb(time).unwrap();
        let tsuid = hex::decode("000002000001000001").unwrap();
        let mut row = Vec::new();
        write_row_key(&RowKeyLayout::default(), &tsuid, time.base_time(), &mut row);
        assert_eq!(hex::encode(row), key);
        assert_eq!(hex::encode(qualifier(time)), cell);
        assert_eq!(offset_ms(&hex::decode(cell).unwrap()), Ok(time.offset_ms()));
        let parsed = histogram(payload);
        assert_eq!(hex::encode(CODECS.encode_cell(&parsed).unwrap()), value);
        assert_eq!(CODECS.decode_cell(&hex::decode(value).unwrap()), Ok(parsed));
    }
}

#[test]
fn a_whole_second_in_milliseconds_keeps_4_bytes() {
    let time = Timestamp::from_opentsdb(1_356_998_405_000).unwrap();
    assert_eq!(hex::encode(qualifier(time)), "0600001388");
}

#[test]
fn rejects_qualifiers_of_other_cells_and_hours() {
    let last = [PREFIX, 0, 0x36, 0xee, 0x7f];
    assert_eq!(offset_ms(&last), Ok(3_599_999));
    for wrong in [
        "",
        "06",
        "0605",
        "06000000",
        "010005",
        "060e10",
        "060036ee80",
        "06ffffffff",
        "0600000000ff00",
    ] {
        let error = offset_ms(&hex::decode(wrong).unwrap()).unwrap_err();
        assert!(
            error.to_string().contains(&wrong.to_uppercase()),
            "{wrong}: {error}"
        );
    }
}

#[test]
fn orders_buckets_and_keeps_the_last_of_equal_bounds() {
    let nan = parse_bounds("NaN,1").unwrap().unwrap();
    let mut parsed = histogram("5,6=1:-0.0,1=2:0,1=3:5,6=4:-1,0=5");
    parsed.add(
        &Histogram::new(
            vec![Bucket {
                bounds: nan,
                count: 9,
            }],
            0,
            0,
        )
        .unwrap(),
    );
    let order: Vec<(f32, i64)> = parsed
        .buckets()
        .iter()
        .map(|bucket| (bucket.bounds.lower, bucket.count))
        .collect();
    let (nan, rest) = order.split_last().unwrap();
    assert_eq!(rest, [(-1.0, 5), (-0.0, 2), (0.0, 3), (5.0, 4)]);
    assert!(rest[1].0.is_sign_negative());
    assert!(nan.0.is_nan() && nan.1 == 9);
    assert_eq!(parsed.count(bounds(5.0, 6.0)), 4);
    assert_eq!(parsed.count(bounds(5.0, 7.0)), 0);
}

#[test]
fn adds_counts_by_bounds() {
    let mut sum = histogram("0,1=5:1,2=6:u=1");
    sum.add(&histogram("0,1=1:1,2=1:o=3"));
    assert_eq!(sum, histogram("0,1=6:1,2=7:u=1:o=3"));
    sum.add(&histogram("1,3=2:-1,0=4:1,2=1:u=9223372036854775807"));
    assert_eq!(
        sum,
        histogram("-1,0=4:0,1=6:1,2=8:1,3=2:u=-9223372036854775808:o=3")
    );
}

#[test]
fn a_percentile_is_the_middle_of_its_bucket() {
    let parsed = histogram("0,1.75=12:1.75,3.5=16:3.5,8=4:u=100:o=100");
    for (percentile, expected) in [
        (0.9, -1.0),
        (1.0, 0.875),
        (37.5, 0.875),
        (37.6, 2.625),
        (87.5, 2.625),
        (99.9, 5.75),
        (100.0, 5.75),
        (100.1, -1.0),
        (f32::NAN, 0.0),
    ] {
        assert_eq!(parsed.percentile(percentile), expected, "{percentile}");
    }
    assert_eq!(histogram("u=5").percentile(50.0), 0.0);
    assert_eq!(histogram("0,1=0").percentile(50.0), 0.0);
    // 2^32 is no value at all for OpenTSDB, which has counts of 32 bits here.
    assert_eq!(histogram("0,1=4294967296:1,3=1").percentile(1.0), 2.0);
}

#[test]
fn rejects_texts_with_opentsdbs_messages() {
    for (text, message) in [
        ("", "Improperly formatted bucket: "),
        ("0,1", "Improperly formatted bucket: 0,1"),
        ("0,1=5=6", "Improperly formatted bucket: 0,1=5=6"),
        ("0,1=5:", "Improperly formatted bucket: "),
        ("0=5", "Improperly formatted bounds: 0=5"),
        ("0,1,2=5", "Improperly formatted bounds: 0,1,2=5"),
        ("0,x=5", "For input string: \"x\""),
        ("0,1=x", "For input string: \"x\""),
        ("0,1=1.5", "For input string: \"1.5\""),
        (
            "u=9223372036854775808",
            "For input string: \"9223372036854775808\"",
        ),
    ] {
        assert_eq!(parse_histogram(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn reports_the_part_in_which_a_value_ends() {
    let complete = hex::decode("2a0001000000003f800000058001ff01").unwrap();
    assert!(CODECS.decode_cell(&complete).is_ok());
    for (length, message) in [
        (0, "histogram is empty"),
        (2, "`00` ends within its bucket count"),
        (3, "ends within a bucket"),
        (11, "ends within a bucket"),
        (13, "ends within the underflow"),
        (14, "ends within the overflow"),
    ] {
        let error = CODECS.decode_cell(&complete[..length]).unwrap_err().to_string();
        assert!(error.contains(message), "{length}: {error}");
    }
    let error = CODECS.decode_cell(&[7, 0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "No codec found mapped to ID 7");
    let error = CODECS.decode_cell(&[42, 0xff, 0xfe, 0, 0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "histogram `FFFE0000` has a bucket count of -2, expected 0 to 32767"
    );
}

#[test]
fn parses_the_configuration_of_opentsdb() {
    let parse = HistogramCodecs::parse;
    assert_eq!(
        parse(r#"{"net.opentsdb.core.SimpleHistogramDecoder": 42}"#),
        Ok(CODECS)
    );
    for (json, message) in [
        ("", "expected a JSON object"),
        ("{}", "has no decoder"),
        (
            r#"{"net.opentsdb.core.SimpleHistogramDecoder":256}"#,
            "must be from 0 to 255, found 256",
        ),
        (
            r#"{"net.opentsdb.core.SimpleHistogramDecoder":-1}"#,
            "must be from 0 to 255, found -1",
        ),
        (
            r#"{"com.example.Sketch":1}"#,
            "unable to find a decoder named 'com.example.Sketch'",
        ),
    ] {
        let error = parse(json).unwrap_err().to_string();
        assert!(error.contains(message), "{json}: {error}");
    }
}

prop_compose! {
    fn any_histogram()(
        buckets in prop::collection::vec((any::<f32>(), any::<f32>(), any::<i64>()), 0..20),
        underflow in any::<i64>(),
        overflow in any::<i64>(),
    ) -> Histogram {
        let bucket = |(lower, upper, count)| Bucket { bounds: bounds(lower, upper), count };
        Histogram::new(buckets.into_iter().map(bucket).collect(), underflow, overflow).unwrap()
    }
}

proptest! {
    #[test]
    fn decoding_reverses_encoding(histogram in any_histogram(), id in any::<u8>()) {
        let codecs = HistogramCodecs::with_simple(id);
        let value = codecs.encode_cell(&histogram).unwrap();
        prop_assert_eq!(codecs.decode_cell(&value), Ok(histogram));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(histogram) = CODECS.decode(42, &bytes) {
            prop_assert!(histogram.buckets().len() <= bytes.len() / SHORTEST_BUCKET);
            let value = CODECS.encode_cell(&histogram).unwrap();
            prop_assert_eq!(CODECS.decode_cell(&value), Ok(histogram));
        }
        let _ = offset_ms(&bytes);
        let _ = parse_histogram(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn sums_do_not_depend_on_order(one in any_histogram(), two in any_histogram()) {
        let (mut left, mut right) = (one.clone(), two.clone());
        left.add(&two);
        right.add(&one);
        prop_assert_eq!(left, right);
    }

    #[test]
    fn qualifiers_state_their_offset(millis in 4_294_967_296_i64..=crate::timestamp::MAX_MILLIS) {
        for time in [millis, millis / 1000] {
            let time = Timestamp::from_opentsdb(time).unwrap();
            prop_assert_eq!(offset_ms(&qualifier(time)), Ok(time.offset_ms()));
        }
    }
}
