use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, RowStore as _, TableDef, TableName, WriteBatch};
use oxtsdb_schema::histogram::parse_histogram;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, Timestamp};

use super::*;
use crate::context::limits::Limits;

const HOUR: u32 = 1_356_998_400;
const CODECS: HistogramCodecs = HistogramCodecs::with_simple(42);

/// The row of a series and hour with these cells.
async fn row(cells: &[(&[u8], &[u8])]) -> Row {
    let store = MemoryStore::new();
    let table: TableName = "tsdb".parse().unwrap();
    store
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let mut key = Vec::new();
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, 1];
    write_row_key(
        &RowKeyLayout::default(),
        &tsuid,
        BaseTime::from_seconds(HOUR),
        &mut key,
    );
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("t");
    batch.row(&key);
    for (qualifier, value) in cells {
        batch.put(family, qualifier, value);
    }
    store.write(batch).await.unwrap();
    let columns = ColumnSelection::Family("t".to_owned());
    store.get(&table, &key, &columns).await.unwrap().unwrap()
}

/// A row with histograms at offsets in milliseconds.
async fn histograms(at: &[(i64, bool, &str)]) -> Row {
    let cells: Vec<_> = at
        .iter()
        .map(|(offset_ms, in_millis, text)| {
            let millis = i64::from(HOUR) * 1000 + offset_ms;
            let time = Timestamp::from_opentsdb(if *in_millis { millis } else { millis / 1000 }).unwrap();
            let value = CODECS.encode_cell(&parse_histogram(text).unwrap()).unwrap();
            (histogram::qualifier(time), value)
        })
        .collect();
    let cells: Vec<(&[u8], &[u8])> = cells.iter().map(|(q, v)| (q.as_slice(), v.as_slice())).collect();
    row(&cells).await
}

fn reader(windows: Option<Windows>, in_stored_order: bool) -> Reader {
    let options = ReadOptions {
        layout: RowKeyLayout::default(),
        codecs: Some(CODECS),
        windows,
        in_stored_order,
        annotations: false,
    };
    Reader::new(options, Budget::from_limits(Limits::NONE)).unwrap()
}

/// Offsets in milliseconds, and texts of the histograms.
fn read_by(mut reader: Reader, row: &Row) -> Vec<(i64, i64)> {
    reader.add(std::slice::from_ref(row)).unwrap();
    let series = reader.series.into_values().next().unwrap();
    let base_ms = i64::from(HOUR) * 1000;
    let counts = |histogram: &Histogram| histogram.buckets().iter().map(|bucket| bucket.count).sum();
    series
        .histograms
        .iter()
        .map(|(time_ms, histogram)| (time_ms - base_ms, counts(histogram)))
        .collect()
}

#[tokio::test]
async fn stored_order_has_early_milliseconds_first() {
    let row = histograms(&[
        (60_000, false, "0,1=1"),
        (61_500, true, "0,1=2"),
        (61_500, false, "0,1=4"),
    ])
    .await;
    assert_eq!(
        read_by(reader(None, true), &row),
        [(61_500, 2), (60_000, 1), (61_000, 4)]
    );
    assert_eq!(
        read_by(reader(None, false), &row),
        [(60_000, 1), (61_000, 4), (61_500, 2)]
    );
}

#[tokio::test]
async fn one_of_two_at_an_instant_is_taken_unless_as_opentsdb() {
    let row = histograms(&[(10_000, false, "0,1=1"), (10_000, true, "0,1=2")]).await;
    assert_eq!(read_by(reader(None, true), &row), [(10_000, 2), (10_000, 1)]);
    let read = read_by(reader(None, false), &row);
    assert_eq!(read.len(), 1);
}

#[tokio::test]
async fn windows_sum_their_histograms() {
    let row = histograms(&[
        (0, false, "0,1=1"),
        (59_000, false, "0,1=2:1,2=1"),
        (60_000, false, "0,1=4"),
        (200_000, false, "0,1=8"),
    ])
    .await;
    let windows = |layout| Some(Windows::new(layout));
    let minutes = WindowLayout::Fixed { length_ms: 60_000 };
    assert_eq!(
        read_by(reader(windows(minutes), true), &row),
        [(0, 4), (60_000, 4), (180_000, 8)]
    );
    let base_ms = i64::from(HOUR) * 1000;
    let whole = WindowLayout::Whole {
        start_ms: base_ms + 1,
        stop_ms: base_ms + 200_000,
    };
    assert_eq!(read_by(reader(windows(whole), false), &row), [(1, 7)]);
    let mut late = Windows::new(WindowLayout::Fixed { length_ms: 60_000 });
    late.from_ms = base_ms + 60_000;
    assert_eq!(
        read_by(reader(Some(late), true), &row),
        [(60_000, 4), (180_000, 8)]
    );
}

#[tokio::test]
async fn a_whole_range_ends_at_the_first_histogram_behind_it() {
    let row = histograms(&[
        (70_000, true, "0,1=1"),
        (90_000, true, "0,1=2"),
        (75_000, false, "0,1=4"),
    ])
    .await;
    let base_ms = i64::from(HOUR) * 1000;
    let windows = || {
        Some(Windows::new(WindowLayout::Whole {
            start_ms: base_ms,
            stop_ms: base_ms + 80_000,
        }))
    };
    assert_eq!(read_by(reader(windows(), true), &row), [(0, 1)]);
    assert_eq!(read_by(reader(windows(), false), &row), [(0, 5)]);
}

#[tokio::test]
async fn leaves_out_and_reports_cells_that_do_not_decode() {
    let good = CODECS.encode_cell(&parse_histogram("0,1=1").unwrap()).unwrap();
    let row = row(&[
        (&[6, 0, 0], &good),
        (&[6, 0, 1], &good[..5]),
        (&[6, 0, 2], &[7, 0, 0, 0, 0]),
        (&[6, 0xff, 0xff], &good),
        (&[6], &good),
        (&[0, 0], &[1]),
    ])
    .await;
    let mut reader = reader(None, true);
    reader.add(std::slice::from_ref(&row)).unwrap();
    assert_eq!(reader.statistics.points, 1);
    assert_eq!(reader.statistics.skipped_cells, 4);
    assert_eq!(reader.statistics.damaged_rows, 4);
    let reasons: Vec<&str> = reader
        .statistics
        .damaged
        .iter()
        .map(|row| row.reason.as_str())
        .collect();
    assert!(reasons[1].contains("cell with qualifier `060001`"), "{reasons:?}");
    assert!(
        reasons[2].ends_with("No codec found mapped to ID 7"),
        "{reasons:?}"
    );
    let mut unconfigured = Reader::new(
        ReadOptions {
            codecs: None,
            ..reader.options.clone()
        },
        Budget::from_limits(Limits::NONE),
    )
    .unwrap();
    unconfigured.add(&[row]).unwrap();
    assert!(unconfigured.series.is_empty());
    assert_eq!(unconfigured.statistics.damaged_rows, 5);
}
