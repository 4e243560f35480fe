//! Increments, checks, appends and atomic commits.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::subject::{Subject, Table};
use crate::{Condition, Scan, WriteBatch};

fn condition(table: &Table<'_>, row: &[u8], expected: Option<&[u8]>) -> Condition {
    Condition {
        cell: table.cell(row, b"q"),
        expected: expected.map(<[u8]>::to_vec),
    }
}

pub(super) async fn increment_starts_from_zero(subject: &Subject<'_>) {
    let table = subject.table().await;
    let cell = table.cell(b"row", b"q");
    assert_eq!(
        table.store.increment(&table.name, &cell, 0).await.unwrap(),
        0,
        "absent counts as 0"
    );
    assert_eq!(table.store.increment(&table.name, &cell, 5).await.unwrap(), 5);
    assert_eq!(table.store.increment(&table.name, &cell, -7).await.unwrap(), -2);
    assert_eq!(table.value(b"row", b"q").await.unwrap(), (-2_i64).to_be_bytes());
    assert_eq!(
        table.store.increment(&table.name, &cell, 0).await.unwrap(),
        -2,
        "adding 0 reads"
    );
    table.put(b"row", b"q", &41_i64.to_be_bytes()).await;
    assert_eq!(
        table.store.increment(&table.name, &cell, 1).await.unwrap(),
        42,
        "a counter may be put"
    );
}

pub(super) async fn increment_wraps(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put(b"row", b"q", &i64::MAX.to_be_bytes()).await;
    let sum = table
        .store
        .increment(&table.name, &table.cell(b"row", b"q"), 1)
        .await
        .unwrap();
    assert_eq!(sum, i64::MIN);
}

pub(super) async fn concurrent_increments_return_distinct_sums(subject: &Subject<'_>) {
    let table = subject.table().await;
    let cell = table.cell(b"row", b"q");
    let sums = join_all((0..50).map(|_| table.store.increment(&table.name, &cell, 1))).await;
    let sums: BTreeSet<i64> = sums.into_iter().map(Result::unwrap).collect();
    assert_eq!(sums, (1..=50).collect());
}

pub(super) async fn check_for_absence_has_one_winner(subject: &Subject<'_>) {
    let table = subject.table().await;
    for round in 0..10_u8 {
        let absent = condition(&table, &[b'r', round], None);
        let attempts = (0..10_u8).map(|racer| {
            let (table, absent) = (&table, &absent);
            async move {
                (
                    racer,
                    table
                        .store
                        .check_and_put(&table.name, absent, &[racer, 1])
                        .await
                        .unwrap(),
                )
            }
        });
        let winners: Vec<u8> = join_all(attempts)
            .await
            .into_iter()
            .filter(|(_, won)| *won)
            .map(|(r, _)| r)
            .collect();
        assert_eq!(winners.len(), 1, "one of ten wins");
        assert_eq!(table.value(&[b'r', round], b"q").await.unwrap(), [winners[0], 1]);
    }
}

pub(super) async fn check_and_put_compares_the_newest_version(subject: &Subject<'_>) {
    let table = subject.table().await;
    let check = async |expected: Option<&[u8]>, value: &[u8]| {
        table
            .store
            .check_and_put(&table.name, &condition(&table, b"row", expected), value)
            .await
            .unwrap()
    };
    assert!(!check(Some(b"one"), b"two").await, "an absent cell has no value");
    assert!(check(None, b"one").await);
    assert!(!check(None, b"two").await);
    assert!(!check(Some(b"on"), b"two").await);
    assert!(!check(Some(b"one\0"), b"two").await);
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"one");
    assert!(check(Some(b"one"), b"two").await);
    assert!(!check(Some(b"one"), b"three").await);
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"two");
    let (mut batch, ..) = table.batch();
    batch.row(b"row").delete_row();
    table.write(batch).await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    assert!(check(None, b"four").await, "a deleted cell is absent");
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"four");
}

pub(super) async fn empty_value_counts_as_absent(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put(b"row", b"q", b"").await;
    let absent = condition(&table, b"row", None);
    assert!(
        table
            .store
            .check_and_put(&table.name, &absent, b"x")
            .await
            .unwrap()
    );
    let empty = condition(&table, b"other", Some(b""));
    assert!(
        table
            .store
            .check_and_put(&table.name, &empty, b"y")
            .await
            .unwrap()
    );
    assert!(
        !table
            .store
            .check_and_put(&table.name, &empty, b"z")
            .await
            .unwrap()
    );
}

pub(super) async fn append_extends_the_value(subject: &Subject<'_>) {
    let table = subject.table().await;
    let cell = table.cell(b"row", b"q");
    assert_eq!(
        table.store.append(&table.name, &cell, b"ab").await.unwrap(),
        b"ab"
    );
    assert_eq!(
        table.store.append(&table.name, &cell, &[0, 0xff]).await.unwrap(),
        b"ab\x00\xff"
    );
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"ab\x00\xff");
    assert_eq!(table.row(b"row").await.unwrap().len(), 1);
}

pub(super) async fn concurrent_appends_are_all_applied(subject: &Subject<'_>) {
    let table = subject.table().await;
    let cell = table.cell(b"row", b"q");
    let values: Vec<[u8; 1]> = (0..50_u8).map(|n| [n]).collect();
    join_all(
        values
            .iter()
            .map(|value| table.store.append(&table.name, &cell, value)),
    )
    .await
    .into_iter()
    .for_each(|appended| assert!(!appended.unwrap().is_empty()));
    let mut value = table.value(b"row", b"q").await.unwrap();
    value.sort_unstable();
    assert_eq!(value, (0..50_u8).collect::<Vec<_>>());
}

fn pair(table: &Table<'_>, number: u8) -> WriteBatch {
    let (mut batch, a, b) = table.batch();
    batch.row(&[b'x', number]).put(a, b"q", &[number]);
    batch.row(&[b'y', number]).put(b, b"q", &[number]);
    batch
}

pub(super) async fn commit_is_atomic(subject: &Subject<'_>) {
    let table = subject.table().await;
    let Some(atomic) = table.store.atomic() else {
        return;
    };
    let absent = [condition(&table, b"lock", None)];
    let attempts = (0..10_u8).map(|number| {
        let mut batch = pair(&table, number);
        let a = batch.family("a");
        batch.row(b"lock").put(a, b"q", &[number, 1]);
        atomic.commit_if(&absent, batch)
    });
    let outcomes: Vec<bool> = join_all(attempts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(outcomes.iter().filter(|won| **won).count(), 1, "one of ten wins");
    assert_eq!(
        table.scan(Scan::prefix(b"")).await.len(),
        3,
        "the others left nothing"
    );
    let winner = outcomes.iter().position(|won| *won).unwrap();
    assert_eq!(table.value(b"lock", b"q").await.unwrap()[0] as usize, winner);
}

pub(super) async fn commit_requires_all_conditions(subject: &Subject<'_>) {
    let table = subject.table().await;
    let Some(atomic) = table.store.atomic() else {
        return;
    };
    table.put(b"one", b"q", b"1").await;
    let one = |expected| condition(&table, b"one", expected);
    let two = condition(&table, b"two", None);
    assert!(
        !atomic
            .commit_if(&[two.clone(), one(None)], pair(&table, 1))
            .await
            .unwrap()
    );
    assert!(
        !atomic
            .commit_if(&[one(Some(b"2")), two.clone()], pair(&table, 1))
            .await
            .unwrap()
    );
    assert_eq!(table.keys(Scan::prefix(b"")).await, [b"one"]);
    assert!(
        atomic
            .commit_if(&[one(Some(b"1")), two], pair(&table, 1))
            .await
            .unwrap()
    );
    assert!(atomic.commit_if(&[], pair(&table, 2)).await.unwrap());
    assert_eq!(table.scan(Scan::prefix(b"")).await.len(), 5);
}
