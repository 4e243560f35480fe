//! Measures the engine: appends in time order, series of a step in a random order, then reads.
//!
//! `cargo run --release -p oxtsdb-point-store --example engine -- SERIES STEPS [HEAD_MIB [BATCH_POINTS [LATE]]]`, in a
//! folder with space: the store is created in the working directory and removed. Of each LATE points, one is late by up
//! to three days; 0: none.
#![allow(clippy::unwrap_used, reason = "a program for measurements")]
#![allow(clippy::cast_precision_loss, reason = "figures to read")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use oxtsdb_point_store::parts::days::check::DayStats;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{
    Point, PointBatch, PointKind, PointStore as _, ReadRequest, Resolution, SeriesNumber, TimeRange,
    ValueKind,
};
use oxtsdb_storage_file::disk::real::RealDisk;

const START_MS: i64 = 1_700_000_000_000;

/// The greatest delay of late points.
const LATEST_MS: u64 = 3 * 86_400_000;

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
    let (head_mib, batch_points, late) = (number("128") as usize, number("10000") as usize, number("0"));
    let folder = tempfile::tempdir_in(".").unwrap();
    let open = || {
        let config = PartsConfig {
            head_bytes: head_mib << 20,
            ..PartsConfig::new(folder.path().join("points"), Arc::new(RealDisk))
        };
        PartsStore::open(config).unwrap()
    };
    let store = open();
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut order: Vec<SeriesNumber> = (0..series).map(SeriesNumber).collect();
    let mut values: Vec<i64> = vec![1000; series as usize];
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let begin = Instant::now();
    let mut generated = Duration::ZERO;
    let mut longest = Duration::ZERO;
    let mut waiting = VecDeque::new();
    for step in 0..steps {
        if step == 1 {
            let start = Instant::now();
            for index in (1..order.len()).rev() {
                let other = usize::try_from(next() % (index as u64 + 1)).unwrap();
                order.swap(index, other);
            }
            generated += start.elapsed();
        }
        for series in order.chunks(batch_points) {
            let start = Instant::now();
            let keys: Vec<Vec<u8>> = series.iter().map(|series| key(series.0)).collect();
            generated += start.elapsed();
            if step == 0 {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                assert_eq!(store.numbers(&keys).unwrap(), series);
            }
            let start = Instant::now();
            let mut batch = PointBatch::with_capacity(series.len());
            for series in series {
                let value = &mut values[series.index()];
                *value += i64::try_from(next() % 201).unwrap() - 100;
                let is_late = late > 0 && next().is_multiple_of(u64::from(late));
                let late_ms = if is_late {
                    i64::try_from(next() % LATEST_MS).unwrap()
                } else {
                    0
                };
                let point = Point {
                    time_ms: START_MS + i64::from(step) * 10_000 - late_ms / 1000 * 1000,
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
        "{series} series x {steps}, head {head_mib} MiB: {:.2} M points/s, longest append {longest:.0?}, \
         {:.1} B/point of journal, {:.1} B/point written in all, peak {} MB",
        points / elapsed.as_secs_f64() / 1e6,
        stats.figures.counters.journal_bytes.get() as f64 / points,
        process("io", "write_bytes:") as f64 / points,
        process("status", "VmHWM:") / 1000
    );
    merges(&store);
    let numbers: Vec<SeriesNumber> = (0..series).map(SeriesNumber).collect();
    read(&store, &numbers, "from head and parts").await;
    let begin = Instant::now();
    store.flush().await.unwrap();
    println!("flushed in {:.2} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    while store.stats().days.iter().any(|day| day.merge_debt_bytes > 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("merges ended {:.1} s later", begin.elapsed().as_secs_f64());
    merges(&store);
    read(&store, &numbers, "from parts").await;
    store.close().await.unwrap();
    drop(store);
    let begin = Instant::now();
    let store = open();
    println!("opened in {:.2} s", begin.elapsed().as_secs_f64());
    println!("{:?}", store.stats());
}

/// The TSUID of a series: ten metrics of hosts.
fn key(series: u32) -> Vec<u8> {
    let tagv = (series / 10).to_be_bytes();
    let metric = (series % 10).to_be_bytes()[3];
    [&[0, 0, metric + 1, 0, 0, 1], &tagv[1..], &[0, 0, 2, 0, 0, 7]].concat()
}

/// Prints what merges did and have to do.
fn merges(store: &PartsStore) {
    let stats = store.stats();
    let days = &stats.days;
    let sum = |of: fn(&DayStats) -> u64| days.iter().map(of).sum::<u64>() as f64;
    let counters = &stats.figures.counters;
    let points = counters.points.get() as f64;
    println!(
        "{} flushes, {} merges wrote {:.2} B/point, {:?} parts of a day, {:.2} B/point in parts, debt {:.0} MB",
        counters.flushes.get(),
        stats.figures.merges.completed.get(),
        stats.figures.merges.bytes_written.get() as f64 / points,
        days.iter().map(|day| day.parts).collect::<Vec<_>>(),
        sum(|day| day.bytes) / sum(|day| day.points),
        sum(|day| day.merge_debt_bytes) / 1e6,
    );
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
