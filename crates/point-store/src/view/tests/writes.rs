//! The store that each mutation goes to, and the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oxtsdb_row_store::{
    CellAddress, Condition, Retry, RowStore as _, Scan, StoreControl as _, StoreError, TableDef, WriteBatch,
};

use super::fixture::{FIRST_HOUR, Fixture, int};
use crate::PointStore as _;

const ANNOTATION: &[u8] = &[1, 0, 0];

#[tokio::test]
async fn points_go_to_the_point_store_and_other_cells_to_the_row_store() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let (first, second) = (int(1, 5), int(2, 300));
    let (mut batch, t) = fixture.batch();
    batch
        .row(&key)
        .put(t, &second.0, &second.1)
        .put(t, ANNOTATION, b"{}")
        .put_at(t, &first.0, 7, &first.1);
    // The row of global annotations.
    batch.row(&[0, 0, 0, 0, 0, 0, 0]).put(t, ANNOTATION, b"{}");
    fixture.view.write(batch).await.unwrap();
    let annotation = (ANNOTATION.to_vec(), b"{}".to_vec());
    assert_eq!(
        fixture.stored_cells(&key).await,
        std::slice::from_ref(&annotation)
    );
    assert_eq!(fixture.cells(&key).await, [first.clone(), second, annotation]);
    let row = fixture.get(&key).await.unwrap();
    let timestamp_ms = i64::from(FIRST_HOUR) * 3_600_000 + 1000;
    assert_eq!(row.get("t", &first.0).unwrap().timestamp_ms, timestamp_ms);
    assert_eq!(fixture.scan(Scan::prefix(b"")).await.len(), 2);
}

#[tokio::test]
async fn compacted_points_become_cells_of_their_own() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let points = [int(1, 5), int(2, 300), int(3, -1)];
    let qualifier = points
        .iter()
        .flat_map(|(qualifier, _)| qualifier.clone())
        .collect::<Vec<_>>();
    let mut value = points
        .iter()
        .flat_map(|(_, value)| value.clone())
        .collect::<Vec<_>>();
    value.push(0);
    fixture.put(&key, &qualifier, &value).await;
    assert_eq!(fixture.cells(&key).await, points);
    assert!(fixture.stored_cells(&key).await.is_empty());
}

#[tokio::test]
async fn newest_cell_of_an_instant_wins_within_a_batch() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let (int, float) = (int(1, 5), (vec![0, 0x1b], 0.5_f32.to_be_bytes().to_vec()));
    let (mut batch, t) = fixture.batch();
    batch
        .row(&key)
        .put_at(t, &float.0, 2_000, &float.1)
        .put_at(t, &int.0, 1_000, &int.1);
    fixture.view.write(batch).await.unwrap();
    assert_eq!(fixture.cells(&key).await, [float]);
    fixture.put(&key, &int.0, &int.1).await;
    assert_eq!(fixture.cells(&key).await, [int], "a later batch");
}

#[tokio::test]
async fn a_column_has_either_a_point_or_an_odd_encoding() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let plain = int(1, i64::MAX);
    let odd = (plain.0.clone(), 1_i64.to_be_bytes().to_vec());
    for _ in 0..2 {
        for cell in [&plain, &odd] {
            fixture.put(&key, &cell.0, &cell.1).await;
            assert_eq!(fixture.cells(&key).await, std::slice::from_ref(cell));
        }
    }
    // Within one batch.
    for cells in [[&plain, &odd], [&odd, &plain]] {
        let (mut batch, t) = fixture.batch();
        batch.row(&key);
        for (qualifier, value) in cells {
            batch.put(t, qualifier, value);
        }
        fixture.view.write(batch).await.unwrap();
        assert_eq!(fixture.cells(&key).await, [cells[1].clone()]);
    }
}

#[tokio::test]
async fn deletes_of_other_columns_leave_points() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let point = int(1, 5);
    fixture.put(&key, &point.0, &point.1).await;
    fixture.put(&key, ANNOTATION, b"{}").await;
    let (mut batch, t) = fixture.batch();
    batch.row(&key).delete_column_up_to(t, ANNOTATION, 1);
    fixture.view.write(batch).await.unwrap();
    assert_eq!(fixture.cells(&key).await.len(), 2, "the annotation is newer");
    let (mut batch, t) = fixture.batch();
    batch.row(&key).delete_column(t, ANNOTATION);
    batch.row(&fixture.key(9, 9, 0)).delete_column(t, ANNOTATION);
    fixture.view.write(batch).await.unwrap();
    assert_eq!(fixture.cells(&key).await, [point]);
    assert_eq!(
        fixture.points.metrics().len(),
        1,
        "deletes give no series numbers"
    );
}

#[tokio::test]
async fn concurrent_puts_are_submitted_together_and_odd_encodings_wait_for_them() {
    let fixture = Fixture::new().await;
    let key = fixture.key(1, 1, 0);
    let large = |second| int(second, i64::MAX);
    let put = |second| {
        let (mut batch, t) = fixture.batch();
        let (qualifier, value) = large(second);
        batch.row(&key).put(t, &qualifier, &value);
        fixture.view.write(batch)
    };
    // A small integer in 8 bytes has the column of the point that it replaces.
    let (mut odd, t) = fixture.batch();
    odd.row(&key)
        .put(t, &large(1).0, &1_i64.to_be_bytes())
        .put(t, &large(2).0, &2_i64.to_be_bytes());
    let acknowledge = Arc::clone(&fixture.points.acknowledge);
    let held = acknowledge.write().await;
    let submitted = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    let observe = async {
        while submitted(&fixture.points.appends) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(submitted(&fixture.points.deletes), 0);
        // The next put waits for the odd encodings, and so for the deletes of the points that they replace.
        assert_eq!(submitted(&fixture.points.appends), 2);
        drop(held);
    };
    let writes = async { futures::join!(put(1), put(2), fixture.view.write(odd), put(3)) };
    let all = async { futures::join!(writes, observe).0 };
    let (one, two, odd, three) = tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
    assert!([one, two, odd, three].iter().all(Result::is_ok));
    let odd = |second, value: i64| (large(second).0, value.to_be_bytes().to_vec());
    assert_eq!(fixture.cells(&key).await, [odd(1, 1), odd(2, 2), large(3)]);
    assert_eq!(submitted(&fixture.points.deletes), 2);
}

#[tokio::test]
async fn rejects_writes_that_points_do_not_have() {
    let fixture = Fixture::new().await;
    let (view, table) = (&fixture.view, &fixture.table);
    let key = fixture.key(1, 1, 0);
    let (qualifier, value) = int(1, 5);
    fixture.put(&key, &qualifier, &value).await;
    let address = |qualifier: &[u8]| CellAddress::new(&key[..], "t", qualifier);
    let absent = |qualifier: &[u8]| Condition {
        cell: address(qualifier),
        expected: None,
    };
    let write = async |change: &dyn Fn(&mut WriteBatch)| {
        let (mut batch, _) = fixture.batch();
        batch.row(&key);
        change(&mut batch);
        view.write(batch).await.err()
    };
    let (mut annotation, t) = fixture.batch();
    annotation.row(&key).put(t, ANNOTATION, b"{}");
    let (mut elsewhere, _) = fixture.batch();
    elsewhere.row(b"row of no series").put(t, ANNOTATION, b"{}");
    let atomic = view.atomic().unwrap();
    let rejected = [
        ("deletes of rows", write(&|batch| _ = batch.delete_row()).await),
        (
            "deletes of families",
            write(&|batch| _ = batch.delete_family(t)).await,
        ),
        (
            "deletes of points",
            write(&|batch| _ = batch.delete_column(t, &qualifier)).await,
        ),
        (
            "deletes of points",
            write(&|batch| _ = batch.delete_column(t, &qualifier.repeat(2))).await,
        ),
        (
            "conditional puts of points",
            view.check_and_put(table, &absent(&qualifier), b"v").await.err(),
        ),
        (
            "increments",
            view.increment(table, &address(ANNOTATION), 1).await.err(),
        ),
        (
            "appends",
            view.append(table, &address(&[5, 0, 0]), b"v").await.err(),
        ),
        ("atomic commits", atomic.commit_if(&[], annotation).await.err()),
        (
            "atomic commits",
            atomic
                .commit_if(&[absent(ANNOTATION)], elsewhere.clone())
                .await
                .err(),
        ),
    ];
    for (write, error) in rejected {
        let error = error.expect(write);
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
        let expected = format!("table `tsdb` is a view of points and rejects {write}, of row `000001");
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(error.retry(), Retry::Never);
    }
    assert_eq!(
        fixture.cells(&key).await,
        [(qualifier, value)],
        "nothing was written"
    );
    // Annotations of the same row, and rows of no series.
    let put = async || {
        view.check_and_put(table, &absent(ANNOTATION), b"{}")
            .await
            .unwrap()
    };
    assert!(put().await && !put().await);
    assert!(atomic.commit_if(&[], elsewhere).await.unwrap());
    let (mut batch, _) = fixture.batch();
    batch.row(b"row of no series").delete_row();
    view.write(batch).await.unwrap();
    assert_eq!(fixture.scan(Scan::prefix(b"")).await.len(), 1);
}

#[tokio::test]
async fn unknown_tables_and_families_are_errors_of_batches_of_points() {
    let fixture = Fixture::new().await;
    let (qualifier, value) = int(1, 5);
    let mut batch = WriteBatch::new(fixture.table.clone());
    let other = batch.family("other");
    batch.row(&fixture.key(1, 1, 0)).put(other, &qualifier, &value);
    let error = fixture.view.write(batch).await.unwrap_err();
    assert!(matches!(error, StoreError::NoSuchFamily { .. }), "{error}");
    // The same rows of another table are cells.
    let table = "copy".parse().unwrap();
    let def = TableDef::new(table, &["t"]);
    fixture.view.create_table(&def).await.unwrap();
    let mut batch = WriteBatch::new(def.name.clone());
    let t = batch.family("t");
    batch.row(&fixture.key(1, 1, 0)).put(t, &qualifier, &value);
    fixture.view.write(batch).await.unwrap();
    assert!(fixture.points.metrics().is_empty());
}

#[tokio::test]
async fn closes_both_stores() {
    let fixture = Fixture::new().await;
    fixture.view.check_health().await.unwrap();
    fixture.view.close().await.unwrap();
    for error in [
        fixture.points.check_health().await.is_err(),
        fixture.rows.check_health().await.is_err(),
        fixture.view.check_health().await.is_err(),
    ] {
        assert!(error);
    }
}

#[tokio::test]
async fn series_of_other_cells_have_numbers() {
    let fixture = Fixture::new().await;
    let key = |tagv| fixture.key(1, tagv, 0);
    let cell = |tagv| CellAddress::new(key(tagv), "t", ANNOTATION);
    let (view, table) = (&fixture.view, &fixture.table);
    fixture.put(&key(1), ANNOTATION, b"{}").await;
    let condition = Condition {
        cell: cell(2),
        expected: None,
    };
    view.check_and_put(table, &condition, b"{}").await.unwrap();
    // A delete is of nothing, and the row of a global annotation is of no series.
    let (mut batch, t) = fixture.batch();
    batch.row(&key(5)).delete_column(t, ANNOTATION);
    batch.row(&key(6)[..7]).put(t, ANNOTATION, b"{}");
    view.write(batch).await.unwrap();
    let listed = fixture.points.metric_series(&[0, 0, 1]);
    let tagv = |series: crate::SeriesNumber| {
        let mut key = Vec::new();
        assert!(fixture.points.key(series, &mut key));
        key.last().copied().unwrap()
    };
    assert_eq!(listed.into_iter().map(tagv).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        fixture.points.appends.load(Ordering::Relaxed),
        2,
        "they are durable"
    );
}

#[tokio::test]
async fn other_cells_wait_for_numbers_that_are_not_durable_yet() {
    for tagv in 0..2 {
        let fixture = Fixture::new().await;
        let key = fixture.key(1, tagv, 0);
        // A request with points has got the number, and has not appended them.
        fixture
            .points
            .numbers(&[super::fixture::tsuid(1, tagv).as_bytes()])
            .unwrap();
        fixture.points.is_volatile.store(true, Ordering::Relaxed);
        let condition = Condition {
            cell: CellAddress::new(key.clone(), "t", ANNOTATION),
            expected: None,
        };
        match tagv {
            0 => {
                let put = fixture.view.check_and_put(&fixture.table, &condition, b"{}");
                assert!(put.await.unwrap());
            }
            _ => fixture.put(&key, ANNOTATION, b"{}").await,
        }
        assert_eq!(fixture.points.appends.load(Ordering::Relaxed), 1, "{tagv}");
        fixture.put(&key, &[1, 0, 1], b"{}").await;
        assert_eq!(
            fixture.points.appends.load(Ordering::Relaxed),
            1,
            "durable: {tagv}"
        );
    }
}
