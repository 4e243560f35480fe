use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::TableDef;
use crate::embedded::catalog::Catalog;

fn new_blocks(folder: &Path) -> (Blocks, Arc<Table>) {
    let catalog = Arc::new(Catalog::open(folder.join("TABLES")).unwrap());
    catalog
        .create(&TableDef::new("t".parse().unwrap(), &["f"]))
        .unwrap();
    let table = catalog.by_id().into_values().next().unwrap();
    let set_aside = SetAside::open(folder.join("DAMAGE"), folder.join("set-aside"), catalog, |gap| {
        gap
    })
    .unwrap();
    let settings = Settings {
        path: folder.join("blocks"),
        cache_bytes: 1 << 20,
        table_descriptors: 10,
    };
    (Blocks::open(settings, set_aside).unwrap(), table)
}

#[test]
fn overlapping_reads_do_not_starve_a_repair() {
    /// The longest time that a reader holds the tree while it waits for the other one to acquire it.
    const HELD: Duration = Duration::from_millis(50);

    let folder = tempfile::tempdir().unwrap();
    let (blocks, table) = new_blocks(folder.path());
    let reads = [AtomicU64::new(0), AtomicU64::new(0)];
    let stop = AtomicBool::new(false);
    let (blocks, table, reads, stop) = (&blocks, &table, &reads, &stop);
    thread::scope(|scope| {
        for (own, other) in [(0, 1), (1, 0)] {
            scope.spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let range = blocks.range(table, b"", b"", false).unwrap();
                    reads[own].fetch_add(1, Ordering::SeqCst);
                    let seen = reads[other].load(Ordering::SeqCst);
                    let begun = Instant::now();
                    while reads[other].load(Ordering::SeqCst) == seen && begun.elapsed() < HELD {
                        thread::yield_now();
                    }
                    drop(range);
                }
            });
        }
        while reads.iter().any(|reads| reads.load(Ordering::SeqCst) < 10) {
            thread::yield_now();
        }
        let (done, reopened) = mpsc::channel();
        scope.spawn(move || done.send(blocks.reopen_all()));
        let reopened = reopened.recv_timeout(Duration::from_secs(10));
        stop.store(true, Ordering::SeqCst);
        reopened.expect("the repair got the tree").unwrap();
    });
    blocks.check().unwrap();
}

#[test]
fn health_reports_a_long_repair() {
    let folder = tempfile::tempdir().unwrap();
    let (blocks, table) = new_blocks(folder.path());
    blocks.check().unwrap();
    let range = blocks.range(&table, b"", b"", false).unwrap();
    thread::scope(|scope| {
        let repair = scope.spawn(|| blocks.reopen_all());
        while !blocks.is_reopening() {
            thread::yield_now();
        }
        blocks.check().unwrap();
        *blocks.reopening_since.lock() = Instant::now().checked_sub(REPAIR_LIMIT);
        let error = blocks.check().unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        drop(range);
        repair.join().unwrap().unwrap();
    });
    blocks.check().unwrap();
}
