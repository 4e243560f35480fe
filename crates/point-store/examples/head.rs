//! Measures the head: points appended and read per second, bytes of memory as counted and as resident, for series in a
//! random order.
//!
//! `cargo run --release -p oxtsdb-point-store --example head -- SERIES STEPS [SHARDS]`
#![allow(clippy::unwrap_used, reason = "a program for measurements")]

use std::time::Instant;

use oxtsdb_point_store::parts::head::{Head, HeadScratch};
use oxtsdb_point_store::parts::part::{Columns, PartWriter};
use oxtsdb_point_store::parts::series::MetricNumber;
use oxtsdb_point_store::{Point, PointBatch, PointKind, Resolution, SeriesNumber, TimeRange, ValueKind};
use oxtsdb_storage_file::disk::real::RealDisk;

/// Resident memory of the process, in MB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0 / 1e6
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: &str| arguments.next().unwrap_or(default.to_owned()).parse::<u32>();
    let (series, steps) = (number("1000000").unwrap(), number("25").unwrap());
    let shards = number("4").unwrap();
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let head = Head::new(shards as usize);
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut order: Vec<u32> = (0..series).collect();
    for index in (1..order.len()).rev() {
        let other = usize::try_from(next() % (index as u64 + 1)).unwrap();
        order.swap(index, other);
    }
    let mut elapsed = std::time::Duration::ZERO;
    let mut batch = PointBatch::with_capacity(10_000);
    let before = resident();
    for step in 0..steps {
        for series in order.chunks(10_000) {
            batch.clear();
            for series in series {
                let point = Point {
                    time_ms: 1_700_000_000_000 + i64::from(step) * 10_000,
                    kind,
                    bits: 1000 + next() % 200,
                };
                batch.push(SeriesNumber(*series), point);
            }
            let start = Instant::now();
            head.append(&batch);
            elapsed += start.elapsed();
        }
    }
    let resident = resident() - before;
    let points = f64::from(series) * f64::from(steps);
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let bytes = head.byte_len() as f64;
    println!(
        "{series} series x {steps}: {:.1} M points/s on one thread, {:.1} bytes/point, {:.0} bytes/series, {:.0} MB, \
         {resident:.0} MB resident",
        points / elapsed.as_secs_f64() / 1e6,
        bytes / points,
        bytes / f64::from(series),
        bytes / 1e6
    );
    let (mut scratch, mut read) = (HeadScratch::default(), Columns::default());
    let keys = head.series(|series| MetricNumber(series.0 % 100));
    measure("series sorted", series, || {
        head.series(|series| MetricNumber(series.0 % 100));
    });
    measure("series read one by one", series, || {
        for key in &keys {
            read.clear();
            head.read(key.series, TimeRange::ALL, &mut scratch, &mut read);
            assert_eq!(read.len(), steps as usize);
        }
    });
    let last_ms = 1_700_000_000_000 + (i64::from(steps) - 1) * 10_000;
    let hour = TimeRange {
        first_ms: last_ms - 359 * 10_000,
        last_ms,
    };
    measure("last hours of series read one by one", series, || {
        for keys in keys.chunks(64) {
            head.touch(keys.iter().map(|key| key.series));
            for key in keys {
                read.clear();
                head.read(key.series, hour, &mut scratch, &mut read);
                assert_eq!(read.len(), steps.min(360) as usize);
            }
        }
    });
    measure("series read together", series, || {
        let read = head.read_each(&keys, TimeRange::ALL, &mut scratch, |_, points| {
            assert_eq!(points.len(), steps as usize);
            Ok::<_, ()>(())
        });
        read.unwrap();
    });
    let folder = tempfile::tempdir_in(".").unwrap();
    let mut writer = PartWriter::create(&RealDisk, &folder.path().join("part")).unwrap();
    measure("series read together and written", series, || {
        let read = head.read_each(&keys, TimeRange::ALL, &mut scratch, |key, points| {
            writer.push(key, points)
        });
        read.unwrap();
    });
    println!("{:?}", writer.finish().unwrap());
}

/// Prints the time of the processor for each series: a machine that does other work changes it little.
fn measure(what: &str, series: u32, run: impl FnOnce()) {
    let before = processor();
    run();
    println!(
        "{what}: {:.0} ns each",
        (processor() - before) / f64::from(series)
    );
}

/// Nanoseconds of this thread.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}
