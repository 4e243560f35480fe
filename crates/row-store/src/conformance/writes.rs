//! Puts and deletes.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};

use super::subject::{Subject, contents};
use crate::{FamilyDef, Scan};

/// Bytes that a store would mangle if it treated keys as text.
const AWKWARD: [&[u8]; 7] = [
    &[0],
    &[0, 0],
    &[0xff],
    &[0xff, 0xff],
    b":",
    &[0x0a, b':', 0x3a],
    &[0x80, 0x00, 0xfe],
];

pub(super) async fn put_is_readable(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put(b"row", b"q", b"value").await;
    let row = table.row(b"row").await.expect("the row is there");
    assert_eq!(row.key(), b"row");
    assert_eq!(
        contents(&row),
        [("a".to_owned(), b"q".to_vec(), b"value".to_vec())]
    );
    let now_ms = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    let age_ms = i64::try_from(now_ms).unwrap() - row.cells().next().unwrap().timestamp_ms;
    assert!(
        (-60_000..60_000).contains(&age_ms),
        "the store dates the cell: {age_ms} ms ago"
    );
    assert_eq!(table.row(b"ro").await, None);
    assert_eq!(table.row(b"row\0").await, None);
}

pub(super) async fn keys_qualifiers_and_values_are_binary(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, _) = table.batch();
    for key in AWKWARD {
        batch.row(key).put(a, b"", b"no qualifier");
        for qualifier in AWKWARD {
            batch.put(a, qualifier, &[qualifier, &[0], key].concat());
        }
    }
    table.write(batch).await;
    for key in AWKWARD {
        let row = table.row(key).await.expect("the row is there");
        assert_eq!(row.len(), AWKWARD.len() + 1, "{key:?}");
        for qualifier in AWKWARD {
            let cell = row.get("a", qualifier).expect("the cell is there");
            assert_eq!(cell.value, [qualifier, &[0], key].concat());
        }
    }
    assert_eq!(table.scan(Scan::prefix(b"")).await.len(), AWKWARD.len());
}

pub(super) async fn later_put_with_equal_timestamp_wins(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put_at(b"row", b"q", 1_000_000, b"first").await;
    table.put_at(b"row", b"q", 1_000_000, b"second").await;
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"second");
    let mut scan = Scan::prefix(b"row");
    scan.max_versions = 10;
    assert_eq!(table.scan(scan).await[0].len(), 1, "they are one cell");
}

pub(super) async fn get_returns_the_newest_version(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put_at(b"row", b"q", 2_000_000, b"new").await;
    table.put_at(b"row", b"q", 1_000_000, b"old").await;
    let row = table.row(b"row").await.unwrap();
    let cell = row.get("a", b"q").unwrap();
    assert_eq!((cell.timestamp_ms, cell.value), (2_000_000, b"new".as_slice()));
    table.put(b"row", b"q", b"now").await;
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"now");
}

pub(super) async fn family_keeps_its_max_versions(subject: &Subject<'_>) {
    let family = |name: &str, max_versions| FamilyDef {
        name: name.to_owned(),
        max_versions,
        ttl: None,
    };
    let table = subject.table_with(vec![family("a", 3), family("b", 1)]).await;
    for timestamp_ms in [3_000, 1_000, 5_000, 4_000, 2_000] {
        let (mut batch, a, b) = table.batch();
        let value = format!("{timestamp_ms}");
        batch.row(b"row").put_at(a, b"q", timestamp_ms, value.as_bytes());
        batch.put_at(b, b"q", timestamp_ms, value.as_bytes());
        table.write(batch).await;
    }
    let mut scan = Scan::prefix(b"");
    scan.max_versions = 100;
    let rows = table.scan(scan).await;
    let cells: Vec<(&str, i64)> = rows[0]
        .cells()
        .map(|cell| (cell.family, cell.timestamp_ms))
        .collect();
    assert_eq!(cells, [("a", 5_000), ("a", 4_000), ("a", 3_000), ("b", 5_000)]);
}

pub(super) async fn cells_expire(subject: &Subject<'_>) {
    let ttl = Some(Duration::from_secs(1));
    let families = vec![
        FamilyDef {
            name: "a".to_owned(),
            max_versions: 1,
            ttl,
        },
        FamilyDef::new("b"),
    ];
    let table = subject.table_with(families).await;
    let (mut batch, a, b) = table.batch();
    batch.row(b"row").put(a, b"q", b"short").put(b, b"q", b"long");
    batch.row(b"gone").put_at(a, b"q", 1_000, b"expired long ago");
    table.write(batch).await;
    assert_eq!(
        table.row(b"gone").await,
        None,
        "a cell that was old when it was put is not seen"
    );
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let row = table.row(b"row").await.expect("family b stays");
        assert!(row.get("b", b"q").is_some());
        if row.get("a", b"q").is_none() {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the cell does not expire");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    table.put(b"row", b"q", b"again").await;
    assert_eq!(table.value(b"row", b"q").await.unwrap(), b"again");
}

pub(super) async fn batch_writes_many_rows(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, b) = table.batch();
    for number in 0..1_000_u32 {
        batch
            .row(&number.to_be_bytes())
            .put(a, b"n", &number.to_be_bytes())
            .put(b, b"m", b"x");
    }
    table.write(batch).await;
    let rows = table.scan(Scan::prefix(b"")).await;
    assert_eq!(rows.len(), 1_000);
    for (number, row) in (0..1_000_u32).zip(&rows) {
        assert_eq!(row.key(), number.to_be_bytes());
        assert_eq!(row.get("a", b"n").unwrap().value, number.to_be_bytes());
        assert_eq!(row.len(), 2);
    }
}

pub(super) async fn repeated_batch_has_no_further_effect(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, _) = table.batch();
    batch.row(b"row").put_at(a, b"q", 1_000, b"v");
    batch.row(b"row").put_at(a, b"r", 1_000, b"w");
    table.write(batch.clone()).await;
    table.write(batch).await;
    assert_eq!(
        table.row(b"row").await.unwrap().len(),
        2,
        "a row begun twice is one row"
    );
}

pub(super) async fn empty_batch_has_no_effect(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (batch, _, _) = table.batch();
    table.write(batch).await;
    assert!(table.scan(Scan::prefix(b"")).await.is_empty());
}

pub(super) async fn stores_large_values(subject: &Subject<'_>) {
    let table = subject.table().await;
    let big: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.to_be_bytes()[n as usize % 4])
        .collect();
    table.put(b"row", b"big", &big).await;
    table.put(b"row", b"empty", b"").await;
    assert_eq!(table.value(b"row", b"big").await.unwrap(), big);
    assert_eq!(table.value(b"row", b"empty").await.unwrap(), b"");
}

/// OpenTSDB's compaction produces qualifiers of 144,000 bytes for ten points a second.
pub(super) async fn stores_long_qualifiers(subject: &Subject<'_>) {
    let table = subject.table().await;
    let lengths = [65_535, 65_536, 144_000, 1 << 20];
    let qualifiers = lengths.map(|length| vec![7; length]);
    let (mut batch, a, _) = table.batch();
    batch.row(b"row");
    for qualifier in &qualifiers {
        batch.put(a, qualifier, &qualifier.len().to_be_bytes());
    }
    table.write(batch).await;
    for row in [
        table.row(b"row").await.unwrap(),
        table.scan(Scan::prefix(b"")).await.remove(0),
    ] {
        let cells: Vec<_> = row
            .cells()
            .map(|cell| (cell.qualifier, cell.value.to_vec()))
            .collect();
        let expected = qualifiers
            .iter()
            .map(|qualifier| (&qualifier[..], qualifier.len().to_be_bytes().to_vec()));
        assert!(cells.into_iter().eq(expected));
    }
    let [.., longest] = &qualifiers;
    assert_eq!(
        table.value(b"row", longest).await.unwrap(),
        lengths[3].to_be_bytes()
    );
    let (mut batch, a, _) = table.batch();
    batch.row(b"row").delete_column(a, longest);
    table.write(batch).await;
    assert_eq!(table.row(b"row").await.unwrap().len(), 3);
}

pub(super) async fn row_holds_many_cells(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, _) = table.batch();
    batch.row(b"row");
    for number in (0..3_600_u32).rev() {
        batch.put(a, &number.to_be_bytes(), &(number * 7).to_be_bytes());
    }
    table.write(batch).await;
    let row = table.row(b"row").await.unwrap();
    let read: Vec<Vec<u8>> = row.cells().map(|cell| cell.value.to_vec()).collect();
    let put: Vec<Vec<u8>> = (0..3_600_u32)
        .map(|number| (number * 7).to_be_bytes().to_vec())
        .collect();
    assert_eq!(read, put);
}

pub(super) async fn deletes_a_column(subject: &Subject<'_>) {
    let table = subject.table().await;
    table.put_at(b"row", b"q", 1_000, b"old").await;
    table.put(b"row", b"q", b"new").await;
    table.put(b"row", b"kept", b"v").await;
    let (mut batch, a, _) = table.batch();
    batch
        .row(b"row")
        .delete_column(a, b"q")
        .delete_column(a, b"never there");
    batch.row(b"no such row").delete_column(a, b"q");
    table.write(batch).await;
    let row = table.row(b"row").await.unwrap();
    assert_eq!(
        contents(&row),
        [("a".to_owned(), b"kept".to_vec(), b"v".to_vec())],
        "all versions are deleted"
    );
    assert_eq!(table.keys(Scan::prefix(b"")).await, [b"row"]);
}

pub(super) async fn deletes_a_column_up_to_a_timestamp(subject: &Subject<'_>) {
    let table = subject.table().await;
    for (qualifier, timestamp_ms) in [(b"old", 1_000), (b"new", 2_000), (b"all", 1_000)] {
        table.put_at(b"row", qualifier, timestamp_ms, b"v").await;
    }
    let (mut batch, a, _) = table.batch();
    batch
        .row(b"row")
        .delete_column_up_to(a, b"old", 1_000)
        .delete_column_up_to(a, b"new", 1_999)
        .delete_column(a, b"all");
    table.write(batch).await;
    let left = table.row(b"row").await.unwrap();
    assert_eq!(
        contents(&left),
        [("a".to_owned(), b"new".to_vec(), b"v".to_vec())],
        "what is newer than its timestamp stays"
    );
}

pub(super) async fn deletes_a_family(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, b) = table.batch();
    batch
        .row(b"row")
        .put(a, b"q", b"1")
        .put(a, b"r", b"2")
        .put(b, b"q", b"3");
    table.write(batch).await;
    let (mut batch, a, _) = table.batch();
    batch.row(b"row").delete_family(a);
    table.write(batch).await;
    let row = table.row(b"row").await.unwrap();
    assert_eq!(contents(&row), [("b".to_owned(), b"q".to_vec(), b"3".to_vec())]);
}

pub(super) async fn deletes_a_row(subject: &Subject<'_>) {
    let table = subject.table().await;
    let (mut batch, a, b) = table.batch();
    batch.row(b"row").put(a, b"q", b"1").put(b, b"q", b"3");
    batch.row(b"row2").put(a, b"q", b"1");
    table.write(batch).await;
    let (mut batch, ..) = table.batch();
    batch.row(b"row").delete_row();
    table.write(batch).await;
    assert_eq!(table.row(b"row").await, None);
    assert_eq!(table.keys(Scan::prefix(b"")).await, [b"row2"]);
}

pub(super) async fn put_after_a_delete_is_visible(subject: &Subject<'_>) {
    let table = subject.table().await;
    for round in 0..20_u8 {
        table.put(b"row", b"q", &[round, 1]).await;
        let (mut batch, a, _) = table.batch();
        match round % 3 {
            0 => batch.row(b"row").delete_row(),
            1 => batch.row(b"row").delete_family(a),
            _ => batch.row(b"row").delete_column(a, b"q"),
        };
        table.write(batch).await;
        assert_eq!(table.row(b"row").await, None, "round {round}");
        // HBase dates both in milliseconds, and a delete wins its own.
        tokio::time::sleep(Duration::from_millis(2)).await;
        table.put(b"row", b"q", &[round, 2]).await;
        assert_eq!(table.value(b"row", b"q").await.unwrap(), [round, 2]);
    }
}

pub(super) async fn row_writes_are_atomic(subject: &Subject<'_>) {
    let table = subject.table().await;
    let write = async {
        for round in 0..200_u8 {
            let (mut batch, a, b) = table.batch();
            batch
                .row(b"row")
                .put(a, b"q", &[round])
                .put(a, b"r", &[round])
                .put(b, b"q", &[round]);
            table.write(batch).await;
        }
    };
    let read = async {
        loop {
            if let Some(row) = table.row(b"row").await {
                let values: Vec<u8> = row.cells().map(|cell| cell.value[0]).collect();
                assert_eq!(values, [values[0]; 3], "three cells that were written together");
                if values[0] == 199 {
                    break;
                }
            }
        }
    };
    futures::future::join(write, read).await;
}

pub(super) async fn concurrent_writes_keep_their_order(subject: &Subject<'_>) {
    let table = subject.table().await;
    for round in 0..20_u8 {
        // Of different sizes, so that a write waiting for capacity could be overtaken.
        let writes = (0..50_u8).map(|number| {
            let value = vec![number; if number % 7 == 0 { 200_000 } else { 1 }];
            let table = &table;
            async move { table.put(&[round], b"q", &value).await }
        });
        let mut under_way: FuturesUnordered<_> = writes.collect();
        while under_way.next().await.is_some() {}
        assert_eq!(table.value(&[round], b"q").await.unwrap()[0], 49, "round {round}");
    }
}
