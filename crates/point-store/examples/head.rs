//! Measures the head: points appended per second and bytes of memory, for series in a random order.
//!
//! `cargo run --release -p oxtsdb-point-store --example head -- SERIES STEPS [SHARDS]`
#![allow(clippy::unwrap_used, reason = "a program for measurements")]

use std::time::Instant;

use oxtsdb_point_store::parts::head::Head;
use oxtsdb_point_store::{Point, PointBatch, PointKind, Resolution, SeriesNumber, ValueKind};

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
    let points = f64::from(series) * f64::from(steps);
    #[expect(clippy::cast_precision_loss, reason = "a figure to read")]
    let bytes = head.byte_len() as f64;
    println!(
        "{series} series x {steps}: {:.1} M points/s on one thread, {:.1} bytes/point, {:.0} bytes/series, {:.0} MB",
        points / elapsed.as_secs_f64() / 1e6,
        bytes / points,
        bytes / f64::from(series),
        bytes / 1e6
    );
}
