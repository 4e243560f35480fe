//! How much a scan reads, and damage.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{
    ColumnSelection, DamageLog, RowFilter, RowStore as _, Scan, StoreControl as _, StoreError,
};

use super::fixture::{FIRST_HOUR, Fixture, int, scan_of};
use crate::{DamagedPart, TimeRange};

fn counts(fixture: &Fixture) -> (usize, usize) {
    let reads = fixture.points.reads.swap(0, Ordering::Relaxed);
    (reads, fixture.points.read_points.swap(0, Ordering::Relaxed))
}

#[tokio::test]
async fn scans_more_than_a_window_in_order() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 300, 0..30, 10).await;
    fixture.fill(2, 2, 0..3, 3_600).await;
    fixture.fill(2, 1, 5_000..5_400, 60).await;
    for reverse in [false, true] {
        let mut scan = Scan::prefix(b"");
        scan.reverse = reverse;
        let rows = fixture.scan(scan).await;
        assert_eq!(rows.len(), 300 * 30 + 2 * 3 + 400);
        assert!(rows.is_sorted_by(|a, b| if reverse {
            a.key() > b.key()
        } else {
            a.key() < b.key()
        }));
        let cells: usize = rows.iter().map(oxtsdb_row_store::Row::len).sum();
        assert_eq!(cells, 300 * 30 * 10 + 2 * 3 * 3_600 + 400 * 60);
        let (reads, points) = counts(&fixture);
        assert!(reads < 250, "{reads} reads");
        // Windows that were too large are read again.
        assert!(points < 8 * cells, "{points} points read for {cells}");
    }
}

#[tokio::test]
async fn row_larger_than_a_window_is_one_row() {
    let mut fixture = Fixture::new().await;
    fixture.view.window.bytes = 5_000;
    fixture.fill(1, 3, 0..2, 3_600).await;
    for reverse in [false, true] {
        let mut scan = Scan::prefix(b"");
        scan.reverse = reverse;
        let rows = fixture.scan(scan).await;
        assert_eq!(rows.len(), 6);
        assert!(rows.iter().all(|row| row.len() == 3_600));
    }
}

#[tokio::test]
async fn hours_without_points_take_few_reads() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 100, 0..1, 1).await;
    fixture.fill(1, 1, 700_000..700_001, 1).await;
    for reverse in [false, true] {
        let mut scan = Scan::prefix(b"");
        scan.reverse = reverse;
        assert_eq!(fixture.scan(scan).await.len(), 101);
        let (reads, _) = counts(&fixture);
        assert!(reads < 40, "{reads} reads");
    }
}

#[tokio::test]
async fn first_row_takes_one_small_read() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 1_000, 0..2, 10).await;
    let mut scan = Scan::range(fixture.key(1, 0, 0), []);
    scan.limit = Some(1);
    assert_eq!(fixture.scan(scan).await.len(), 1);
    let (reads, points) = counts(&fixture);
    assert!(reads == 1 && points <= 400, "{reads} reads, {points} points");
}

#[tokio::test]
async fn seek_hints_skip_series() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 2_000, 0..24, 5).await;
    let (layout, tagv) = (fixture.layout, 1_234);
    let filter = RowFilter::new(move |key| key.ends_with(&[0, 4, 210])).with_seek(move |key| {
        let hour = u32::from_be_bytes(key[3..7].try_into().unwrap()) / 3600 - FIRST_HOUR;
        let of = |hour| super::fixture::key(&layout, 1, tagv, hour);
        Some(if key < &of(hour)[..] {
            of(hour)
        } else {
            of(hour + 1)
        })
    });
    let mut scan = Scan::prefix(&fixture.key(1, 0, 0)[..3]);
    scan.filter = Some(filter);
    scan.start = fixture.key(1, 0, 2);
    scan.stop = fixture.key(1, 0, 22);
    let expected: Vec<_> = (2..22).map(|hour| fixture.key(1, tagv, hour)).collect();
    let rows = fixture.scan(scan.clone()).await;
    assert!(rows.iter().map(oxtsdb_row_store::Row::key).eq(&expected));
    let (_, points) = counts(&fixture);
    assert!(points < 20 * 2 * 32 * 5, "{points} points read");
    // Without hints the rows are the same.
    scan.filter = Some(RowFilter::new(|key| key.ends_with(&[0, 4, 210])));
    let rows = fixture.scan(scan).await;
    assert!(rows.iter().map(oxtsdb_row_store::Row::key).eq(&expected));
}

#[tokio::test]
async fn columns_of_other_cells_need_no_points() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 10, 0..2, 10).await;
    let key = fixture.key(1, 1, 0);
    fixture.put(&key, &[1, 0, 0], b"{}").await;
    counts(&fixture);
    let columns = ColumnSelection::Columns(vec![("t".to_owned(), vec![1, 0, 0])]);
    let row = fixture.view.get(&fixture.table, &key, &columns).await.unwrap();
    assert_eq!(row.unwrap().len(), 1);
    let mut scan = Scan::prefix(b"");
    scan.columns = columns;
    assert_eq!(fixture.scan(scan).await.len(), 1);
    assert_eq!(counts(&fixture), (0, 0));
    assert_eq!(fixture.get(&key).await.unwrap().len(), 11);
}

#[tokio::test]
async fn dropped_scan_reads_no_further() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 100, 0..20, 10).await;
    let mut rows = fixture
        .view
        .scan(&fixture.table, Scan::prefix(b""))
        .await
        .unwrap();
    assert!(rows.try_next().await.unwrap().is_some());
    let before = counts(&fixture).0;
    drop(rows);
    assert!(before < 30);
    assert_eq!(counts(&fixture).0, 0);
}

#[tokio::test]
async fn measures_other_tables_only() {
    let fixture = Fixture::new().await;
    let measure = fixture.view.measure(&fixture.table, &[], &[], 10);
    assert_eq!(measure.await.unwrap(), None);
}

#[tokio::test]
async fn damaged_hours_are_errors_or_are_recorded() {
    let fixture = Fixture::new().await;
    fixture.fill(1, 3, 0..100, 10).await;
    let hour_ms = |hour: u32| i64::from(FIRST_HOUR + hour) * 3_600_000;
    *fixture.points.damage.lock() = vec![DamagedPart {
        path: PathBuf::from("set-aside/7.part"),
        range: TimeRange {
            first_ms: hour_ms(50) + 1,
            last_ms: hour_ms(51) - 1,
        },
        detail: "checksum".to_owned(),
    }];
    let listed = fixture.view.damage();
    assert_eq!((listed.len(), &listed[0].file[..]), (1, "set-aside/7.part"));
    let scan = async |scan: Scan| scan_of(&fixture.view, &fixture.table, scan).await;
    let is_damage = |error: StoreError| matches!(error, StoreError::Corrupt { .. });
    assert!(is_damage(scan(Scan::prefix(b"")).await.unwrap_err()));
    let before = Scan::range([], &fixture.key(1, 0, 50)[..7]);
    assert_eq!(scan(before).await.unwrap().len(), 150);
    let behind = Scan::range(fixture.key(1, 0, 51), []);
    assert_eq!(scan(behind).await.unwrap().len(), 147);
    let log = DamageLog::default();
    let mut skipping = Scan::prefix(b"");
    skipping.skip_damaged = Some(log.clone());
    assert_eq!(scan(skipping).await.unwrap().len(), 300);
    assert_eq!(log.ranges(), listed);

    let keys = [fixture.key(1, 1, 49), fixture.key(1, 1, 50)];
    let read = async |keys: &[Vec<u8>]| {
        let all = ColumnSelection::All;
        fixture.view.get_rows(&fixture.table, keys, &all, None).await
    };
    assert!(read(&keys[..1]).await.unwrap()[0].is_some());
    assert!(is_damage(read(&keys).await.unwrap_err()));
    let log = DamageLog::default();
    let all = ColumnSelection::All;
    let rows = fixture.view.get_rows(&fixture.table, &keys, &all, Some(&log));
    assert!(rows.await.unwrap().iter().all(Option::is_some) && !log.is_empty());
    // Writes are accepted.
    fixture.put(&keys[1], &int(1, 1).0, &int(1, 1).1).await;
}
