//! Counters of table `tsdb-meta`.

use std::sync::Arc;

use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, Row, RowFilter, RowStore, Scan, TableDef, TableName, WriteBatch,
};
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};

use super::fixture::{scan_of, tsuid};
use crate::PointStore;
use crate::memory::MemoryPoints;
use crate::view::TableView;

struct Meta {
    rows: MemoryStore,
    points: Arc<MemoryPoints>,
    table: TableName,
}

impl Meta {
    /// Series of two metrics have numbers in no order of keys.
    async fn new() -> Self {
        let meta = Self {
            rows: MemoryStore::new(),
            points: Arc::new(MemoryPoints::new(RowKeyLayout::default().widths)),
            table: "tsdb-meta".parse().unwrap(),
        };
        let def = TableDef::new(meta.table.clone(), &[META_FAMILY]);
        meta.rows.create_table(&def).await.unwrap();
        let keys: Vec<_> = [(2, 1), (1, 9), (1, 3), (2, 0), (1, 5)]
            .map(|(metric, tagv)| tsuid(metric, tagv))
            .into();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        meta.points.numbers(&keys).unwrap();
        meta
    }

    async fn open(&self) -> TableView {
        let points: Arc<dyn PointStore> = Arc::<MemoryPoints>::clone(&self.points);
        let table = TableView::new(
            Arc::new(self.rows.clone()),
            points,
            RowKeyLayout::default(),
            "tsdb".parse().unwrap(),
        );
        table.with_counters(self.table.clone()).await.unwrap()
    }

    async fn count(&self, view: &TableView, series: &[(u8, u16)]) {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(META_FAMILY);
        for (metric, tagv) in series {
            batch
                .row(tsuid(*metric, *tagv).as_ref())
                .put(family, COUNTER_QUALIFIER, &1_i64.to_be_bytes());
        }
        view.write(batch).await.unwrap();
    }

    async fn put(&self, view: &TableView, series: (u8, u16), qualifier: &[u8], value: &[u8]) {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(META_FAMILY);
        batch
            .row(tsuid(series.0, series.1).as_ref())
            .put_at(family, qualifier, 7, value);
        view.write(batch).await.unwrap();
    }

    async fn stored_cells(&self) -> usize {
        let rows = scan_of(&self.rows, &self.table, Scan::range([], []))
            .await
            .unwrap();
        rows.iter().map(Row::len).sum()
    }

    async fn scan(&self, view: &TableView, scan: Scan) -> Vec<(Vec<u8>, usize)> {
        let rows = scan_of(view, &self.table, scan).await.unwrap();
        rows.iter().map(|row| (row.key().to_vec(), row.len())).collect()
    }
}

fn row(metric: u8, tagv: u16, cells: usize) -> (Vec<u8>, usize) {
    (tsuid(metric, tagv).as_bytes().to_vec(), cells)
}

#[tokio::test]
async fn counters_are_rows_and_not_stored_as_cells() {
    let meta = Meta::new().await;
    let view = meta.open().await;
    meta.count(&view, &[(2, 1), (1, 9), (1, 3)]).await;
    meta.count(&view, &[(1, 3), (1, 5)]).await;
    assert_eq!(meta.stored_cells().await, 0);
    meta.put(&view, (1, 5), b"ts_meta", b"{}").await;
    // Without a counter.
    meta.put(&view, (2, 0), b"ts_meta", b"{}").await;
    meta.put(&view, (2, 9), COUNTER_QUALIFIER, &9_i64.to_be_bytes())
        .await;

    // As it is, and after a restart.
    for view in [view, meta.open().await] {
        let all = [
            row(1, 3, 1),
            row(1, 5, 2),
            row(1, 9, 1),
            row(2, 0, 1),
            row(2, 1, 1),
            row(2, 9, 1),
        ];
        for batch_rows in [1, 2, 128] {
            let mut scan = Scan::range([], []);
            scan.batch_rows = batch_rows;
            assert_eq!(meta.scan(&view, scan.clone()).await, all);
            scan.limit = Some(3);
            assert_eq!(meta.scan(&view, scan.clone()).await, all[..3]);
            scan.reverse = true;
            let reversed: Vec<_> = all.iter().rev().take(3).cloned().collect();
            assert_eq!(meta.scan(&view, scan).await, reversed);
        }
        let after = Scan::range([], tsuid(2, 1).as_bytes()).resume_after(tsuid(1, 5).as_ref());
        assert_eq!(meta.scan(&view, after).await, all[2..4]);
        let mut filtered = Scan::prefix(&[0, 0, 1]);
        filtered.filter = Some(RowFilter::new(|key| !key.ends_with(&[5])));
        assert_eq!(meta.scan(&view, filtered).await, [row(1, 3, 1), row(1, 9, 1)]);
        let mut documents = Scan::range([], []);
        documents.columns = ColumnSelection::Columns(vec![(META_FAMILY.to_owned(), b"ts_meta".to_vec())]);
        assert_eq!(meta.scan(&view, documents).await, [row(1, 5, 1), row(2, 0, 1)]);

        let keys: Vec<_> = all.iter().map(|(key, _)| key.clone()).chain([vec![9]]).collect();
        let rows = view
            .get_rows(&meta.table, &keys, &ColumnSelection::All, None)
            .await
            .unwrap();
        let counters: Vec<_> = rows
            .iter()
            .map(|row| {
                let cell = row.as_ref()?.get(META_FAMILY, COUNTER_QUALIFIER)?;
                Some((cell.value.to_vec(), cell.timestamp_ms > 1_000_000_000_000))
            })
            .collect();
        let one = || Some((1_i64.to_be_bytes().to_vec(), true));
        let nine = Some((9_i64.to_be_bytes().to_vec(), false));
        assert_eq!(counters, [one(), one(), one(), None, one(), nine, None]);
    }
}

#[tokio::test]
async fn blocks_replace_batches() {
    let meta = Meta::new().await;
    let view = meta.open().await;
    let written: TableName = "tsdb-meta-written".parse().unwrap();
    for _ in 0..4095 {
        meta.count(&view, &[(1, 9)]).await;
    }
    let stored = async || {
        scan_of(&meta.rows, &written, Scan::range([], []))
            .await
            .unwrap()
            .len()
    };
    assert_eq!(stored().await, 4095);
    // The batches of the process before count.
    let view = meta.open().await;
    meta.count(&view, &[(2, 1)]).await;
    assert_eq!(stored().await, 1, "a block");
    meta.count(&view, &[(1, 3)]).await;
    assert_eq!(stored().await, 2);
    let view = meta.open().await;
    let rows = meta.scan(&view, Scan::range([], [])).await;
    assert_eq!(rows, [row(1, 3, 1), row(1, 9, 1), row(2, 1, 1)]);
}

#[tokio::test]
async fn cells_that_cannot_be_decoded_are_skipped() {
    let meta = Meta::new().await;
    meta.count(&meta.open().await, &[(1, 9)]).await;
    let mut batch = WriteBatch::new("tsdb-meta-written".parse().unwrap());
    let family = batch.family("w");
    for (key, value) in [
        (&[0, 0xff, 0xff][..], &[0, 0, 0, 1][..]),
        (&[0, 0, 0], &[0, 0, 1]),
        (&[0, 0], &[]),
        (&[1, 0, 0, 0, 0, 0, 0, 1, 1], &[0xff; 14]),
        (
            &[1, 0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f],
        ),
        (&[1, 0, 0, 0, 0, 0, 0, 1, 3], &[0, 0]),
        (&[7], &[1]),
    ] {
        batch.row(key).put(family, b"s", value);
    }
    meta.rows.write(batch).await.unwrap();
    let rows = meta.scan(&meta.open().await, Scan::range([], [])).await;
    assert_eq!(rows, [row(1, 9, 1)]);
}

#[tokio::test]
async fn mutated_counters_are_cells() {
    let meta = Meta::new().await;
    let view = meta.open().await;
    meta.count(&view, &[(1, 3), (1, 5), (1, 9), (2, 0), (2, 1)]).await;
    let mut batch = WriteBatch::new(meta.table.clone());
    let family = batch.family(META_FAMILY);
    batch.row(tsuid(1, 3).as_ref()).delete_row();
    batch
        .row(tsuid(1, 5).as_ref())
        .delete_column(family, COUNTER_QUALIFIER);
    batch
        .row(tsuid(1, 9).as_ref())
        .delete_column_up_to(family, COUNTER_QUALIFIER, 7);
    view.write(batch).await.unwrap();
    let cell = CellAddress::new(tsuid(2, 0).as_bytes(), META_FAMILY, COUNTER_QUALIFIER);
    assert_eq!(view.increment(&meta.table, &cell, 4).await.unwrap(), 5);
    let cell = CellAddress::new(tsuid(2, 1).as_bytes(), META_FAMILY, COUNTER_QUALIFIER);
    let absent = Condition { cell, expected: None };
    assert!(!view.check_and_put(&meta.table, &absent, b"x").await.unwrap());
    let left = [row(1, 9, 1), row(2, 0, 1), row(2, 1, 1)];
    for view in [view, meta.open().await] {
        assert_eq!(meta.scan(&view, Scan::range([], [])).await, left);
    }
    let view = meta.open().await;
    meta.count(&view, &[(1, 5)]).await;
    assert_eq!(
        meta.scan(&meta.open().await, Scan::prefix(&[0, 0, 1])).await,
        [row(1, 5, 1), row(1, 9, 1)]
    );
}
