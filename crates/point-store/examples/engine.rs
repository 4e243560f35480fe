//! Measures the engine: appends in time order, series of a step in a random order, then reads.
//!
//! `cargo run --release -p oxtsdb-point-store --example engine -- SERIES STEPS [HEAD_MIB [BATCH_POINTS]]`, in a folder
//! with space: the store is created in the working directory and removed.
#![allow(clippy::unwrap_used, reason = "a program for measurements")]
#![allow(clippy::cast_precision_loss, reason = "figures to read")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use oxtsdb_point_store::parts::disk::real::RealDisk;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{
    Point, PointBatch, PointKind, PointStore as _, ReadRequest, Resolution, SeriesNumber, TimeRange,
    ValueKind,
};

const START_MS: i64 = 1_700_000_000_000;

/// Appends that may be in flight.
const IN_FLIGHT: usize = 8;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: &str| {
        arguments
            .next()
            .unwrap_or(default.to_owned())
            .parse::<u32>()
            .unwrap()
    };
    let (series, steps) = (number("1000000"), number("60"));
    let (head_mib, batch_points) = (number("128") as usize, number("10000") as usize);
    let folder = tempfile::tempdir_in(".").unwrap();
    let open = || {
        let config = PartsConfig {
            head_bytes: head_mib << 20,
            ..PartsConfig::new(folder.path().join("points"), Arc::new(RealDisk))
        };
        PartsStore::open(config).unwrap()
    };
    let store = open();
    let keys: Vec<Vec<u8>> = (0..series)
        .map(|number| {
            let tagv = (number / 10).to_be_bytes();
            let metric = (number % 10).to_be_bytes()[3];
            [&[0, 0, metric + 1, 0, 0, 1], &tagv[1..], &[0, 0, 2, 0, 0, 7]].concat()
        })
        .collect();
    let begin = Instant::now();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let numbers = store.numbers(&keys).unwrap();
    println!("{series} numbers in {:.2} s", begin.elapsed().as_secs_f64());

    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut order = numbers.clone();
    for index in (1..order.len()).rev() {
        let other = usize::try_from(next() % (index as u64 + 1)).unwrap();
        order.swap(index, other);
    }
    let mut values: Vec<i64> = vec![1000; series as usize];
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let begin = Instant::now();
    let mut generated = Duration::ZERO;
    let mut longest = Duration::ZERO;
    let mut waiting = VecDeque::new();
    for step in 0..steps {
        for series in order.chunks(batch_points) {
            let start = Instant::now();
            let mut batch = PointBatch::with_capacity(series.len());
            for series in series {
                let value = &mut values[series.index()];
                *value += i64::try_from(next() % 201).unwrap() - 100;
                let point = Point {
                    time_ms: START_MS + i64::from(step) * 10_000,
                    kind,
                    bits: value.cast_unsigned(),
                };
                batch.push(*series, point);
            }
            generated += start.elapsed();
            waiting.push_back((Instant::now(), store.append(batch)));
            if waiting.len() == IN_FLIGHT {
                let (sent, append) = waiting.pop_front().unwrap();
                append.await.unwrap();
                longest = longest.max(sent.elapsed());
            }
        }
    }
    for (sent, append) in waiting {
        append.await.unwrap();
        longest = longest.max(sent.elapsed());
    }
    let elapsed = begin.elapsed() - generated;
    let points = f64::from(series) * f64::from(steps);
    let stats = store.stats();
    println!(
        "{series} series x {steps}, head {head_mib} MiB: {:.2} M points/s, longest append {longest:.0?}, {} flushes, \
         {:.1} B/point of journal, {:.1} B/point written in all, peak {} MB",
        points / elapsed.as_secs_f64() / 1e6,
        stats.flushes,
        stats.journal_bytes_written as f64 / points,
        process("io", "write_bytes:") as f64 / points,
        process("status", "VmHWM:") / 1000
    );
    read(&store, &numbers, "from head and parts").await;
    let begin = Instant::now();
    store.flush().await.unwrap();
    println!("flushed in {:.2} s", begin.elapsed().as_secs_f64());
    read(&store, &numbers, "from parts").await;
    store.close().await.unwrap();
    drop(store);
    let begin = Instant::now();
    let store = open();
    println!("opened in {:.2} s", begin.elapsed().as_secs_f64());
    println!("{:?}", store.stats());
}

/// Reads all points of a metric, and one series.
async fn read(store: &PartsStore, numbers: &[SeriesNumber], place: &str) {
    let metric = [0, 0, 1];
    for series in [store.metric_series(&metric), vec![numbers[numbers.len() / 2]]] {
        let count = series.len();
        let mut times = Vec::new();
        let mut points = 0;
        for _ in 0..5 {
            let begin = Instant::now();
            let request = ReadRequest {
                series: series.clone(),
                range: TimeRange::ALL,
            };
            let mut batches = store.read(request);
            points = 0;
            while let Some(batch) = batches.try_next().await.unwrap() {
                points += batch.iter().map(|columns| columns.len()).sum::<usize>();
            }
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        let ns = times[2].as_nanos() as f64 / points as f64;
        println!(
            "{place}: {count} series, {points} points in {:.2?}, {ns:.1} ns/point",
            times[2]
        );
    }
}

/// A number of `/proc/self/FILE`.
fn process(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
