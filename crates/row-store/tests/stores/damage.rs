//! Bit flips and truncation in table files of cells: intact rows stay readable, and all writes are accepted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use futures::TryStreamExt as _;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    ColumnSelection, DamageLog, DamagedRange, RowStore, Scan, StoreControl as _, StoreError, TableDef,
    TableName, WriteBatch,
};

use crate::support::files::{copy_folder, flip, noise};

/// Rows of some hundred bytes that do not compress: about 60 lie in one block of the tree.
const ROWS: u32 = 400;
const VALUE: usize = 240;

fn table() -> TableName {
    "t".parse().unwrap()
}

fn key(number: u32) -> [u8; 4] {
    (2 * number).to_be_bytes()
}

/// A value without repetitions.
fn value(number: u32) -> Vec<u8> {
    noise(number).take(VALUE).collect()
}

fn batch(numbers: impl Iterator<Item = u32>, qualifier: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let family = batch.family("f");
    for number in numbers {
        batch.row(&key(number)).put(family, qualifier, &value(number));
    }
    batch
}

fn table_files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder.join("tables"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "cells"))
        .collect();
    files.sort();
    files
}

/// The one table file of a folder.
fn table_file(folder: &Path) -> PathBuf {
    let mut files = table_files(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// A store of `ROWS` rows in one table file.
async fn whole() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    store.write(batch(0..ROWS, b"old")).await.unwrap();
    store.flush().await.unwrap();
    store.close().await.unwrap();
    folder
}

/// The rows with a qualifier that a damage-skipping scan returns, and the damage.
async fn rows(store: &CellStore, qualifier: &[u8], reverse: bool) -> (BTreeSet<u32>, Vec<DamagedRange>) {
    let log = DamageLog::default();
    let mut scan = Scan::range(key(0), []);
    scan.reverse = reverse;
    scan.skip_damaged = Some(log.clone());
    let rows: Vec<_> = store
        .scan(&table(), scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let mut numbers = BTreeSet::new();
    for row in rows.iter().flatten() {
        let number = u32::from_be_bytes(row.key().try_into().unwrap()) / 2;
        if let Some(cell) = row.get("f", qualifier) {
            assert_eq!(cell.value, value(number), "row {number}");
            numbers.insert(number);
        }
    }
    (numbers, log.ranges())
}

fn is_in(damage: &[DamagedRange], number: u32) -> bool {
    damage.iter().any(|range| {
        range.start.as_slice() <= key(number).as_slice()
            && (range.stop.is_empty() || key(number).as_slice() < range.stop.as_slice())
    })
}

/// Checks that gets return surviving rows and fail for lost ones with the damage.
async fn check_gets(store: &CellStore, damage: &[DamagedRange], qualifier: &[u8]) {
    for number in (0..ROWS).step_by(7) {
        let row = store.get(&table(), &key(number), &ColumnSelection::All).await;
        let log = DamageLog::default();
        let keys = [key(number).to_vec()];
        let skipping = store
            .get_rows(&table(), &keys, &ColumnSelection::All, Some(&log))
            .await;
        let left = skipping.unwrap().remove(0);
        assert_eq!(log.is_empty(), !is_in(damage, number));
        if qualifier == b"new" {
            assert!(left.unwrap().get("f", qualifier).is_some(), "row {number}");
        }
        if is_in(damage, number) {
            let error = row.unwrap_err();
            let StoreError::Corrupt { place, .. } = &error else {
                panic!("{error}")
            };
            assert!(
                place.starts_with("table `t` rows from ") && place.contains("set-aside/"),
                "{error}"
            );
        } else {
            let row = row.unwrap().unwrap();
            assert_eq!(
                row.get("f", qualifier).unwrap().value,
                value(number),
                "row {number}"
            );
        }
    }
}

/// Flips a bit of a closed store's table file, then reads, writes, flushes and compacts.
async fn survives(whole: &Path, offset: usize) -> Result<usize, String> {
    let folder = tempfile::tempdir().unwrap();
    copy_folder(whole, folder.path());
    let file = table_file(folder.path());
    flip(&file, offset);

    let store = match CellStore::open(CellConfig::new(folder.path())) {
        Ok(store) => store,
        Err(StoreError::Corrupt { place, .. }) if place.contains(file.to_str().unwrap()) => return Ok(0),
        Err(error) => return Err(error.to_string()),
    };
    // New points for all rows before any read, so that the flush encounters the damage.
    store.write(batch(0..ROWS, b"new")).await.unwrap();
    store.flush().await.map_err(|error| format!("flush: {error}"))?;
    store
        .check_health()
        .await
        .map_err(|error| format!("health: {error}"))?;

    let (old, damage) = rows(&store, b"old", false).await;
    let lost: Vec<u32> = (0..ROWS).filter(|number| !old.contains(number)).collect();
    for number in &lost {
        assert!(
            is_in(&damage, *number),
            "row {number} was lost without a word: {damage:?}"
        );
    }
    assert_eq!(lost.is_empty(), store.damage().is_empty(), "{:?}", store.damage());
    assert!(
        lost.len() < 120,
        "{} rows were lost: more than a block has",
        lost.len()
    );
    let all: BTreeSet<u32> = (0..ROWS).collect();
    assert_eq!(rows(&store, b"new", false).await.0, all);
    assert_eq!(rows(&store, b"new", true).await, (all.clone(), damage.clone()));
    assert_eq!(rows(&store, b"old", true).await, (old.clone(), damage.clone()));
    check_gets(&store, &damage, b"new").await;
    check_gets(&store, &damage, b"old").await;
    let strict = store.scan(&table(), Scan::prefix(b"")).await.unwrap();
    let strict: Result<Vec<_>, _> = strict.try_collect().await;
    assert_eq!(strict.is_err(), !damage.is_empty());
    store.write(batch(0..ROWS, b"newest")).await.unwrap();
    if offset.is_multiple_of(2) {
        store.close().await.map_err(|error| format!("close: {error}"))?;
    } else {
        // As after a crash: the newest points are in the journal.
        drop(store);
    }

    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    assert_eq!(rows(&store, b"new", false).await, (all.clone(), damage.clone()));
    assert_eq!(rows(&store, b"newest", false).await, (all, damage.clone()));
    assert_eq!(rows(&store, b"old", false).await, (old, damage));
    store
        .close()
        .await
        .map_err(|error| format!("second close: {error}"))?;
    Ok(lost.len())
}

#[tokio::test]
async fn survives_any_flipped_bit_in_a_table_file() {
    let whole = whole().await;
    let length = usize::try_from(fs::metadata(table_file(whole.path())).unwrap().len()).unwrap();
    // Over many runs, every byte of the end (index, filter, meta block, contents, trailer), and random bytes
    // of the data blocks.
    let step = std::env::var("DAMAGE_STEP").map_or(331, |step| step.parse().unwrap());
    let offsets = (0..length.saturating_sub(4_000))
        .step_by(8_009)
        .chain((length.saturating_sub(4_000)..length).step_by(step))
        .chain([
            0,
            4,
            5,
            21,
            25,
            29,
            length - 1,
            length - 8,
            length - 16,
            length - 38,
        ]);
    let mut lost = 0;
    for offset in offsets {
        match survives(whole.path(), offset).await {
            Ok(rows) => lost += rows,
            Err(error) => panic!("offset {offset} of {length}: {error}"),
        }
    }
    assert!(lost > 0, "no bit was in a row");
}

#[tokio::test]
async fn reads_detect_damage_and_serve_all_other_rows() {
    let whole = whole().await;
    let length = usize::try_from(fs::metadata(table_file(whole.path())).unwrap().len()).unwrap();
    flip(&table_file(whole.path()), length / 2);
    let store = CellStore::open(CellConfig::new(whole.path())).unwrap();
    assert_eq!(store.damage(), []);

    let mut strict = store.scan(&table(), Scan::prefix(b"")).await.unwrap();
    let mut before = 0;
    let error = loop {
        match strict.try_next().await {
            Ok(Some(rows)) => before += rows.len(),
            Ok(None) => panic!("the scan passed over damage"),
            Err(error) => break error,
        }
    };
    let [damage] = &store.damage()[..] else {
        panic!("{:?}", store.damage())
    };
    assert_eq!(error.to_string(), damage.error().to_string());
    assert_eq!(damage.table, table());
    assert!(damage.detail.contains("offset"), "{damage}");
    assert!(before > 0, "rows before the damage are returned");
    store.check_health().await.unwrap();
    check_gets(&store, std::slice::from_ref(damage), b"old").await;

    // Ranges without damage are readable.
    let scan = Scan::range(damage.stop.clone(), []);
    let rows: Vec<_> = store
        .scan(&table(), scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert!(rows.iter().flatten().count() > 100);
    let scan = Scan::range([], damage.start.clone());
    let rows: Vec<_> = store
        .scan(&table(), scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(rows.iter().flatten().count(), before);

    // A condition on a row with unknown cells fails.
    let cell = oxtsdb_row_store::CellAddress::new(damage.start.clone(), "f", b"counter".to_vec());
    let error = store.increment(&table(), &cell, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    // A merge rewrites the file without the damaged block.
    let damaged = fs::read(&damage.file).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    while fs::read(table_file(whole.path())).unwrap() == damaged {
        assert!(tokio::time::Instant::now() < deadline, "it is not rewritten");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    check_gets(&store, std::slice::from_ref(damage), b"old").await;
    store.close().await.unwrap();

    // The damaged file is preserved; reads fail because of its record.
    assert!(Path::new(&damage.file).exists(), "{damage}");
    fs::remove_file(whole.path().join("DAMAGE")).unwrap();
    let store = CellStore::open(CellConfig::new(whole.path())).unwrap();
    // Rows at the ends of the damaged block were intact, but might have had cells in it.
    let lost = usize::try_from(ROWS).unwrap() - rows_of(&store).await;
    let recorded = lost_of(damage);
    assert!(
        lost > 0 && (lost..=lost + 2).contains(&recorded),
        "{lost} of {recorded}"
    );
}

/// Rows that a scan returns.
async fn rows_of(store: &CellStore) -> usize {
    let scan = store.scan(&table(), Scan::prefix(b"")).await.unwrap();
    let rows: Vec<_> = scan.try_collect().await.unwrap();
    rows.iter().flatten().count()
}

fn lost_of(damage: &DamagedRange) -> usize {
    (0..ROWS)
        .filter(|number| is_in(std::slice::from_ref(damage), *number))
        .count()
}

#[tokio::test]
async fn compaction_continues_after_a_damaged_file() {
    let whole = whole().await;
    let damaged = table_file(whole.path());
    flip(&damaged, 30_000);
    let store = CellStore::open(CellConfig::new(whole.path())).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let mut flushes = 0;
    // Rows with other keys: no flush reads the damaged block, only the compaction does.
    while store.damage().is_empty() {
        let mut batch = WriteBatch::new(table());
        let family = batch.family("f");
        for number in [0, ROWS + 1] {
            batch.row(&(2 * number + 1).to_be_bytes()).put(family, b"q", b"v");
        }
        store.write(batch).await.unwrap();
        store.flush().await.unwrap();
        flushes += 1;
        assert!(
            tokio::time::Instant::now() < deadline,
            "no compaction after {flushes} flushes"
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    store.check_health().await.unwrap();
    let (old, damage) = rows(&store, b"old", false).await;
    assert_eq!(damage, store.damage());
    assert!((300..ROWS as usize).contains(&old.len()), "{}", old.len());
    store.close().await.unwrap();
}

#[tokio::test]
async fn salvage_finds_blocks_and_the_end_of_two_files() {
    let whole = whole().await;
    let config = CellConfig::new(whole.path());
    let store = CellStore::open(config.clone()).unwrap();
    store.write(batch(0..ROWS / 2, b"new")).await.unwrap();
    store.flush().await.unwrap();
    store.close().await.unwrap();
    let store = CellStore::open(config.clone()).unwrap();
    let files = table_files(whole.path());
    assert_eq!(files.len(), 2, "{files:?}");
    let length = |file: &Path| usize::try_from(fs::metadata(file).unwrap().len()).unwrap();
    // The scan reads the data block, which has rows on both sides of the middle. The other file's trailer
    // was read when the store was opened.
    flip(&files[0], length(&files[0]) / 2);
    flip(&files[1], length(&files[1]) - 20);

    let (old, damage) = rows(&store, b"old", false).await;
    assert_eq!(damage.len(), 1, "{damage:?}");
    for number in (0..ROWS).filter(|number| !old.contains(number)) {
        assert!(is_in(&damage, number), "row {number}");
        let row = store.get(&table(), &key(number), &ColumnSelection::All).await;
        row.unwrap_err();
    }
    assert!((300..ROWS as usize).contains(&old.len()), "{}", old.len());
    assert_eq!(rows(&store, b"new", false).await.0, (0..ROWS / 2).collect());
    store.write(batch(0..ROWS, b"newest")).await.unwrap();
    store.close().await.unwrap();
    let store = CellStore::open(config).unwrap();
    assert_eq!(rows(&store, b"newest", true).await, ((0..ROWS).collect(), damage));
}

/// Opens a store with a truncated or empty file as its only listed table file, writes to it and reopens it. Returns
/// the number of remaining rows; the others are recorded as lost.
async fn survives_a_lost_end(folder: &Path, case: &str) -> usize {
    let store = CellStore::open(CellConfig::new(folder))
        .unwrap_or_else(|error| panic!("{case}: the store does not open: {error}"));
    let (old, _) = rows(&store, b"old", false).await;
    let damage = store.damage();
    for number in (0..ROWS).filter(|number| !old.contains(number)) {
        assert!(is_in(&damage, number), "{case}: row {number} was lost silently");
    }
    store.write(batch(0..ROWS, b"new")).await.unwrap();
    store.flush().await.unwrap();
    store.check_health().await.unwrap();
    let all: BTreeSet<u32> = (0..ROWS).collect();
    assert_eq!(rows(&store, b"new", false).await.0, all, "{case}");
    // Tables created later are not affected.
    let later: TableName = "later".parse().unwrap();
    store
        .create_table(&TableDef::new(later.clone(), &["f"]))
        .await
        .unwrap();
    let read = store.get(&later, b"row", &ColumnSelection::All).await;
    assert_eq!(read.unwrap(), None, "{case}");
    store.close().await.unwrap();

    let store = CellStore::open(CellConfig::new(folder)).unwrap();
    assert_eq!(store.damage(), damage, "{case}");
    assert_eq!(rows(&store, b"old", false).await.0, old, "{case}");
    assert_eq!(rows(&store, b"new", true).await.0, all, "{case}");
    store.close().await.unwrap();
    old.len()
}

#[tokio::test]
async fn opens_with_truncated_zeroed_or_missing_table_files() {
    let whole = whole().await;
    let bytes = fs::read(table_file(whole.path())).unwrap();
    let length = bytes.len();
    let every = usize::try_from(ROWS).unwrap();
    let mut cases: Vec<(String, Option<Vec<u8>>)> = vec![("missing".to_owned(), None)];
    for keep in [
        0,
        1,
        4_096,
        length / 2,
        length - 4_096,
        length - 1_000,
        length - 100,
        length - 36,
        length - 1,
    ] {
        cases.push((
            format!("cut off at {keep} of {length}"),
            Some(bytes[..keep].to_vec()),
        ));
    }
    for zeroed in [36, 1_000, length - (length - 1) / 4_096 * 4_096, 4_096, length] {
        let mut bytes = bytes.clone();
        bytes[length - zeroed..].fill(0);
        cases.push((format!("the last {zeroed} of {length} zeroed"), Some(bytes)));
    }
    for (case, content) in cases {
        let folder = tempfile::tempdir().unwrap();
        copy_folder(whole.path(), folder.path());
        let file = table_file(folder.path());
        let kept = match &content {
            Some(content) => {
                fs::write(&file, content).unwrap();
                content
                    .iter()
                    .rposition(|byte| *byte != 0)
                    .map_or(0, |last| last + 1)
            }
            None => {
                fs::remove_file(&file).unwrap();
                0
            }
        };
        let left = survives_a_lost_end(folder.path(), &case).await;
        // The data block at the cut is lost, those before it remain.
        let expected = every * kept / length;
        assert!(
            left + 100 >= expected && (kept > 0 || left == 0),
            "{case}: {left} rows are left"
        );
    }
}

#[tokio::test]
async fn goes_on_with_a_truncated_table_file_while_running() {
    for is_removed in [false, true] {
        let whole = whole().await;
        let config = CellConfig::new(whole.path());
        let store = CellStore::open(config.clone()).unwrap();
        store.write(batch(0..ROWS / 2, b"new")).await.unwrap();
        store.flush().await.unwrap();
        store.close().await.unwrap();
        let store = CellStore::open(config).unwrap();
        let files = table_files(whole.path());
        assert_eq!(files.len(), 2, "{files:?}");
        // A read encounters the damage of the first file while the second one is truncated.
        let length = usize::try_from(fs::metadata(&files[0]).unwrap().len()).unwrap();
        flip(&files[0], length / 2);
        if is_removed {
            fs::remove_file(&files[1]).unwrap();
        } else {
            let file = fs::File::options().write(true).open(&files[1]).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }
        drop(rows(&store, b"old", false).await);
        assert!(!store.damage().is_empty());
        store.check_health().await.unwrap();
        store.write(batch(0..ROWS, b"newest")).await.unwrap();
        store.flush().await.unwrap();
        assert_eq!(rows(&store, b"newest", false).await.0, (0..ROWS).collect());
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn removes_interrupted_and_replaced_table_files() {
    let whole = whole().await;
    let config = CellConfig::new(whole.path());
    let store = CellStore::open(config.clone()).unwrap();
    store.write(batch(0..ROWS, b"new")).await.unwrap();
    store.flush().await.unwrap();
    store.close().await.unwrap();
    let files = table_files(whole.path());
    assert_eq!(files.len(), 2, "{files:?}");
    let bytes = fs::read(&files[0]).unwrap();
    fs::write(
        files[0].with_file_name("0000000003-0000000003.cells.tmp"),
        &bytes[..100],
    )
    .unwrap();
    let store = CellStore::open(config.clone()).unwrap();
    assert_eq!(store.damage(), []);
    assert_eq!(table_files(whole.path()), files);
    // Until it is merged.
    let mut round = 0_u32;
    while files[0].exists() {
        store.write(batch(0..1, &round.to_be_bytes())).await.unwrap();
        store.flush().await.unwrap();
        round += 1;
        assert!(round < 1_000, "no merge");
    }
    store.close().await.unwrap();
    // A merge replaced this one, and could not remove it.
    fs::write(&files[0], bytes).unwrap();
    let store = CellStore::open(config).unwrap();
    assert_eq!(store.damage(), []);
    assert_eq!(rows(&store, b"old", false).await.0, (0..ROWS).collect());
    assert!(!files[0].exists());
    store.close().await.unwrap();
}

#[tokio::test]
async fn rejects_a_table_file_of_another_store() {
    let (one, other) = (whole().await, whole().await);
    fs::copy(table_file(other.path()), table_file(one.path())).unwrap();
    let error = CellStore::open(CellConfig::new(one.path())).unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt { detail, .. } if detail == "it is a table of another store"),
        "{error}"
    );
}
