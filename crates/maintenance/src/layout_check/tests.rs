use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{TableDef, WriteBatch};
use oxtsdb_schema::{BaseTime, RowKey, Tsuid, UidWidth};

use super::*;

fn layout(salt_width: usize, buckets: u32) -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(salt_width, buckets).unwrap(),
        widths: UidWidths::default(),
    }
}

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

/// A table with a point in each of some hours of some series of some metrics.
async fn written_with(layout: &RowKeyLayout, metrics: u8, series: u8) -> MemoryStore {
    let store = MemoryStore::new();
    store.create_table(&TableDef::new(table(), &["t"])).await.unwrap();
    let mut batch = WriteBatch::new(table());
    let family = batch.family("t");
    let pad = |width: UidWidth, number: u8| [vec![0; width.bytes() - 1], vec![number]].concat();
    for metric in 1..=metrics {
        for tagv in 1..=series {
            let widths = &layout.widths;
            let tsuid = [
                pad(widths.metric, metric),
                pad(widths.tagk, 1),
                pad(widths.tagv, tagv),
            ]
            .concat();
            let tsuid = Tsuid::from_bytes(&tsuid, widths).unwrap();
            for hour in 0..3 {
                let base = BaseTime::from_seconds(1_356_998_400 + hour * 3600);
                batch
                    .row(RowKey::new(layout, &tsuid, base).as_bytes())
                    .put(family, &[0, 0], &[1]);
            }
        }
    }
    let base = BaseTime::from_seconds(1_356_998_400);
    batch
        .row(RowKey::global_annotations(layout, base).as_bytes())
        .put(family, &[1, 0, 0], b"{}");
    store.write(batch).await.unwrap();
    store
}

async fn rejection(written: &RowKeyLayout, set: &RowKeyLayout) -> String {
    let store = written_with(written, 6, 6).await;
    check(&store, &table(), set).await.unwrap_err().to_string()
}

#[tokio::test]
async fn accepts_the_layout_that_the_table_was_written_with() {
    for layout in [layout(0, 20), layout(1, 20), layout(2, 300), layout(8, 1)] {
        for (metrics, series) in [(0, 0), (1, 1), (20, 20)] {
            let store = written_with(&layout, metrics, series).await;
            check(&store, &table(), &layout).await.unwrap();
        }
    }
}

/// Rows of one metric; another writer has written the first and the last.
#[tokio::test]
async fn a_few_rows_that_do_not_fit_are_leftovers() {
    let layout = layout(0, 20);
    let store = written_with(&layout, 1, 20).await;
    let mut batch = WriteBatch::new(table());
    let family = batch.family("t");
    for key in [&[0, 0, 1, 0, 1][..], &[0, 0, 1, 255, 255, 255, 255, 1]] {
        batch.row(key).put(family, &[0, 0], &[1]);
    }
    store.write(batch).await.unwrap();
    check(&store, &table(), &layout).await.unwrap();
}

#[tokio::test]
async fn rejects_another_salt_width_and_names_the_right_one() {
    for (written, set) in [(0, 1), (1, 0), (1, 2), (2, 1), (0, 6), (6, 0)] {
        let error = rejection(&layout(written, 20), &layout(set, 20)).await;
        assert!(
            error.starts_with(&format!(
                "table `tsdb` was not written with --salt-width {set} and the UID widths 3/3/3: row key `"
            )),
            "{error}"
        );
        assert!(
            error.ends_with(&format!("; --salt-width {written} fits")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn rejects_another_number_of_buckets_and_names_one_that_fits() {
    for (written, set) in [(20, 10), (10, 20), (20, 19), (7, 100)] {
        let error = rejection(&layout(1, written), &layout(1, set)).await;
        assert!(
            error.starts_with(&format!(
                "table `tsdb` was not written with --salt-buckets {set}: row key `"
            )),
            "{error}"
        );
        assert!(
            error.ends_with(&format!("; --salt-buckets {written} fits the sampled rows")),
            "{error}"
        );
    }
}

#[tokio::test]
async fn rejects_other_uid_widths() {
    let mut wide = layout(0, 20);
    wide.widths.tagv = UidWidth::new(4).unwrap();
    let error = rejection(&wide, &layout(0, 20)).await;
    assert!(
        error.ends_with("; no --salt-width fits, so the UID widths are others too"),
        "{error}"
    );
}

#[tokio::test]
async fn accepts_a_few_rows_of_another_layout() {
    let layout = layout(1, 20);
    let store = written_with(&layout, 20, 20).await;
    let mut batch = WriteBatch::new(table());
    let family = batch.family("t");
    // As a writer without salt left it; it comes first in its bucket.
    batch
        .row(&[0, 0, 1, 0x50, 0xe2, 0x27, 0, 0, 0, 1, 0, 0, 1])
        .put(family, &[0, 0], &[1]);
    store.write(batch).await.unwrap();
    check(&store, &table(), &layout).await.unwrap();
}
