//! Random histories in which each single operation of the disk fails once, in each way: the store goes on or is opened
//! again, and a second operation fails. All acknowledged changes are there, and nothing is reported as lost.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt as _, stream};
use oxtsdb_point_store::PointStore as _;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_storage_file::disk::simulated::{Fault, SimulatedDisk};

use crate::histories::{Model, Random, SERIES, check, step};
use crate::support::{keys, numbers, small};

/// Requests of a history.
const STEPS: u64 = 14;

/// How often each operation has failed in each way.
type Counts = BTreeMap<(String, String), u64>;

fn open(disk: &SimulatedDisk) -> Result<PartsStore, oxtsdb_point_store::PointStoreError> {
    let config = PartsConfig {
        // Flushes every few requests.
        journal_bytes: 3 << 10,
        ..small(Arc::new(disk.clone()))
    };
    PartsStore::open(config)
}

/// Random requests, whatever fails. Every few a snapshot, which is a store once it was acknowledged.
async fn operate(disk: &SimulatedDisk, random: &mut Random, model: &mut Model, context: &str) {
    let Ok(store) = open(disk) else {
        return;
    };
    let series = numbers(&store, &keys(SERIES));
    for _ in 0..STEPS {
        step(&store, &series, random, model).await;
    }
    let target = format!("/snapshots/{}", disk.operations());
    if random.below(3) == 0 && store.snapshot(Path::new(&target)).await.is_ok() {
        let copy = PartsConfig {
            path: target.into(),
            ..small(Arc::new(disk.kill()))
        };
        let copy = PartsStore::open(copy).unwrap_or_else(|error| panic!("{context}, snapshot: {error}"));
        check(&copy, &series, model, context).await;
    }
    if random.below(3) == 0 {
        drop(store.close().await);
    }
}

/// The disk as the next process finds it.
fn crash(disk: &SimulatedDisk, random: &mut Random) -> SimulatedDisk {
    match random.below(3) {
        0 => disk.kill(),
        1 => disk.power_loss(),
        _ => disk.power_loss_seeded(random.below(u64::MAX)),
    }
}

fn count(disk: &SimulatedDisk, fault: Fault, error: ErrorKind, counts: &mut Counts) {
    if let Some((operation, _)) = disk.injected() {
        *counts
            .entry((operation, format!("{fault:?} {error:?}")))
            .or_default() += 1;
    }
}

/// A history of a seed in which operation `number` fails. Returns how many operations there were, and which failed.
async fn history(seed: u64, number: u64, fault: Fault, error: ErrorKind) -> (u64, Counts) {
    let context = format!("seed {seed}, operation {number}, {fault:?}, {error:?}");
    let mut random = Random(seed);
    let mut model = Model::new();
    let mut disk = SimulatedDisk::new();
    let mut operations = 0;
    let mut counts = Counts::new();
    for round in 0..2 {
        let number = if round == 0 {
            number
        } else {
            random.below(operations + 1)
        };
        let before = disk.operations();
        disk.inject(number, fault, error);
        operate(&disk, &mut random, &mut model, &context).await;
        if round == 0 {
            operations = disk.operations() - before;
        }
        count(&disk, fault, error, &mut counts);
        disk = crash(&disk, &mut random);
        let store = open(&disk).unwrap_or_else(|error| panic!("{context}, round {round}: {error}"));
        let series = numbers(&store, &keys(SERIES));
        check(&store, &series, &model, &format!("{context}, round {round}")).await;
        drop(store);
        disk = disk.kill();
    }
    (operations, counts)
}

/// Histories at a time: most of their time they wait for a flush that is repeated.
const CONCURRENT: usize = 16;

/// `OXTSDB_FAULTS=100000` for a longer run, `OXTSDB_FAULT_SEED` for another one.
#[tokio::test(flavor = "multi_thread")]
async fn each_operation_fails_once() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let most: u64 = number("OXTSDB_FAULTS", 120);
    let first: u64 = number("OXTSDB_FAULT_SEED", 1);
    let kinds: Vec<_> = Fault::ALL
        .into_iter()
        .flat_map(|fault| [ErrorKind::StorageFull, ErrorKind::Other].map(|error| (fault, error)))
        .collect();
    let mut counts = Counts::new();
    let mut histories = 0;
    // All operations of a history, or as many of one as there are histories.
    let mut seed = first;
    while histories < most {
        let (operations, _) = history(seed, u64::MAX >> 1, Fault::Before, ErrorKind::Other).await;
        let cases = operations * kinds.len() as u64;
        let stride = (cases / (most - histories)).max(1);
        // No divisor of the number of kinds.
        let stride = stride + u64::from(stride > 1 && stride.is_multiple_of(2));
        let cases = (0..cases).step_by(usize::try_from(stride).unwrap());
        let kinds = kinds.clone();
        let mut running = stream::iter(cases)
            .map(move |case| {
                let (fault, error) = kinds[usize::try_from(case % kinds.len() as u64).unwrap()];
                tokio::spawn(history(seed, case / kinds.len() as u64, fault, error))
            })
            .buffer_unordered(CONCURRENT);
        while let Some(ended) = running.next().await {
            for (failed, count) in ended.unwrap().1 {
                *counts.entry(failed).or_default() += count;
            }
            histories += 1;
        }
        seed += 1;
    }
    eprintln!("{histories} histories, seeds {first} to {}", seed - 1);
    for ((operation, fault), count) in &counts {
        eprintln!("{operation:10} {fault:20} {count}");
    }
}
