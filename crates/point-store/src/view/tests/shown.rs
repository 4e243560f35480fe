//! [`shown_cells`] predicts the cells that a table shows of a row after the row was put into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::{RowBuilder, RowStore as _, Scan};
use oxtsdb_schema::{BaseTime, Qualifier, RowKeyLayout, SaltLayout, Timestamp, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{FIRST_HOUR, Fixture};
use crate::view::shown::{ShownCell, shown_cells};

/// The cells of a row: timestamp and value by qualifier.
type Cells = BTreeMap<Vec<u8>, (i64, Vec<u8>)>;
/// A cell: qualifier, timestamp, value.
type Cell = (Vec<u8>, i64, Vec<u8>);

fn points() -> impl Strategy<Value = (Timestamp, Value)> {
    let base = BaseTime::from_seconds(FIRST_HOUR * 3600);
    let values = prop_oneof![
        select(vec![0, -1, 127, 128, 70_000, i64::MIN]).prop_map(Value::Int),
        select(vec![0.5, -0.0]).prop_map(Value::Float),
        select(vec![0.1, 3e300]).prop_map(Value::Double),
    ];
    // Few instants, so that cells share them, in either resolution.
    (any::<bool>(), 0..4_u32, values).prop_map(move |(is_ms, second, value)| {
        let timestamp = if is_ms {
            Timestamp::from_millis(base.millis() + i64::from(second * 500)).unwrap()
        } else {
            Timestamp::from_seconds(base.seconds() + second)
        };
        (timestamp, value)
    })
}

fn cell() -> impl Strategy<Value = Cell> {
    let single = |(timestamp, value): (Timestamp, Value)| {
        let qualifier = Qualifier::new(timestamp, &value);
        (qualifier.as_bytes().to_vec(), value.encoded().as_bytes().to_vec())
    };
    let compacted = |points: Vec<(Timestamp, Value)>| {
        let points: BTreeMap<i64, (Timestamp, Value)> = points
            .into_iter()
            .map(|point| (point.0.as_millis(), point))
            .collect();
        oxtsdb_schema::row::compact(points.into_values()).unwrap()
    };
    // A small integer in 8 bytes.
    let odd = |(timestamp, _)| {
        let qualifier = Qualifier::new(timestamp, &Value::Int(i64::MAX));
        (qualifier.as_bytes().to_vec(), 5_i64.to_be_bytes().to_vec())
    };
    let others = vec![
        (vec![1, 0, 0], b"{}".to_vec()),
        (vec![5, 0, 0], vec![0, 0x10, 7]),
        (vec![6, 0, 0x10], vec![42, 0, 0, 0, 0]),
        // A compacted cell with lengths that do not add up.
        (vec![0, 0, 0, 0x10], vec![1, 2, 3, 4, 0]),
    ];
    let cells = prop_oneof![
        6 => points().prop_map(single),
        4 => vec(points(), 2..5).prop_map(compacted),
        1 => points().prop_map(odd),
        2 => select(others),
    ];
    (cells, 1..5_i64).prop_map(|((qualifier, value), timestamp_ms)| (qualifier, timestamp_ms, value))
}

fn cells() -> impl Strategy<Value = Cells> {
    let by_qualifier = |cells: Vec<Cell>| {
        let cells = cells.into_iter();
        cells
            .map(|(qualifier, timestamp_ms, value)| (qualifier, (timestamp_ms, value)))
            .collect()
    };
    vec(cell(), 1..10).prop_map(by_qualifier)
}

async fn check(layout: RowKeyLayout, cells: &Cells) {
    let fixture = Fixture::with_layout(layout).await;
    let key = fixture.key(1, 1, 0);
    let (mut batch, family) = fixture.batch();
    batch.row(&key);
    let mut row = RowBuilder::new(&key, Arc::from(["t".to_owned()]));
    for (qualifier, (timestamp_ms, value)) in cells {
        batch.put_at(family, qualifier, *timestamp_ms, value);
        row.push(0, qualifier, *timestamp_ms, value);
    }
    let row = row.finish().unwrap();
    fixture.view.write(batch).await.unwrap();
    let shown = fixture.scan(Scan::prefix(b"")).await;
    let shown = shown.iter().flat_map(|row| row.cells()).map(|cell| ShownCell {
        family: cell.family.to_owned(),
        qualifier: cell.qualifier.to_vec(),
        value: cell.value.to_vec(),
    });
    let shown: Vec<ShownCell> = shown.collect();
    assert_eq!(shown_cells(&row, &layout), shown);
    // A row of the table itself, as another copy exports it, is shown as it is.
    let exported = fixture.scan(Scan::prefix(b"")).await;
    for row in &exported {
        assert_eq!(shown_cells(row, &layout), shown);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_row_is_shown_as_predicted(salted in any::<bool>(), cells in cells()) {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(usize::from(salted), 20).unwrap(),
            ..RowKeyLayout::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(layout, &cells));
    }
}
