//! A process at its limit of open files or of file sizes: the store keeps working, or recovers without being
//! reopened.
//!
//! The limits apply to a whole process, so the test starts itself as another process.

use std::fs::File;
use std::process::Command;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    ColumnSelection, Retry, RowStore, StoreControl as _, StoreError, TableDef, TableName, WriteBatch,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::files::noise;

fn table() -> TableName {
    "t".parse().unwrap()
}

fn batch(number: u32) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let family = batch.family("f");
    let value: Vec<u8> = noise(number).take(20_000).collect();
    batch.row(&number.to_be_bytes()).put(family, b"q", &value);
    batch
}

fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

async fn check_rows(store: &CellStore, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let row = store
            .get(&table(), &number.to_be_bytes(), &ColumnSelection::All)
            .await;
        assert!(row.unwrap().is_some(), "row {number}");
    }
}

async fn contains(store: &CellStore, number: u32) -> bool {
    let row = store
        .get(&table(), &number.to_be_bytes(), &ColumnSelection::All)
        .await;
    row.unwrap().is_some()
}

/// Waits until the store is healthy.
async fn recovers(store: &CellStore) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = store.check_health().await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[test]
fn writes_survive_descriptor_and_file_size_limits() {
    // A write beyond the file size limit first raises a signal, which would end the process.
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; exec \"$0\" --exact process_limits::limited_process --ignored --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {printed}", output.status);
    assert!(printed.contains(" 1 passed"), "{printed}");
}

#[tokio::test]
#[ignore = "started by writes_survive_descriptor_and_file_size_limits"]
async fn limited_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.memory_bytes = 256 << 10;
    let open = || CellStore::open(config.clone()).unwrap();
    let store = open();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    store.write(batch(0)).await.unwrap();

    // Connections take all available descriptors. Flushes then fail, which the engine does not survive.
    limit(Resource::Nofile, Some(300));
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    let mut written = vec![0];
    for number in 1..100 {
        match store.write(batch(number)).await {
            Ok(()) => written.push(number),
            Err(error) => {
                assert!(
                    matches!(error.retry(), Retry::Safe | Retry::IfIdempotent),
                    "{error}"
                );
                break;
            }
        }
    }
    drop(hoard);
    recovers(&store).await;
    store.write(batch(100)).await.unwrap();
    store.flush().await.unwrap();
    check_rows(&store, written.iter().copied().chain([100])).await;

    // A write to the journal fails halfway.
    limit(Resource::Fsize, Some(4 << 10));
    let error = store.write(batch(103)).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Io { .. } | StoreError::Unavailable { .. }),
        "{error}"
    );
    limit(Resource::Fsize, None);
    // An unhealthy store gets no writes, so it recovers without one.
    recovers(&store).await;
    store.write(batch(104)).await.unwrap();
    store.check_health().await.unwrap();
    let before = contains(&store, 103).await;
    drop(store);

    let store = open();
    check_rows(&store, written.into_iter().chain([100, 104])).await;
    assert_eq!(
        contains(&store, 103).await,
        before,
        "the outcome of a failed write does not change"
    );
    store.close().await.unwrap();
}
