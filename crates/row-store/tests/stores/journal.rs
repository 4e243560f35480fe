//! Torn and damaged journals of the cell store: complete groups at the beginning are kept, and all writes are accepted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use futures::TryStreamExt as _;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore, Scan, StoreControl as _, StoreError, TableDef, TableName, WriteBatch};

use crate::support::files::{copy_folder, flip};

const ROWS: u32 = 200;

fn table() -> TableName {
    "t".parse().unwrap()
}

fn batch(numbers: impl Iterator<Item = u32>, qualifier: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let family = batch.family("f");
    for number in numbers {
        batch.row(&number.to_be_bytes()).put(family, qualifier, &[7; 240]);
    }
    batch
}

/// The rows with a qualifier.
async fn rows(store: &CellStore, qualifier: &[u8]) -> BTreeSet<u32> {
    let scan = store.scan(&table(), Scan::prefix(b"")).await.unwrap();
    let rows: Vec<_> = scan.try_collect().await.unwrap();
    let rows = rows
        .iter()
        .flatten()
        .filter(|row| row.get("f", qualifier).is_some());
    rows.map(|row| u32::from_be_bytes(row.key().try_into().unwrap()))
        .collect()
}

/// The journal of a closed store.
fn journal(folder: &Path) -> PathBuf {
    folder.join("journal/0000000001.journal")
}

/// A store with `ROWS` rows, each written on its own and only in the journal. Returns the end of the journal.
async fn journaled() -> (tempfile::TempDir, usize) {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    for number in 0..ROWS {
        store.write(batch(number..number + 1, b"old")).await.unwrap();
    }
    store.close().await.unwrap();
    let bytes = fs::read(journal(folder.path())).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    fs::write(journal(folder.path()), &bytes[..end]).unwrap();
    (folder, end)
}

#[tokio::test]
async fn torn_journal_keeps_all_complete_groups() {
    let (whole, end) = journaled().await;
    for (tail, zeros) in [
        (1, false),
        (1, true),
        (9, true),
        (200, false),
        (5_000, true),
        (20_000, false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), folder.path());
        let mut bytes = fs::read(journal(folder.path())).unwrap();
        bytes.truncate(end - tail);
        if zeros {
            // The length may be durable before the bytes.
            bytes.resize(end + 100_000, 0);
        }
        fs::write(journal(folder.path()), bytes).unwrap();
        let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
        let numbers = rows(&store, b"old").await;
        let last = u32::try_from(numbers.len()).unwrap();
        assert_eq!(numbers, (0..last).collect(), "{tail}");
        let group = u32::try_from(end).unwrap() / ROWS;
        assert!(
            last + u32::try_from(tail).unwrap() / group + 1 >= ROWS,
            "{tail}: {last} rows"
        );
        // Writes after the cut are durable as well.
        store.write(batch(0..ROWS, b"new")).await.unwrap();
        drop(store);
        let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
        assert_eq!(rows(&store, b"new").await, (0..ROWS).collect(), "{tail}");
        assert_eq!(rows(&store, b"old").await, numbers, "{tail}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn damage_before_intact_groups_is_an_error() {
    let (whole, end) = journaled().await;
    let last = end - end / usize::try_from(ROWS).unwrap();
    let mut rejected = 0;
    for offset in (0..last).step_by(end / 37) {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), folder.path());
        flip(&journal(folder.path()), offset);
        match CellStore::open(CellConfig::new(folder.path())) {
            Err(StoreError::Corrupt { place, detail }) => {
                assert!(detail.contains("offset"), "{detail}");
                assert!(place.ends_with("0000000001.journal"), "{place}");
                rejected += 1;
            }
            Err(error) => panic!("offset {offset}: {error}"),
            Ok(_) => panic!("offset {offset}: the damage went unnoticed"),
        }
    }
    assert!(rejected > 30, "{rejected} rejected");
}

#[tokio::test]
async fn a_last_group_with_a_hole_is_cut_off() {
    let (whole, end) = journaled().await;
    let group = end / usize::try_from(ROWS).unwrap();
    for offset in (end - group..end).step_by(group / 29) {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), folder.path());
        let mut bytes = fs::read(journal(folder.path())).unwrap();
        bytes[offset..end.min(offset + 30)].fill(0);
        fs::write(journal(folder.path()), bytes).unwrap();
        let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
        let numbers = rows(&store, b"old").await;
        assert_eq!(numbers, (0..ROWS - 1).collect(), "hole at {offset}");
        store.write(batch(0..ROWS, b"new")).await.unwrap();
        store.close().await.unwrap();
        let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
        assert_eq!(
            rows(&store, b"new").await,
            (0..ROWS).collect(),
            "hole at {offset}"
        );
        assert_eq!(rows(&store, b"old").await, numbers, "hole at {offset}");
    }
}

/// With losses accepted, a store opens with all frames that are intact.
#[tokio::test]
async fn accepted_losses_cost_the_damaged_groups_only() {
    let (whole, end) = journaled().await;
    for damage in ["flipped", "removed", "list removed", "emptied"] {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), folder.path());
        let left = match damage {
            "flipped" => {
                flip(&journal(folder.path()), end / 2);
                ROWS - 1
            }
            "removed" => {
                fs::remove_file(journal(folder.path())).unwrap();
                0
            }
            "list removed" => {
                fs::remove_file(folder.path().join("journal/SEGMENTS")).unwrap();
                ROWS
            }
            _ => {
                fs::write(journal(folder.path()), b"").unwrap();
                0
            }
        };
        let mut config = CellConfig::new(folder.path());
        let error = CellStore::open(config.clone()).unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{damage}: {error}");
        config.accept_losses = true;
        let store = CellStore::open(config.clone()).unwrap();
        let numbers = rows(&store, b"old").await;
        assert_eq!(numbers.len(), left as usize, "{damage}");
        // Once a table has the remaining commits, nothing is missing.
        store.write(batch(0..ROWS, b"new")).await.unwrap();
        store.flush().await.unwrap();
        store.close().await.unwrap();
        config.accept_losses = false;
        let store = CellStore::open(config).unwrap();
        assert_eq!(rows(&store, b"old").await, numbers, "{damage}");
        assert_eq!(rows(&store, b"new").await, (0..ROWS).collect(), "{damage}");
    }
}
