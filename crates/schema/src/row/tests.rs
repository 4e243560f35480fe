use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::qualifier::Qualifier;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// Cells that own their bytes.
type Cells = Vec<(Vec<u8>, Vec<u8>, i64)>;

fn read(
    cells: &[(Vec<u8>, Vec<u8>, i64)],
    policy: DuplicatePolicy,
) -> Result<(Vec<(u32, Value)>, RowStats), RowError> {
    let mut points = Points::new();
    let cells = cells.iter().map(|(qualifier, value, timestamp_ms)| CellRef {
        qualifier,
        value,
        timestamp_ms: *timestamp_ms,
    });
    let stats = decode_row(cells, policy, &mut points)?;
    Ok((points.iter().collect(), stats))
}

fn hex_cells(cells: &[(&str, &str)]) -> Cells {
    cells
        .iter()
        .map(|(q, v)| (hex::decode(q).unwrap(), hex::decode(v).unwrap(), 0))
        .collect()
}

#[test]
fn cell_kind_depends_on_length_and_first_byte() {
    let kind = |qualifier| CellKind::from_qualifier(&hex::decode(qualifier).unwrap());
    for (qualifier, expected) in [
        ("0000", CellKind::Point),
        ("e0f0", CellKind::Point),
        ("f0000000", CellKind::Point),
        ("00000010", CellKind::Compacted),
        ("f0000000f0000040", CellKind::Compacted),
        ("0000f0007d0b", CellKind::Compacted),
        ("01003d", CellKind::Annotation),
        ("010000f03c", CellKind::Annotation),
        ("050000", CellKind::Appended),
        ("060005", CellKind::Histogram),
        ("060000157c", CellKind::Histogram),
        ("020020", CellKind::Unknown),
        ("00", CellKind::Unknown),
        ("", CellKind::Unknown),
    ] {
        assert_eq!(kind(qualifier), expected, "{qualifier}");
    }
}

#[test]
fn skips_and_counts_cells_without_points() {
    let cells = hex_cells(&[
        ("0000", "01"),
        ("01003d", "7b7d"),
        ("020020", "f7"),
        ("060005", "2a00"),
        ("060006", "2a00"),
        ("f0007d00", "02"),
    ]);
    let (points, stats) = read(&cells, DuplicatePolicy::Error).unwrap();
    assert_eq!(points, [(0, Value::Int(1)), (500, Value::Int(2))]);
    let expected = RowStats {
        points: 2,
        annotations: 1,
        histograms: 2,
        unknown_cells: 1,
        ..RowStats::default()
    };
    assert_eq!(stats, expected);
    // The same through the merge.
    let mut reversed = cells;
    reversed.reverse();
    assert_eq!(
        read(&reversed, DuplicatePolicy::Error).unwrap(),
        (points, expected)
    );
}

#[test]
fn accepts_rows_without_points() {
    assert_eq!(
        read(&[], DuplicatePolicy::Error).unwrap(),
        (vec![], RowStats::default())
    );
    let (points, _) = read(&hex_cells(&[("050000", "")]), DuplicatePolicy::Error).unwrap();
    assert_eq!(points, []);
}

#[test]
fn accepts_a_missing_meta_byte() {
    for cells in [
        hex_cells(&[("00000010", "0102")]),
        hex_cells(&[("0000f0007d00", "0102")]),
        // Through the merge.
        hex_cells(&[("00000010", "0102"), ("0000", "01")]),
    ] {
        let (points, _) = read(&cells, DuplicatePolicy::Error).unwrap();
        assert_eq!((points.len(), points[1].1), (2, Value::Int(2)));
    }
}

#[test]
fn rejects_compacted_cells_of_inconsistent_length() {
    let shown = |cells: &[(&str, &str)]| {
        let cells = hex_cells(cells);
        read(&cells, DuplicatePolicy::KeepNewest).unwrap_err().to_string()
    };
    let damaged = |qualifier: &str, points, expected, actual| {
        format!(
            "compacted cell with qualifier `{qualifier}` is damaged: the values of its {points} points have \
             {expected} bytes, expected these and at most a meta byte, found {actual}"
        )
    };
    // Of one type, of several, through the merge.
    for others in [&[][..], &[("0000", "01")]] {
        let with = |cell| [&[cell], others].concat();
        let uniform = damaged("000000100020", 3, 3, 2);
        assert_eq!(shown(&with(("000000100020", "0102"))), uniform);
        let mixed = damaged("000000110020", 3, 4, 3);
        assert_eq!(shown(&with(("000000110020", "010002"))), mixed);
        let too_long = damaged("00000010", 2, 2, 4);
        assert_eq!(shown(&with(("00000010", "01020000"))), too_long);
        let too_long = damaged("00000011", 2, 3, 5);
        assert_eq!(shown(&with(("00000011", "0100020000"))), too_long);
    }
}

#[test]
fn sorts_compacted_cells_out_of_order() {
    let cells = hex_cells(&[("0020000000100000", "0301020100"), ("0030", "04")]);
    for policy in [DuplicatePolicy::Error, DuplicatePolicy::KeepNewest] {
        let (points, stats) = read(&cells, policy).unwrap();
        let expected = [(0, 1), (1000, 2), (2000, 3), (3000, 4)];
        assert_eq!(points, expected.map(|(at, value)| (at, Value::Int(value))));
        assert_eq!((stats.out_of_order, stats.duplicates), (2, 1));
    }
    // A conflicting duplicate, far apart.
    let cells = hex_cells(&[("002000000020", "03010900")]);
    assert!(read(&cells, DuplicatePolicy::Error).is_err());
    let (points, _) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
    assert_eq!(points, [(0, Value::Int(1)), (2000, Value::Int(3))]);
}

#[test]
fn decodes_cells_of_mixed_resolution() {
    // As many bytes as if all qualifiers had the length of the first.
    let cells = hex_cells(&[("f0007d0000100020", "01020301")]);
    let (points, _) = read(&cells, DuplicatePolicy::Error).unwrap();
    assert_eq!(
        points,
        [(500, Value::Int(1)), (1000, Value::Int(2)), (2000, Value::Int(3))]
    );
    let cells = hex_cells(&[("0000f000ffc0", "010201")]);
    let (points, _) = read(&cells, DuplicatePolicy::Error).unwrap();
    assert_eq!(points, [(0, Value::Int(1)), (1023, Value::Int(2))]);
}

#[test]
fn merges_identical_duplicates_under_every_policy() {
    // Between the put of a compacted cell and the deletes of the cells it replaces.
    let cells = hex_cells(&[("0000", "01"), ("00000010", "010200"), ("0010", "02")]);
    for policy in [DuplicatePolicy::Error, DuplicatePolicy::KeepNewest] {
        let (points, stats) = read(&cells, policy).unwrap();
        assert_eq!(points, [(0, Value::Int(1)), (1000, Value::Int(2))]);
        assert_eq!((stats.points, stats.duplicates), (2, 2));
    }
    // The same number in another encoding is a different value.
    let cells = hex_cells(&[("0000", "01"), ("0001", "0001")]);
    assert!(matches!(
        read(&cells, DuplicatePolicy::Error),
        Err(RowError::Duplicate { .. })
    ));
}

#[test]
fn equal_cell_timestamps_keep_the_first_cell() {
    let cells = hex_cells(&[("0000", "01"), ("000b", "40000000"), ("f0000000", "05")]);
    let (points, stats) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
    assert_eq!(points, [(0, Value::Int(1))]);
    assert_eq!(stats.duplicates, 2);
}

#[test]
fn last_appended_point_of_an_instant_wins() {
    let mut cells = hex_cells(&[("0000", "01"), ("0010", "09"), ("050000", "001002002003")]);
    cells[1].2 = 7;
    cells[2].2 = 5;
    let (points, _) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
    assert_eq!(
        points,
        [(0, Value::Int(1)), (1000, Value::Int(9)), (2000, Value::Int(3))]
    );
    cells[2].2 = 8;
    let (points, _) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
    assert_eq!(points[1], (1000, Value::Int(2)));
    assert!(read(&cells, DuplicatePolicy::Error).is_err());
}

#[test]
fn damage_counts_only_in_values_that_are_used() {
    // The cell of second 2 has 3 bytes. The compacted cell has a newer value, whichever comes first in the row.
    for other in [("00000020", "0504"), ("f00000000020", "0504")] {
        let mut cells = hex_cells(&[("0020", "000000"), other]);
        cells.sort();
        let newer = cells.iter().position(|cell| cell.0.len() > 2).unwrap();
        cells[newer].2 = 1;
        let (points, stats) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
        assert_eq!(points, [(0, Value::Int(5)), (2000, Value::Int(4))]);
        assert_eq!((stats.points, stats.duplicates), (2, 1));
        read(&cells, DuplicatePolicy::Error).unwrap_err();
        cells[newer].2 = -1;
        read(&cells, DuplicatePolicy::KeepNewest).unwrap_err();
    }
}

#[test]
fn rejects_damaged_cells_without_partial_points() {
    let mut points = Points::new();
    points.push(1, Value::Int(1));
    let mut shown = |cells: &[(&str, &str)]| {
        let cells = hex_cells(cells);
        let cells = cells.iter().map(|(qualifier, value, timestamp_ms)| CellRef {
            qualifier,
            value,
            timestamp_ms: *timestamp_ms,
        });
        let error = decode_row(cells, DuplicatePolicy::Error, &mut points).unwrap_err();
        assert_eq!(points.len(), 1);
        error.to_string()
    };
    assert_eq!(
        shown(&[("0000", "01"), ("f0007d01", "01")]),
        "cell with qualifier `F0007D01` is damaged: value `01` has 1 bytes, flags 0x1 are for an \
         integer of 2 bytes"
    );
    assert_eq!(
        shown(&[("0000", "01"), ("f000", "01")]),
        "cell is damaged: qualifier `F000` ends within a point, expected 2 more bytes"
    );
    assert_eq!(
        shown(&[("0000f0007d00f000", "0102030401")]),
        "cell is damaged: qualifier `F000` ends within a point, expected 2 more bytes"
    );
    assert_eq!(
        shown(&[("0000", "")]),
        "cell with qualifier `0000` has a value of 0 bytes, expected 1 to 8"
    );
    assert_eq!(
        shown(&[("0000", "010203040506070809")]),
        "cell with qualifier `0000` has a value of 9 bytes, expected 1 to 8"
    );
    assert_eq!(
        shown(&[("0000", "010203")]),
        "cell with qualifier `0002` is damaged: value `010203` has 3 bytes, flags 0x2 are for no \
         length that a value can have"
    );
    assert_eq!(
        shown(&[("050000", "00000100a101")]),
        "appended cell `00000100A101` ends within the point at byte 3"
    );
}

#[test]
fn decode_cell_returns_points_in_stored_order() {
    let shown = |qualifier: &str, value: &str| {
        let (qualifier, value) = (hex::decode(qualifier).unwrap(), hex::decode(value).unwrap());
        let cell = CellRef {
            qualifier: &qualifier,
            value: &value,
            timestamp_ms: 0,
        };
        let mut points = Vec::new();
        let kind = decode_cell(cell, &mut points).unwrap();
        let points: Vec<_> = points
            .iter()
            .map(|point| (point.qualifier.to_string(), point.value))
            .collect();
        (kind, points)
    };
    assert_eq!(
        shown("050000", "01e00300a00101400200a063"),
        (
            CellKind::Appended,
            vec![
                ("01E0".into(), Value::Int(3)),
                ("00A0".into(), Value::Int(1)),
                ("0140".into(), Value::Int(2)),
                ("00A0".into(), Value::Int(99))
            ]
        )
    );
    assert_eq!(
        shown("0000f0007d0b", "014020000001"),
        (
            CellKind::Compacted,
            vec![
                ("0000".into(), Value::Int(1)),
                ("F0007D0B".into(), Value::Float(2.5))
            ]
        )
    );
    assert_eq!(
        shown("0007", "05"),
        (CellKind::Point, vec![("0000".into(), Value::Int(5))])
    );
    assert_eq!(shown("01003d", "7b7d"), (CellKind::Annotation, vec![]));
}

#[test]
fn rejects_points_out_of_order_or_of_another_hour() {
    let second = Timestamp::from_seconds;
    assert_eq!(
        compact([]).unwrap_err().to_string(),
        "no points to write, a cell holds at least 1"
    );
    let error = compact([(second(7210), Value::Int(1)), (second(7205), Value::Int(2))]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "point 5000 ms after the base time follows one at 10000 ms, expected ascending order and \
         no instant twice"
    );
    let error = compact([(second(3599), Value::Int(1)), (second(3600), Value::Int(2))]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "point at 3600 is of the hour 3600, expected 0"
    );
}

#[test]
fn accepts_points_after_finish() {
    let mut cell = CompactedCell::new();
    cell.push(Timestamp::from_seconds(1), &Value::Int(1)).unwrap();
    assert_eq!(cell.finish().unwrap(), (&[0x00, 0x10][..], &[0x01][..]));
    cell.push(Timestamp::from_seconds(2), &Value::Int(2)).unwrap();
    assert_eq!(cell.finish().unwrap().1, [1, 2, 0]);
    assert_eq!(cell.finish().unwrap().1, [1, 2, 0]);
    cell.push(Timestamp::from_millis(2001).unwrap(), &Value::Int(3))
        .unwrap();
    assert!(cell.push(Timestamp::from_seconds(2), &Value::Int(9)).is_err());
    assert_eq!(cell.finish().unwrap().1, [1, 2, 3, 1]);
    assert_eq!(cell.len(), 3);
    cell.clear();
    assert!(cell.is_empty());
    assert_eq!(cell.finish(), Err(CompactError::Empty));
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-200..200_i64).prop_map(Value::Int),
        any::<i64>().prop_map(Value::Int),
        (-1e9..1e9_f32).prop_map(Value::Float),
        (-1e9..1e9_f64).prop_map(Value::Double),
    ]
}

prop_compose! {
    /// Points of one hour by instant, in milliseconds; whole seconds in either form.
    fn hours()(
        seconds in prop::collection::btree_map((0..3600_u32).prop_map(|s| s * 1000), (Just(false), values()), 0..40),
        millis in prop::collection::btree_map(0..3_600_000_u32, (Just(true), values()), 0..40),
    ) -> BTreeMap<u32, (bool, Value)> {
        let mut all = millis;
        all.extend(seconds);
        all
    }
}

fn timestamp(offset_ms: u32, is_ms: bool) -> Timestamp {
    if is_ms {
        Timestamp::from_millis(i64::from(offset_ms)).unwrap()
    } else {
        Timestamp::from_seconds(offset_ms / 1000)
    }
}

proptest! {
    #[test]
    fn hour_round_trips_in_any_mix_of_forms(
        hour in hours(),
        form in prop::collection::vec(0_u8..4, 80),
        policy in prop_oneof![Just(DuplicatePolicy::Error), Just(DuplicatePolicy::KeepNewest)],
    ) {
        // Single cells, a compacted cell, appended points in reverse, or compacted and single.
        let mut compacted = CompactedCell::new();
        let mut appended = Vec::new();
        let mut cells = Cells::new();
        for ((offset_ms, (is_ms, value)), form) in hour.iter().zip(form) {
            let timestamp = timestamp(*offset_ms, *is_ms);
            let qualifier = Qualifier::new(timestamp, value);
            if matches!(form, 0 | 3) {
                let raw = value.encoded().as_bytes().to_vec();
                cells.push((qualifier.as_bytes().to_vec(), raw, 0));
            }
            if matches!(form, 1 | 3) {
                compacted.push(timestamp, value).unwrap();
            }
            if form == 2 {
                let mut point = Vec::new();
                append_point(qualifier, value.encoded().as_bytes(), &mut point);
                point.extend_from_slice(&appended);
                appended = point;
            }
        }
        if let Ok((qualifier, value)) = compacted.finish() {
            let cell = (qualifier.to_vec(), value.to_vec(), 0);
            // A compacted cell of one point is that point's cell.
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        if !appended.is_empty() {
            cells.push((crate::data_table::APPEND_QUALIFIER.to_vec(), appended, 0));
        }
        cells.sort();
        let (points, stats) = read(&cells, policy).unwrap();
        let expected: Vec<_> = hour.iter().map(|(at, (_, value))| (*at, *value)).collect();
        prop_assert_eq!(&points, &expected);
        prop_assert_eq!((stats.points, stats.out_of_order), (expected.len(), 0));
    }

    #[test]
    fn uniform_and_mixed_columns_decode_alike(
        seconds in prop::collection::btree_set(0..3600_u32, 1..60),
        value in values(),
        is_ms in any::<bool>(),
    ) {
        let mut cell = CompactedCell::new();
        for second in &seconds {
            cell.push(timestamp(second * 1000, is_ms), &value).unwrap();
        }
        let (qualifier, raw) = cell.finish().unwrap();
        let cell = CellRef { qualifier, value: raw, timestamp_ms: 0 };
        let mut points = Points::new();
        decode_row([cell], DuplicatePolicy::Error, &mut points).unwrap();
        let mut one_by_one = Vec::new();
        decode_cell(cell, &mut one_by_one).unwrap();
        let one_by_one: Vec<_> =
            one_by_one.iter().map(|point| (point.qualifier.offset_ms(), point.value)).collect();
        prop_assert_eq!(points.iter().collect::<Vec<_>>(), one_by_one);
        prop_assert_eq!(points.len(), seconds.len());
    }

    #[test]
    fn newer_cell_wins_a_duplicate(
        offset in 0..3600_u32,
        first in values(),
        second in values(),
        timestamps in (any::<i64>(), any::<i64>()),
    ) {
        let cell = |value: &Value, timestamp| {
            let qualifier = Qualifier::new(Timestamp::from_seconds(offset), value);
            (qualifier.as_bytes().to_vec(), value.encoded().as_bytes().to_vec(), timestamp)
        };
        let cells = [cell(&first, timestamps.0), cell(&second, timestamps.1)];
        let (points, _) = read(&cells, DuplicatePolicy::KeepNewest).unwrap();
        let newest = if timestamps.1 > timestamps.0 { second } else { first };
        prop_assert_eq!(points, [(offset * 1000, newest)]);
    }

    #[test]
    fn arbitrary_cells_decode_to_points_or_an_error(
        cells in prop::collection::vec(
            (
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..12),
                    prop::collection::vec(0_u8..4, 2..6),
                    Just(vec![5, 0, 0]),
                ],
                prop::collection::vec(any::<u8>(), 0..20),
                0..3_i64,
            ),
            0..8,
        ),
    ) {
        for policy in [DuplicatePolicy::Error, DuplicatePolicy::KeepNewest] {
            if let Ok((points, stats)) = read(&cells, policy) {
                prop_assert_eq!(points.len(), stats.points);
                prop_assert!(points.is_sorted_by(|a, b| a.0 < b.0));
            }
        }
        for (qualifier, value, timestamp_ms) in &cells {
            let cell = CellRef { qualifier, value, timestamp_ms: *timestamp_ms };
            let _ = decode_cell(cell, &mut Vec::new());
        }
    }
}
