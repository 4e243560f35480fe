//! Points written by OpenTSDB 2.4.1 to HBase 2.6: the input, and the row key, qualifier and value found in
//! table `tsdb` afterwards.

use crate::qualifier::Qualifier;
use crate::row::{CellRef, DuplicatePolicy, Points, RowError, compact, decode_row};
use crate::row_key::{RowKey, RowKeyLayout, RowKeyRef, write_row_key};
use crate::salt::SaltLayout;
use crate::timestamp::Timestamp;
use crate::tsuid::Tsuid;
use crate::uid::{UidWidth, UidWidths};
use crate::value::{Value, parse_http, parse_import, parse_integer, parse_telnet};

/// Telnet `put`, no salt, widths 3, 3, 3.
/// A line is: id, timestamp text, value text, TSUID, row key, qualifier, value.
const TELNET: &str = "
    V04 1356998400 0 000001000001000001 00000150e22700000001000001 0000 00
    V05 1356998401 -1 000001000001000001 00000150e22700000001000001 0010 ff
    V06 1356998402 127 000001000001000001 00000150e22700000001000001 0020 7f
    V07 1356998403 -128 000001000001000001 00000150e22700000001000001 0030 80
    V08 1356998404 128 000001000001000001 00000150e22700000001000001 0041 0080
    V09 1356998405 -129 000001000001000001 00000150e22700000001000001 0051 ff7f
    V10 1356998406 32767 000001000001000001 00000150e22700000001000001 0061 7fff
    V11 1356998407 -32768 000001000001000001 00000150e22700000001000001 0071 8000
    V12 1356998408 32768 000001000001000001 00000150e22700000001000001 0083 00008000
    V13 1356998409 -32769 000001000001000001 00000150e22700000001000001 0093 ffff7fff
    V14 1356998410 2147483647 000001000001000001 00000150e22700000001000001 00a3 7fffffff
    V15 1356998411 -2147483648 000001000001000001 00000150e22700000001000001 00b3 80000000
    V16 1356998412 2147483648 000001000001000001 00000150e22700000001000001 00c7 0000000080000000
    V17 1356998413 -2147483649 000001000001000001 00000150e22700000001000001 00d7 ffffffff7fffffff
    V18 1356998414 9223372036854775807 000001000001000001 00000150e22700000001000001 00e7 7fffffffffffffff
    V19 1356998415 -9223372036854775808 000001000001000001 00000150e22700000001000001 00f7 8000000000000000
    V20 1356998416 1.0 000002000001000001 00000250e22700000001000001 010b 3f800000
    V21 1356998417 4.2 000002000001000001 00000250e22700000001000001 011f 4010cccccccccccd
    V22 1356998418 0.5 000002000001000001 00000250e22700000001000001 012b 3f000000
    V23 1356998419 -0.0 000002000001000001 00000250e22700000001000001 013b 80000000
    V24 1356998420 3.4028234663852886E38 000002000001000001 00000250e22700000001000001 014b 7f7fffff
    V25 1356998421 1e39 000002000001000001 00000250e22700000001000001 015f 48078287f49c4a1d
    V26 1356998422 16777217.0 000002000001000001 00000250e22700000001000001 016f 4170000010000000
    V27 1356998423 1e3 000002000001000001 00000250e22700000001000001 017b 447a0000
    V32 1356998400000 1 000003000001000002 00000350e22700000001000002 f0000000 01
    V33 1356998400001 2.5 000003000001000002 00000350e22700000001000002 f000004b 40200000
    V34 1357001999999 70000 000003000001000002 00000350e22700000001000002 fdbb9fc3 00011170
    V35 1356998400.250 5 000003000001000002 00000350e22700000001000002 f0003e80 05
    V36 1356998400.5 6 000003000001000002 00000300cf0990000001000002 f60ae140 06
    V37 1357001999 1 000003000001000001 00000350e22700000001000001 e0f0 01
    V38 1357002000 2 000003000001000001 00000350e23510000001000001 0000 02
    V39 4294967295 8 000003000001000001 000003fffff960000001000001 69f0 08
    V40 4294967296 9 000003000001000001 00000300418890000001000001 f0a36000 09
    V44 1 1 000003000001000001 00000300000000000001000001 0010 01
    V45 1356998400 1 000001000001000001000002000003000003000004 00000150e22700000001000001000002000003000003000004 0000 01
    V47 1356998402 1 000001000002000003000003000004 00000150e22700000002000003000003000004 0020 01
";

/// Telnet `put` with 1 byte of salt and 20 buckets.
const SALTED: &str = "
    V73 1356998400 1 000001000001000001 0800000150e22700000001000001 0000 01
    V74 1357002000 2 000001000001000001 0800000150e23510000001000001 0000 02
    V75 1356998400 1 000001000001000002 0900000150e22700000001000002 0000 01
    V76 1356998400 1 000002000001000001000002000003 0a00000250e22700000001000001000002000003 0000 01
    V77 1356998400500 2.5 000002000001000002000002000003 0b00000250e22700000001000002000002000003 f0007d0b 40200000
    V78 1356998400 2 fedc8100000180ff80 02fedc8150e2270000000180ff80 0000 02
    V78 1356998400 1 fedc8100000180ff7f 07fedc8150e2270000000180ff7f 0000 01
";

/// Telnet `put` with 2 bytes of salt, 1000 buckets, and widths 4, 2, 5.
const WIDE: &str = "
    V81 1356998400 1 0000000100010000000001 00ce0000000150e2270000010000000001 0000 01
    V82 1356998401 -300 000000010001000000000200020000000003 01860000000150e227000001000000000200020000000003 0011 fed4
";

fn layout(salt: usize, buckets: u32, metric: usize, tagk: usize, tagv: usize) -> RowKeyLayout {
    let width = |bytes| UidWidth::new(bytes).unwrap();
    RowKeyLayout {
        salt: SaltLayout::new(salt, buckets).unwrap(),
        widths: UidWidths {
            metric: width(metric),
            tagk: width(tagk),
            tagv: width(tagv),
        },
    }
}

#[test]
fn telnet_puts_are_stored_byte_for_byte_as_opentsdb() {
    let tables = [
        (RowKeyLayout::default(), TELNET),
        (layout(1, 20, 3, 3, 3), SALTED),
        (layout(2, 1000, 4, 2, 5), WIDE),
    ];
    for (layout, vectors) in tables {
        for vector in vectors.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = vector.split_whitespace().collect();
            let [id, timestamp, value, tsuid, row_key, qualifier, raw] = words[..] else {
                panic!("{vector}");
            };
            let tsuid = Tsuid::parse(tsuid, &layout.widths).unwrap();
            let timestamp = Timestamp::parse_telnet(timestamp).unwrap();
            let value = parse_telnet(value).unwrap();
            let key = RowKey::new(&layout, &tsuid, timestamp.base_time());
            assert_eq!(hex::encode(key.as_bytes()), row_key, "{id}");
            let mut written = vec![0xaa];
            write_row_key(&layout, tsuid.as_bytes(), timestamp.base_time(), &mut written);
            assert_eq!(&written[1..], key.as_bytes(), "{id}");
            let written = Qualifier::new(timestamp, &value);
            assert_eq!(hex::encode(written.as_bytes()), qualifier, "{id}");
            assert_eq!(hex::encode(value.encoded()), raw, "{id}");

            let key = RowKeyRef::decode(key.as_bytes(), &layout).unwrap();
            assert_eq!(key.tsuid().unwrap(), tsuid, "{id}");
            assert!(key.has_valid_salt(&layout), "{id}");
            let instant = key.base_time().millis() + i64::from(written.offset_ms());
            assert_eq!(instant, timestamp.as_millis(), "{id}");
            let read = Value::decode(written.flags(), value.encoded().as_bytes());
            assert_eq!(read, Ok(value), "{id}");
        }
    }
}

#[test]
fn http_floats_take_8_bytes_and_import_floats_4() {
    let cell = |seconds, value: Value| {
        let qualifier = Qualifier::new(Timestamp::from_seconds(seconds), &value);
        (hex::encode(qualifier.as_bytes()), hex::encode(value.encoded()))
    };
    let cells = [
        // V28, V29, V30
        cell(1_356_998_400, parse_http("1.0").unwrap()),
        cell(1_356_998_401, parse_http("42").unwrap()),
        cell(1_356_998_402, parse_http("4.20").unwrap()),
        // V114
        cell(1_356_998_400, parse_import("0.1").unwrap()),
        cell(1_356_998_401, parse_import("2.5").unwrap()),
    ];
    let expected = [
        ("000f", "3ff0000000000000"),
        ("0010", "2a"),
        ("002f", "4010cccccccccccd"),
        ("000b", "3dcccccd"),
        ("001b", "40200000"),
    ];
    assert_eq!(cells, expected.map(|(q, v)| (q.to_owned(), v.to_owned())));
    // V31
    let timestamp = Timestamp::from_opentsdb(1_356_998_403_500).unwrap();
    let value = parse_http("-7").unwrap();
    assert_eq!(
        hex::encode(Qualifier::new(timestamp, &value).as_bytes()),
        "f0036b00"
    );
    assert_eq!(hex::encode(value.encoded()), "f9");
}

#[test]
fn rejects_timestamps_that_opentsdb_wraps() {
    // V41: OpenTSDB lets the base time wrap.
    let error = Timestamp::parse_telnet("9999999999999").unwrap_err();
    assert_eq!(
        error.to_string(),
        "timestamp 9999999999999 ms is after 4294967295999, the last that can be stored"
    );
    // V42, V43
    assert!(Timestamp::parse_telnet("10000000000000").is_err());
    assert!(Timestamp::parse_telnet("0").is_err());
}

#[test]
fn global_annotations_have_a_zero_salt() {
    // V80, V54
    let base = Timestamp::from_seconds(1_356_998_405).base_time();
    let salted = layout(1, 20, 3, 3, 3);
    let key = RowKey::global_annotations(&salted, base);
    assert_eq!(hex::encode(key.as_bytes()), "0000000050e22700");
    let key = RowKeyRef::decode(key.as_bytes(), &salted).unwrap();
    assert!(key.is_global() && key.has_valid_salt(&salted));
    let base = Timestamp::from_seconds(1_369_141_261).base_time();
    let key = RowKey::global_annotations(&RowKeyLayout::default(), base);
    assert_eq!(hex::encode(key.as_bytes()), "000000519b6fd0");
}

/// id, timestamps and values of telnet puts, qualifier, value.
type CompactedVector = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
);

/// Telnet puts of one row, and the compacted cell that OpenTSDB made of them.
const COMPACTED: &[CompactedVector] = &[
    (
        "V59",
        &[
            ("1356998400", "1"),
            ("1356998410", "300"),
            ("1356998420", "-5"),
            ("1356998430", "4.5"),
        ],
        "000000a1014001eb",
        "01012cfb4090000000",
    ),
    (
        "V60",
        &[
            ("1356998400", "1"),
            ("1356998400500", "2.5"),
            ("1356998401", "0.1"),
            ("1356998401500", "70000"),
        ],
        "0000f0007d0b001ff0017703",
        "01402000003fb999999999999a0001117001",
    ),
    (
        "V61",
        &[("1356998400001", "1"), ("1357001999999", "2")],
        "f0000040fdbb9fc0",
        "010200",
    ),
    ("V62", &[("1357001999", "42")], "e0f0", "2a"),
    (
        "V63",
        &[
            ("1356998400", "1"),
            ("1356998410", "300"),
            ("1356998415", "9"),
            ("1356998420", "-5"),
            ("1356998430", "4.5"),
        ],
        "000000a100f0014001eb",
        "01012c09fb4090000000",
    ),
];

#[test]
fn compacts_rows_byte_for_byte_as_opentsdb() {
    for (id, puts, qualifier, value) in COMPACTED {
        let points: Vec<(Timestamp, Value)> = puts
            .iter()
            .map(|(time, value)| {
                (
                    Timestamp::parse_telnet(time).unwrap(),
                    parse_telnet(value).unwrap(),
                )
            })
            .collect();
        let (written_qualifier, written_value) = compact(points.iter().copied()).unwrap();
        assert_eq!(hex::encode(&written_qualifier), *qualifier, "{id}");
        assert_eq!(hex::encode(&written_value), *value, "{id}");
        let expected: Vec<_> = points
            .iter()
            .map(|(at, value)| (at.offset_ms(), *value))
            .collect();
        assert_eq!(
            row(&[(qualifier, value, 0)], DuplicatePolicy::Error).unwrap(),
            expected,
            "{id}"
        );
    }
}

/// The points of a row of hex cells with their timestamps.
fn row(cells: &[(&str, &str, i64)], policy: DuplicatePolicy) -> Result<Vec<(u32, Value)>, RowError> {
    let cells: Vec<_> = cells
        .iter()
        .map(|(q, v, at)| (hex::decode(q).unwrap(), hex::decode(v).unwrap(), *at))
        .collect();
    let cells = cells.iter().map(|(qualifier, value, timestamp_ms)| CellRef {
        qualifier,
        value,
        timestamp_ms: *timestamp_ms,
    });
    let mut points = Points::new();
    decode_row(cells, policy, &mut points)?;
    Ok(points.iter().collect())
}

#[test]
fn decodes_rows_as_opentsdb_does() {
    use Value::{Double, Float, Int};
    let read = |cells: &[_]| row(cells, DuplicatePolicy::Error).unwrap();
    // V63 during compaction: the new cell, the old one and a point.
    assert_eq!(
        read(&[
            ("000000a100f0014001eb", "01012c09fb4090000000", 3),
            ("000000a1014001eb", "01012cfb4090000000", 2),
            ("00f0", "09", 1),
        ]),
        [
            (0, Int(1)),
            (10_000, Int(300)),
            (15_000, Int(9)),
            (20_000, Int(-5)),
            (30_000, Float(4.5))
        ]
    );
    // V66, V67, V68: cells stored by old software.
    assert_eq!(
        read(&[("000b", "0000000040200000", 1), ("001b", "40200000", 1)]),
        [(0, Float(2.5)), (1000, Float(2.5))]
    );
    assert_eq!(read(&[("000b", "0000000040200000", 1)]), [(0, Float(2.5))]);
    assert_eq!(
        read(&[("0007", "05", 1), ("0010", "0000000000000009", 1)]),
        [(0, Int(5)), (1000, Int(9))]
    );
    // V69: out of order within the cell, which OpenTSDB keeps.
    assert_eq!(read(&[("00100000", "020100", 1)]), [(0, Int(1)), (1000, Int(2))]);
    // V70
    let error = row(&[("000b", "ffffffff40200000", 1)], DuplicatePolicy::Error).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cell with qualifier `000B` holds the float `FFFFFFFF40200000`, expected its first 4 bytes \
         to be zero"
    );
    // V85, V86, V87, V88, V89: appended points.
    assert_eq!(read(&[("050000", "00002a", 1)]), [(0, Int(42))]);
    assert_eq!(
        read(&[(
            "050000",
            "00000100a1012c0140fb01eb40900000028f3fb999999999999a",
            1
        )]),
        [
            (0, Int(1)),
            (10_000, Int(300)),
            (20_000, Int(-5)),
            (30_000, Float(4.5)),
            (40_000, Double(0.1))
        ]
    );
    assert_eq!(
        read(&[("050000", "f0007d0001001002fdbb9fc003", 1)]),
        [(500, Int(1)), (1000, Int(2)), (3_599_999, Int(3))]
    );
    let repaired = [(10_000, Int(99)), (20_000, Float(2.5)), (30_000, Int(3))];
    assert_eq!(
        read(&[("050000", "01e00300a00101400200a063014b40200000", 1)]),
        repaired
    );
    assert_eq!(read(&[("050000", "00a063014b4020000001e003", 1)]), repaired);
}

#[test]
fn duplicates_fail_or_keep_the_newest_cell() {
    use Value::{Float, Int};
    // V65 and V71
    let cells = [("0000", "01", 1), ("000b", "40000000", 2)];
    let error = row(&cells, DuplicatePolicy::Error).unwrap_err();
    assert_eq!(
        error.to_string(),
        "row has two points 0 ms after its base time: qualifier `000B` with value `40000000`, and \
         qualifier `0000` with value `01`"
    );
    assert_eq!(
        row(&cells, DuplicatePolicy::KeepNewest).unwrap(),
        [(0, Float(2.0))]
    );
    // V72: seconds and milliseconds.
    let cells = [("03c0", "01", 1), ("03d0", "03", 3), ("f03a9800", "02", 2)];
    assert!(row(&cells, DuplicatePolicy::Error).is_err());
    assert_eq!(
        row(&cells, DuplicatePolicy::KeepNewest).unwrap(),
        [(60_000, Int(2)), (61_000, Int(3))]
    );
    let written = compact([
        (Timestamp::from_millis(1_356_998_460_000).unwrap(), Int(2)),
        (Timestamp::from_seconds(1_356_998_461), Int(3)),
    ]);
    let (qualifier, value) = written.unwrap();
    assert_eq!(
        (hex::encode(qualifier), hex::encode(value)),
        ("f03a980003d0".into(), "020301".into())
    );
}

#[test]
fn merges_two_compacted_cells() {
    // V116: a point every 100 ms, 5000 of them, compacted in chunks of 4096.
    let base = 1_356_998_400_000;
    let points: Vec<(Timestamp, Value)> = (0..5000)
        .map(|n| {
            (
                Timestamp::from_millis(base + n * 100).unwrap(),
                Value::Int(n % 100),
            )
        })
        .collect();
    let (first, second) = points.split_at(4096);
    let (q1, v1) = compact(first.iter().copied()).unwrap();
    let (q2, v2) = compact(second.iter().copied()).unwrap();
    assert_eq!((q1.len(), v1.len(), q2.len(), v2.len()), (16384, 4097, 3616, 905));
    assert!(hex::encode(&q1).starts_with("f0000000f0001900"));
    assert!(hex::encode(&q2).starts_with("f1900000"));
    // In either order.
    let cell = |qualifier, value| CellRef {
        qualifier,
        value,
        timestamp_ms: 1,
    };
    let mut one = Points::new();
    decode_row([cell(&q1, &v1), cell(&q2, &v2)], DuplicatePolicy::Error, &mut one).unwrap();
    let mut other = Points::new();
    decode_row(
        [cell(&q2, &v2), cell(&q1, &v1)],
        DuplicatePolicy::Error,
        &mut other,
    )
    .unwrap();
    let expected: Vec<_> = points
        .iter()
        .map(|(at, value)| (at.offset_ms(), *value))
        .collect();
    assert_eq!(one.iter().collect::<Vec<_>>(), expected);
    assert_eq!(one, other);
    let (q, v) = compact(points.iter().copied()).unwrap();
    assert_eq!((q.len(), v.len()), (20000, 5001));
}

#[test]
fn stores_the_documented_example_byte_for_byte() {
    let layout = RowKeyLayout::default();
    let tsuid = Tsuid::parse("000001000001000001000002000002", &layout.widths).unwrap();
    let timestamp = Timestamp::from_opentsdb(parse_integer("1346846400").unwrap()).unwrap();
    let value = parse_http("18").unwrap();
    let key = RowKey::new(&layout, &tsuid, timestamp.base_time());
    assert_eq!(key.to_string(), "00000150473EC0000001000001000002000002");
    assert_eq!(Qualifier::new(timestamp, &value).to_string(), "0000");
    assert_eq!(hex::encode(value.encoded()), "12");
}
