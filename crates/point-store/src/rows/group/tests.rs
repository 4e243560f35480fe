use std::collections::BTreeMap;

use oxtsdb_schema::row::{CellKind, CellRef, decode_row};
use oxtsdb_schema::{DuplicatePolicy, Points, Timestamp, Value};
use proptest::prelude::*;

use super::*;

/// 1356998400 is the start of an hour.
const HOUR: i64 = 1_356_998_400_000;

/// A point as tests write it: row, timestamp as OpenTSDB takes it, value.
type TestPoint = (&'static [u8], i64, Value);

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

fn batch<'a>(points: impl IntoIterator<Item = (&'a [u8], Timestamp, Value)>) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let family = batch.family(FAMILY);
    for (row, timestamp, value) in points {
        let qualifier = Qualifier::new(timestamp, &value);
        batch
            .row(row)
            .put(family, qualifier.as_bytes(), value.encoded().as_bytes());
    }
    batch
}

fn batches(requests: &[&[TestPoint]]) -> Vec<WriteBatch> {
    let timestamped =
        |(row, timestamp, value): &TestPoint| (*row, Timestamp::from_opentsdb(*timestamp).unwrap(), *value);
    requests
        .iter()
        .map(|points| batch(points.iter().map(timestamped)))
        .collect()
}

/// The cells of a batch, as `row qualifier value` in hex.
fn cells(batch: &WriteBatch) -> Vec<String> {
    let mut cells = Vec::new();
    for row in batch.iter() {
        for mutation in row.iter() {
            let MutationRef::Put { qualifier, value, .. } = mutation else {
                panic!("{mutation:?}")
            };
            cells.push(format!(
                "{} {} {}",
                hex::encode(row.key),
                hex::encode(qualifier),
                hex::encode(value)
            ));
        }
    }
    cells
}

fn compacted(batches: &[WriteBatch]) -> Vec<String> {
    cells(&PointsByRow::from_batches(batches.iter()).into_cells(&table(), |_| true))
}

fn single(batches: &[WriteBatch]) -> Vec<String> {
    cells(&PointsByRow::from_batches(batches.iter()).into_cells(&table(), |_| false))
}

/// Compacted by OpenTSDB 2.4.1 on HBase.
#[test]
fn the_points_of_a_row_become_the_cell_that_opentsdb_makes_of_them() {
    use Value::{Double, Float, Int};
    let seconds: &[TestPoint] = &[
        (&[7], 1_356_998_400, Int(1)),
        (&[7], 1_356_998_410, Int(300)),
        (&[7], 1_356_998_420, Int(-5)),
        (&[7], 1_356_998_430, Float(4.5)),
    ];
    let mixed: &[TestPoint] = &[
        (&[8], 1_356_998_401_500, Int(70_000)),
        (&[8], 1_356_998_401, Double(0.1)),
        (&[8], 1_356_998_400_500, Float(2.5)),
        (&[8], 1_356_998_400, Int(1)),
    ];
    let millis: &[TestPoint] = &[
        (&[9], 1_356_998_400_001, Int(1)),
        (&[9], 1_357_001_999_999, Int(2)),
    ];
    let expected = [
        "07 000000a1014001eb 01012cfb4090000000",
        "08 0000f0007d0b001ff0017703 01402000003fb999999999999a0001117001",
        "09 f0000040fdbb9fc0 010200",
    ];
    assert_eq!(compacted(&batches(&[seconds, mixed, millis])), expected);
    // In whatever requests they come, side by side or one behind the other.
    let together = [&seconds[..1], &mixed[..3], millis, &mixed[3..], &seconds[1..]];
    assert_eq!(
        compacted(&batches(&together)),
        expected,
        "rows are in the order in which they came first"
    );
}

/// OpenTSDB's fsck takes a longer cell for appended points if its qualifier begins with 05.
#[test]
fn no_compacted_cell_begins_as_the_column_of_appended_points() {
    use Value::Int;
    let points: &[TestPoint] = &[
        (&[7], 1_356_998_490, Int(2)),
        (&[7], 1_356_998_480, Int(1)),
        (&[7], 1_356_998_500, Int(4)),
        (&[7], 1_356_998_495, Int(3)),
        (&[7], 1_356_998_510, Int(5)),
        (&[8], 1_356_998_479, Int(1)),
        (&[8], 1_356_998_480, Int(2)),
        (&[9], 1_356_998_480, Int(1)),
        (&[9], 1_356_998_481, Int(2)),
    ];
    let expected = [
        "07 0500 01",
        "07 05a0 02",
        "07 05f0 03",
        "07 064006e0 040500",
        "08 04f00500 010200",
        "09 0500 01",
        "09 0510 02",
    ];
    assert_eq!(compacted(&batches(&[points])), expected);
}

#[test]
fn a_point_alone_stays_an_ordinary_cell() {
    let points: &[TestPoint] = &[
        (&[7], 1_356_998_400, Value::Int(1)),
        (&[8], 1_356_998_400, Value::Int(2)),
        (&[9], 1_356_998_400_500, Value::Int(3)),
    ];
    let expected = ["07 0000 01", "08 0000 02", "09 f0007d00 03"];
    assert_eq!(compacted(&batches(&[points])), expected);
    assert_eq!(single(&batches(&[points])), expected);
}

#[test]
fn last_of_several_points_for_one_instant_wins() {
    use Value::{Float, Int};
    let first: &[TestPoint] = &[
        (&[7], 1_356_998_410, Int(1)),
        (&[7], 1_356_998_410, Int(2)),
        (&[7], 1_356_998_400, Int(5)),
    ];
    let second: &[TestPoint] = &[
        (&[7], 1_356_998_410, Int(3)),
        (&[7], 1_356_998_400, Float(2.5)),
        (&[7], 1_356_998_410, Int(4)),
    ];
    let both = batches(&[first, second]);
    assert_eq!(compacted(&both), ["07 000b00a0 402000000400"]);
    assert_eq!(
        single(&both),
        ["07 0000 05", "07 000b 40200000", "07 00a0 04"],
        "of cells only those of one column are one"
    );
    // A whole second in either resolution is one instant.
    let resolutions: &[TestPoint] = &[
        (&[7], 1_356_998_400_000, Int(1)),
        (&[7], 1_356_998_400, Int(2)),
        (&[7], 1_356_998_401, Int(3)),
        (&[7], 1_356_998_401_000, Int(4)),
    ];
    assert_eq!(compacted(&batches(&[resolutions])), ["07 0000f000fa00 020401"]);
}

#[test]
fn each_row_has_its_form() {
    let points: &[TestPoint] = &[
        (&[7], 1_356_998_400, Value::Int(1)),
        (&[8], 1_356_998_400, Value::Int(2)),
        (&[7], 1_356_998_401, Value::Int(3)),
        (&[8], 1_356_998_400, Value::Float(2.5)),
        (&[8], 1_356_998_400, Value::Int(4)),
    ];
    let batches = batches(&[points]);
    let grouped = PointsByRow::from_batches(batches.iter()).into_cells(&table(), |row| row == [7]);
    assert_eq!(
        cells(&grouped),
        ["07 00000010 010300", "08 0000 04", "08 000b 40200000"]
    );
}

#[test]
fn a_row_with_very_many_points_is_cut_into_cells() {
    let points = |count: i64| {
        (0..count).map(|n| {
            (
                &[7_u8][..],
                Timestamp::from_millis(HOUR + n).unwrap(),
                Value::Int(n % 100),
            )
        })
    };
    let lengths = |count| {
        let grouped =
            PointsByRow::from_batches(std::iter::once(&batch(points(count)))).into_cells(&table(), |_| true);
        assert_eq!(grouped.row_count(), 1);
        let mut lengths = Vec::new();
        for mutation in grouped.iter().next().unwrap().iter() {
            let MutationRef::Put { qualifier, value, .. } = mutation else {
                panic!("{mutation:?}")
            };
            lengths.push((qualifier.len(), value.len()));
        }
        lengths
    };
    assert_eq!(lengths(4096), [(16384, 4097)]);
    assert_eq!(lengths(4097), [(16384, 4097), (4, 1)], "the last one is alone");
    assert_eq!(lengths(8200), [(16384, 4097), (16384, 4097), (32, 9)]);
}

#[test]
fn appends_are_all_points_of_a_row_as_they_came() {
    use Value::{Float, Int};
    // Appended by OpenTSDB 2.4.1, one by one.
    let points: &[TestPoint] = &[
        (&[4], 1_356_998_430, Int(3)),
        (&[4], 1_356_998_410, Int(1)),
        (&[4], 1_356_998_420, Int(2)),
        (&[4], 1_356_998_410, Int(99)),
        (&[4], 1_356_998_420, Float(2.5)),
    ];
    let other: &[TestPoint] = &[(&[5], 1_356_998_400, Int(42))];
    let batches = batches(&[&points[..2], other, &points[2..]]);
    let appends = PointsByRow::from_batches(batches.iter()).into_appends();
    let expected = [
        (
            CellAddress::new([4], "t", [5, 0, 0]),
            hex::decode("01e00300a00101400200a063014b40200000").unwrap(),
        ),
        (CellAddress::new([5], "t", [5, 0, 0]), vec![0, 0, 42]),
    ];
    assert_eq!(appends, expected);
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
    /// A point of one of three rows. Instants are few, so that some meet.
    fn points()(
        row in 0..3_usize,
        offset in prop_oneof![(0..20_i64).prop_map(|s| s * 1000), 0..20_000_i64, 0..3_600_000_i64],
        is_ms in any::<bool>(),
        value in values(),
    ) -> (usize, Timestamp, Value) {
        let timestamp = if is_ms || offset % 1000 != 0 {
            Timestamp::from_millis(HOUR + offset).unwrap()
        } else {
            Timestamp::from_seconds(u32::try_from((HOUR + offset) / 1000).unwrap())
        };
        (row, timestamp, value)
    }
}

proptest! {
    #[test]
    fn what_is_read_is_the_last_value_of_each_instant(
        requests in prop::collection::vec(prop::collection::vec(points(), 0..40), 1..5),
    ) {
        const KEYS: [&[u8]; 3] = [&[7], &[8], &[8, 0]];
        let mut expected: BTreeMap<(usize, u32), Value> = BTreeMap::new();
        for (row, timestamp, value) in requests.iter().flatten() {
            expected.insert((*row, timestamp.offset_ms()), *value);
        }
        let batches: Vec<_> = requests
            .iter()
            .map(|points| batch(points.iter().map(|(row, timestamp, value)| (KEYS[*row], *timestamp, *value))))
            .collect();
        let grouped = PointsByRow::from_batches(batches.iter()).into_cells(&table(), |_| true);
        let mut read: BTreeMap<(usize, u32), Value> = BTreeMap::new();
        for row in grouped.iter() {
            let place = KEYS.iter().position(|key| *key == row.key).unwrap();
            let cells: Vec<CellRef<'_>> = row
                .iter()
                .map(|mutation| match mutation {
                    MutationRef::Put { qualifier, value, .. } => CellRef { qualifier, value, timestamp_ms: 0 },
                    other => panic!("{other:?}"),
                })
                .collect();
            prop_assert_eq!(cells.len(), 1);
            let mut points = Points::new();
            let stats = decode_row(cells.iter().copied(), DuplicatePolicy::Error, &mut points).unwrap();
            prop_assert_eq!((stats.duplicates, stats.out_of_order), (0, 0));
            // Nothing that a reader could take for something else.
            let kind = if points.len() == 1 { CellKind::Point } else { CellKind::Compacted };
            prop_assert_eq!(CellKind::from_qualifier(cells[0].qualifier), kind);
            read.extend(points.iter().map(|(offset_ms, value)| ((place, offset_ms), value)));
        }
        prop_assert_eq!(&read, &expected);
        prop_assert_eq!(grouped.row_count(), expected.keys().map(|(row, _)| row).collect::<std::collections::BTreeSet<_>>().len());

        // Written again, each point is in the cell it was in.
        let again = PointsByRow::from_batches(batches.iter().chain(&batches)).into_cells(&table(), |_| true);
        prop_assert_eq!(cells(&again), cells(&grouped));
    }
}
