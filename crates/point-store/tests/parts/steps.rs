//! Crashes before and after each step that makes points durable, visible or obsolete.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{PointStore as _, TimeRange};
use oxtsdb_row_store::Clock;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

use crate::support::{START_MS, batch, int, keys, numbers, read, small};

const DAY: i64 = 86_400;

/// A step: its name, and whether an operation on a path is it.
type Step = (&'static str, fn(&str, &str) -> bool);

const STEPS: [Step; 10] = [
    ("frame of the journal written", |operation, path| {
        operation == "sync" && path.ends_with(".journal")
    }),
    ("part written", |operation, path| {
        let is_part = path.ends_with(".tmp") && !path.ends_with("MANIFEST.tmp");
        operation == "sync" && is_part && path.starts_with("/store/20")
    }),
    ("part renamed", |operation, path| {
        operation == "rename" && sequences(path).is_some_and(|(first, last)| first == last)
    }),
    ("manifest of a day written", |operation, path| {
        operation == "sync" && path.starts_with("/store/20") && path.ends_with("/MANIFEST.tmp")
    }),
    ("manifest of a day replaced", |operation, path| {
        operation == "rename" && path.starts_with("/store/20") && path.ends_with("/MANIFEST")
    }),
    ("manifest of the store replaced", |operation, path| {
        operation == "rename" && path == "/store/MANIFEST"
    }),
    ("merge swapped", |operation, path| {
        operation == "rename" && sequences(path).is_some_and(|(first, last)| first < last)
    }),
    ("journal cut", |operation, path| {
        operation == "remove" && path.ends_with(".journal")
    }),
    ("partition dropped", |operation, path| {
        operation == "rename" && path.starts_with("/store/dropped/")
    }),
    ("snapshot linked", |operation, path| {
        operation == "link" && path.starts_with("/snapshot/")
    }),
];

/// First and last sequence of a part's name.
fn sequences(path: &str) -> Option<(&str, &str)> {
    path.rsplit('/').next()?.strip_suffix(".part")?.split_once('-')
}

fn open(disk: &SimulatedDisk, path: &str) -> Option<PartsStore> {
    let config = PartsConfig {
        path: path.into(),
        retention: Some(Duration::from_secs(3 * 86_400)),
        clock: Clock::new(|| START_MS + 10 * DAY * 1000),
        ..small(Arc::new(disk.clone()))
    };
    PartsStore::open(config).ok()
}

/// Appends, flushes, makes a snapshot, and lets parts be merged and days be dropped, until the disk fails. Returns the
/// number of points that were acknowledged, and of those that were submitted.
async fn operate(disk: &SimulatedDisk, step: Step, after: bool) -> (i64, i64) {
    let store = open(disk, "/store").unwrap();
    disk.crash_at(step.1, after);
    let series = numbers(&store, &keys(1))[0];
    let deadline = Instant::now() + Duration::from_secs(30);
    for count in 0.. {
        assert!(Instant::now() < deadline, "the step was not reached");
        // The first is of a day that is dropped, once there are newer ones.
        let second = if count == 0 { 0 } else { 10 * DAY - count };
        if store
            .append(batch(&[(series, int(second, count))]))
            .await
            .is_err()
        {
            return (count, count + 1);
        }
        let flushed = store.flush().await.is_ok();
        let linked = count != 3 || store.snapshot(Path::new("/snapshot/1")).await.is_ok();
        if !flushed || !linked || disk.has_crashed() {
            return (count + 1, count + 1);
        }
        while store.stats().days.iter().any(|day| day.parts > 20) && !disk.has_crashed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    unreachable!("the disk fails")
}

/// The values in a store of those that are not too old, ascending.
async fn values(store: &PartsStore) -> Vec<i64> {
    let series = numbers(store, &keys(1));
    let read = read(store, &series, TimeRange::ALL).await.unwrap();
    let points = read.into_iter().flat_map(|(_, points)| points);
    let mut values: Vec<i64> = points
        .map(|point| point.bits.cast_signed())
        .filter(|value| *value > 0)
        .collect();
    values.sort_unstable();
    values
}

async fn crash(step: Step, after: bool, seed: Option<u64>) {
    let context = format!("{}, {}, {seed:?}", step.0, if after { "after" } else { "before" });
    let disk = SimulatedDisk::new();
    let (acknowledged, submitted) = operate(&disk, step, after).await;
    assert!(disk.has_crashed(), "{context}");
    let disk = match seed {
        None => disk.kill(),
        Some(0) => disk.power_loss(),
        Some(seed) => disk.power_loss_seeded(seed),
    };
    let store = open(&disk, "/store").unwrap();
    assert_eq!(store.damage(), [], "{context}");
    let stored_values = values(&store).await;
    let least: Vec<i64> = (1..acknowledged).collect();
    let most: Vec<i64> = (1..submitted).collect();
    assert!(
        stored_values == least || stored_values == most,
        "{context}: {stored_values:?}, {acknowledged} were acknowledged"
    );
    // The store goes on.
    let series = numbers(&store, &keys(1));
    store
        .append(batch(&[(series[0], int(10 * DAY, 7))]))
        .await
        .unwrap();
    store.close().await.unwrap();
    // A snapshot is a store only when it is complete.
    if disk.files().contains_key("/snapshot/1/STORE") {
        let snapshot = open(&disk, "/snapshot/1").unwrap();
        assert!(values(&snapshot).await.starts_with(&[1, 2, 3]), "{context}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_each_step_loses_nothing() {
    let mut crashes = Vec::new();
    for step in STEPS {
        for after in [false, true] {
            for seed in [None, Some(0), Some(1), Some(2)] {
                crashes.push(tokio::spawn(crash(step, after, seed)));
            }
        }
    }
    for crash in crashes {
        crash.await.unwrap();
    }
}
