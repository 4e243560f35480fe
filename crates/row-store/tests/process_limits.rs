//! A process at its limit of open files or of file sizes: the store keeps working, or recovers without being
//! reopened.
//!
//! The limits apply to a whole process, so the test starts itself as another process.

#![expect(clippy::unwrap_used, reason = "a test panics when something fails")]

use std::fs::File;
use std::process::Command;

use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use oxtsdb_row_store::{ColumnSelection, Retry, RowStore, StoreError, TableDef, TableName, WriteBatch};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn table() -> TableName {
    "t".parse().unwrap()
}

fn batch(number: u32) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    let family = batch.family("f");
    batch.row(&number.to_be_bytes()).put(family, b"q", &[7; 20_000]);
    batch
}

fn limit(resource: Resource, current: Option<u64>) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current, maximum }).unwrap();
}

async fn check_rows(store: &EmbeddedStore, numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let row = store
            .get(&table(), &number.to_be_bytes(), &ColumnSelection::All)
            .await;
        assert!(row.unwrap().is_some(), "row {number}");
    }
}

#[test]
fn writes_survive_descriptor_and_file_size_limits() {
    // A write beyond the file size limit first raises a signal, which would end the process.
    let status = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; exec \"$0\" --exact limited_process --ignored --nocapture",
        ])
        .arg(std::env::current_exe().unwrap())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
#[ignore = "started by writes_survive_descriptor_and_file_size_limits"]
async fn limited_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = EmbeddedConfig::new(folder.path());
    config.journal_bytes = 64 << 10;
    let open = || EmbeddedStore::open(config.clone()).unwrap();
    let store = open();
    store.create_table(&TableDef::new(table(), &["f"])).await.unwrap();
    store.write(batch(0)).await.unwrap();

    // Connections take all available descriptors.
    limit(Resource::Nofile, Some(300));
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    // Every fourth write fills a segment and starts a flush.
    for number in 1..100 {
        store
            .write(batch(number))
            .await
            .unwrap_or_else(|error| panic!("write {number} without descriptors: {error}"));
    }
    store.flush().await.unwrap();
    store.check_health().await.unwrap();
    assert!(store.stats().unwrap().flushes > 10, "{:?}", store.stats());
    drop(hoard);
    check_rows(&store, 0..100).await;

    // The next segment cannot be created: its folder is gone.
    store.flush().await.unwrap();
    store.write(batch(100)).await.unwrap();
    let journal = folder.path().join("journal");
    std::fs::rename(&journal, folder.path().join("elsewhere")).unwrap();
    let error = loop {
        // The prepared segment is used first; the flush cannot remove segments.
        match store.write(batch(101)).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error.retry(), Retry::Safe | Retry::IfIdempotent),
        "{error}"
    );
    std::fs::rename(folder.path().join("elsewhere"), &journal).unwrap();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = store.write(batch(102)).await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    store.flush().await.unwrap();
    store.check_health().await.unwrap();

    // A write to a segment fails halfway.
    limit(Resource::Fsize, Some(4 << 10));
    let error = store.write(batch(103)).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Io { .. } | StoreError::Unavailable { .. }),
        "{error}"
    );
    store.check_health().await.unwrap_err();
    limit(Resource::Fsize, None);
    // An unhealthy store gets no writes, so it recovers without one.
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = store.check_health().await {
        assert!(tokio::time::Instant::now() < deadline, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    store.write(batch(104)).await.unwrap();
    store.check_health().await.unwrap();
    check_rows(&store, 100..103).await;
    drop(store);

    let store = open();
    check_rows(&store, (0..103).chain([104])).await;
    let refused = store
        .get(&table(), &103_u32.to_be_bytes(), &ColumnSelection::All)
        .await;
    assert!(
        refused.unwrap().is_none(),
        "a write that failed before others must not come back"
    );
    store.close().await.unwrap();
}
