//! Random writes show the same rows as a table of cells.

use std::collections::BTreeSet;

use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    ColumnSelection, FamilyId, Row, RowFilter, RowStore as _, Scan, TableDef, WriteBatch, prefix_end,
};
use oxtsdb_schema::{BaseTime, Qualifier, RowKeyLayout, RowKeyRef, SaltLayout, Timestamp, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{FIRST_HOUR, Fixture, key, scan_of};
use crate::view::cells::{instants, points_of};
use crate::view::window::WindowSize;

/// A change of one row.
#[derive(Clone, Debug)]
enum Change {
    Put(Offset, Value),
    /// Points in a compacted cell.
    PutCompacted(Vec<(Offset, Value)>),
    /// A small integer in 8 bytes.
    PutOdd(Offset, i8),
    Annotate(u8),
    DeleteAnnotation(u8),
}

/// An instant of an hour: seconds or milliseconds.
type Offset = (bool, u32);

/// A row: metric, tag value, hour.
type Place = (u8, u16, u32);

fn places() -> impl Strategy<Value = Place> {
    let hours = prop_oneof![0..4_u32, select(vec![24, 25, 30_000])];
    (1..4_u8, prop_oneof![0..3_u16, 0..80_u16, 255..258_u16], hours)
}

fn offsets() -> impl Strategy<Value = Offset> {
    let times = prop_oneof![0..4_u32, Just(3_599)];
    (any::<bool>(), times)
        .prop_map(|(is_ms, second)| (is_ms, second * 1000 + u32::from(is_ms && second == 3)))
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => select(vec![0, 1, -1, 127, 128, -32_768, 70_000, i64::MAX, i64::MIN]).prop_map(Value::Int),
        1 => select(vec![0.5, -0.0, 3e7]).prop_map(Value::Float),
        1 => select(vec![0.1, -0.0, 3e300]).prop_map(Value::Double),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (offsets(), values()).prop_map(|(offset, value)| Change::Put(offset, value)),
        2 => vec((offsets(), values()), 2..5).prop_map(Change::PutCompacted),
        1 => (offsets(), any::<i8>()).prop_map(|(offset, value)| Change::PutOdd(offset, value)),
        2 => any::<u8>().prop_map(Change::Annotate),
        1 => any::<u8>().prop_map(Change::DeleteAnnotation),
    ]
}

fn layouts() -> impl Strategy<Value = RowKeyLayout> {
    let salts = select(vec![(0, 1), (1, 20), (1, 300), (2, 3)]);
    salts.prop_map(|(width, buckets)| RowKeyLayout {
        salt: SaltLayout::new(width, buckets).unwrap(),
        ..RowKeyLayout::default()
    })
}

/// A scan; numbers select from the rows and cells of the table.
#[derive(Clone, Debug)]
struct ScanPlan {
    /// Place, how much of its key, and whether the next key of that prefix.
    ends: [Option<(Place, usize, bool)>; 2],
    reverse: bool,
    limit: Option<u64>,
    batch_rows: usize,
    columns: u8,
    /// Rows with this remainder of their tag value, with seek hints.
    filter: Option<(u8, bool)>,
    max_versions: u32,
}

fn scans() -> impl Strategy<Value = ScanPlan> {
    let end = || proptest::option::of((places(), 0..20_usize, any::<bool>()));
    (
        [end(), end()],
        any::<bool>(),
        proptest::option::weighted(0.3, 0..10_u64),
        select(vec![1, 2, 7, 100]),
        0..5_u8,
        proptest::option::of((0..3_u8, any::<bool>())),
        1..3_u32,
    )
        .prop_map(
            |(ends, reverse, limit, batch_rows, columns, filter, max_versions)| ScanPlan {
                ends,
                reverse,
                limit,
                batch_rows,
                columns,
                filter,
                max_versions,
            },
        )
}

impl ScanPlan {
    fn scan(&self, layout: &RowKeyLayout) -> Scan {
        let ends = self.ends.map(|end| match end {
            None => Vec::new(),
            Some(((metric, tagv, hour), length, is_next)) => {
                let key = key(layout, metric, tagv, hour);
                let prefix = &key[..length.min(key.len())];
                if is_next {
                    prefix_end(prefix)
                } else {
                    prefix.to_vec()
                }
            }
        });
        let [mut start, mut stop] = ends;
        if !stop.is_empty() && stop < start {
            std::mem::swap(&mut start, &mut stop);
        }
        let mut scan = Scan::range(start, stop);
        scan.reverse = self.reverse;
        scan.limit = self.limit;
        scan.batch_rows = self.batch_rows;
        scan.max_versions = self.max_versions;
        let column = |qualifier: &[u8]| ("t".to_owned(), qualifier.to_vec());
        scan.columns = match self.columns {
            0 => ColumnSelection::Columns(vec![column(&[1, 0, 0]), column(&[0, 0]), column(&[0, 1])]),
            1 => ColumnSelection::Family("t".to_owned()),
            _ => ColumnSelection::All,
        };
        scan.filter = self.filter.map(|(remainder, has_seek)| {
            let filter = RowFilter::new(move |key| key.last().is_some_and(|last| last % 3 == remainder));
            if !has_seek {
                return filter;
            }
            // The next key of this length with a last byte that matches.
            filter.with_seek(|key| {
                let last = key.last()?;
                let mut target = key.to_vec();
                *target.last_mut()? = last.checked_add(1)?;
                Some(target)
            })
        });
        scan
    }
}

/// A table of cells that has one plain point for each instant, as a point store does.
struct Cells {
    store: MemoryStore,
    def: TableDef,
}

fn base(hour: u32) -> BaseTime {
    BaseTime::from_seconds((FIRST_HOUR + hour) * 3600)
}

fn timestamp(hour: u32, (is_ms, offset_ms): Offset) -> Timestamp {
    if is_ms {
        return Timestamp::from_millis(base(hour).millis() + i64::from(offset_ms)).unwrap();
    }
    Timestamp::from_seconds(base(hour).seconds() + offset_ms / 1000)
}

impl Cells {
    async fn apply(&self, row_key: &[u8], hour: u32, change: &Change) {
        let mut batch = WriteBatch::new(self.def.name.clone());
        let family = batch.family("t");
        batch.row(row_key);
        // Points of the same instant in other columns are replaced.
        let put: Vec<_> = match change {
            Change::Put(offset, value) => vec![(*offset, *value)],
            Change::PutCompacted(points) => compacted(hour, points),
            _ => Vec::new(),
        };
        let all = ColumnSelection::All;
        let row = self.store.get(&self.def.name, row_key, &all).await.unwrap();
        for cell in row.iter().flat_map(Row::cells) {
            let is_plain = points_of(base(hour), cell.qualifier, cell.value).is_some();
            let times = instants(base(hour), cell.qualifier);
            let is_put = put.iter().any(|(offset, _)| {
                let time_ms = timestamp(hour, *offset).as_millis();
                times.iter().any(|(instant, _)| *instant == time_ms)
            });
            if is_plain && is_put {
                batch.delete_column(family, cell.qualifier);
            }
        }
        if let Change::PutCompacted(_) = change {
            for (offset, value) in put {
                add(&mut batch, family, hour, &Change::Put(offset, value));
            }
        } else {
            add(&mut batch, family, hour, change);
        }
        self.store.write(batch).await.unwrap();
    }
}

/// The points of a compacted cell: ascending, one for each instant.
fn compacted(hour: u32, points: &[(Offset, Value)]) -> Vec<(Offset, Value)> {
    let mut seen = BTreeSet::new();
    let mut points: Vec<_> = points.to_vec();
    points.retain(|(offset, _)| seen.insert(timestamp(hour, *offset).as_millis()));
    points.sort_by_key(|(offset, _)| timestamp(hour, *offset).as_millis());
    points
}

/// Adds the mutations of a change to a row that was begun.
fn add(batch: &mut WriteBatch, family: FamilyId, hour: u32, change: &Change) {
    match change {
        Change::Put(offset, value) => {
            let timestamp = timestamp(hour, *offset);
            let (qualifier, value) = (Qualifier::new(timestamp, value), value.encoded());
            batch.put_at(
                family,
                qualifier.as_bytes(),
                timestamp.as_millis(),
                value.as_bytes(),
            );
        }
        Change::PutCompacted(points) => {
            let points = compacted(hour, points).into_iter();
            let points = points.map(|(offset, value)| (timestamp(hour, offset), value));
            let (qualifier, value) = oxtsdb_schema::row::compact(points).unwrap();
            batch.put(family, &qualifier, &value);
        }
        Change::PutOdd(offset, value) => {
            let timestamp = timestamp(hour, *offset);
            let qualifier = Qualifier::new(timestamp, &Value::Int(i64::MAX));
            let value = i64::from(*value).to_be_bytes();
            batch.put_at(family, qualifier.as_bytes(), timestamp.as_millis(), &value);
        }
        Change::Annotate(number) => {
            batch.put_at(family, &[1, 0, *number % 3], 5_000, &[*number]);
        }
        Change::DeleteAnnotation(number) => {
            batch.delete_column(family, &[1, 0, *number % 3]);
        }
    }
}

/// From a few points up, so that scans of small tables take many windows.
fn windows() -> impl Strategy<Value = WindowSize> {
    (1..5_usize, select(vec![8, 500, 2_000, 1 << 20]))
        .prop_map(|(first_series, bytes)| WindowSize { first_series, bytes })
}

async fn check(
    layout: RowKeyLayout,
    window: WindowSize,
    writes: &[Vec<(Place, Change)>],
    plans: &[ScanPlan],
) {
    let mut fixture = Fixture::with_layout(layout).await;
    fixture.view.window = window;
    let cells = Cells {
        store: MemoryStore::new(),
        def: TableDef::new(fixture.table.clone(), &["t"]),
    };
    cells.store.create_table(&cells.def).await.unwrap();
    let mut keys = BTreeSet::new();
    for changes in writes {
        let (mut batch, family) = fixture.batch();
        for ((metric, tagv, hour), change) in changes {
            let key = fixture.key(*metric, *tagv, *hour);
            assert!(RowKeyRef::decode(&key, &layout).unwrap().has_valid_salt(&layout));
            batch.row(&key);
            add(&mut batch, family, *hour, change);
            cells.apply(&key, *hour, change).await;
            keys.insert(key);
        }
        fixture.view.write(batch).await.unwrap();
    }
    let all = Scan::prefix(b"");
    let expected = scan_of(&cells.store, &fixture.table, all.clone()).await.unwrap();
    assert_eq!(fixture.scan(all).await, expected);
    for plan in plans {
        let scan = plan.scan(&layout);
        let expected = scan_of(&cells.store, &fixture.table, scan.clone()).await.unwrap();
        assert_eq!(fixture.scan(scan.clone()).await, expected, "{scan:?}");
        if let Some(row) = expected.get(expected.len() / 2) {
            let scan = scan.resume_after(row.key());
            let expected = scan_of(&cells.store, &fixture.table, scan.clone()).await.unwrap();
            assert_eq!(fixture.scan(scan.clone()).await, expected, "{scan:?}");
        }
        let keys: Vec<_> = keys.iter().cloned().collect();
        let columns = plan.scan(&layout).columns;
        let rows = fixture
            .view
            .get_rows(&fixture.table, &keys, &columns, None)
            .await
            .unwrap();
        let expected = cells
            .store
            .get_rows(&fixture.table, &keys, &columns, None)
            .await
            .unwrap();
        assert_eq!(rows, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn shows_the_rows_of_a_table_of_cells(
        layout in layouts(),
        window in windows(),
        writes in vec(vec((places(), changes()), 0..40), 1..6),
        plans in vec(scans(), 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(layout, window, &writes, &plans));
    }
}
