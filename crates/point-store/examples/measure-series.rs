//! Measures the series catalogue: memory per series, time to add, save, load and find them, and queries.
//!
//! ```text
//! cargo run --release -p oxtsdb-point-store --example measure-series -- 10000000 10
//! ```
//!
//! The arguments are the number of series and of metrics. Series have 3 tags (keys of 21 bytes): a host, one of 100
//! racks, one of 4 data centres. Hosts report one after the other, each with all metrics.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_point_store::parts::series::{MetricNumber, SeriesCatalogue};
use oxtsdb_point_store::{SeriesNumber, TagTest};
use oxtsdb_schema::{TagkUid, TagvUid, UidWidth, UidWidths};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::real::RealDisk;

const BATCH: usize = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let series = arguments.next().transpose()?.unwrap_or(1_000_000);
    let metrics = arguments.next().transpose()?.unwrap_or(10);
    let widths = UidWidths::default();
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("series.log");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let start_bytes = resident();
    let per_series = |bytes: usize| bytes as f64 / f64::from(series);

    let catalogue = SeriesCatalogue::open(Arc::clone(&disk), &path, widths)?;
    let mut slowest = Duration::ZERO;
    let ((), took) = timed(|| {
        for batch in (0..series).step_by(BATCH) {
            let began = Instant::now();
            let keys: Vec<[u8; 21]> = (batch..series).take(BATCH).map(|n| key(n, metrics)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 21]>::as_slice).collect();
            catalogue.numbers(&keys).expect("valid keys");
            slowest = slowest.max(began.elapsed());
        }
    });
    println!(
        "add        {:>9.0} ns a series, slowest batch of {BATCH} {slowest:.1?}",
        nanos(took, series)
    );
    println!(
        "memory     {:>9.0} bytes a series counted, {:.0} resident",
        per_series(catalogue.byte_len()),
        per_series(resident() - start_bytes)
    );
    let (saved, took) = timed(|| catalogue.save(series));
    saved?;
    println!(
        "save       {took:>9.2?}, {:.1} bytes a series in each file",
        per_series(file_bytes(&path))
    );
    drop(catalogue);
    let (catalogue, took) = timed(|| SeriesCatalogue::open(Arc::clone(&disk), &path, widths));
    let catalogue = catalogue?;
    assert_eq!(catalogue.len(), series);
    println!("load       {took:>9.2?}");

    let order: Vec<u32> = (0..1_000_000).map(|n| shuffled(n, series)).collect();
    let keys: Vec<[u8; 21]> = order.iter().map(|n| key(*n, metrics)).collect();
    let (count, took) = timed(|| keys.iter().filter(|key| catalogue.find(*key).is_some()).count());
    assert_eq!(count, order.len());
    println!("find       {:>9.0} ns, random order", nanos(took, 1_000_000));
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 21]>::as_slice).collect();
    let (count, took) = timed(|| {
        keys.chunks(BATCH)
            .map(|keys| catalogue.numbers(keys))
            .filter(Result::is_ok)
            .count()
    });
    assert_eq!(count, order.len() / BATCH);
    println!(
        "numbers    {:>9.0} ns a known key, batches of {BATCH}, random order",
        nanos(took, 1_000_000)
    );
    for threads in [2, 4] {
        let ((), took) = timed(|| {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        keys.chunks(BATCH)
                            .map(|keys| catalogue.numbers(keys))
                            .filter(Result::is_ok)
                            .count()
                    });
                }
            });
        });
        println!(
            "numbers    {:>9.0} ns a known key, by each of {threads} threads",
            nanos(took, 1_000_000)
        );
    }
    let mut buffer = Vec::new();
    let (_, took) = timed(|| {
        order
            .iter()
            .filter(|n| catalogue.key(SeriesNumber(**n), &mut buffer))
            .count()
    });
    println!("key        {:>9.0} ns, random order", nanos(took, 1_000_000));
    let (_, took) = timed(|| {
        order
            .iter()
            .filter_map(|n| catalogue.metric_of(SeriesNumber(*n)))
            .count()
    });
    println!("metric_of  {:>9.0} ns, random order", nanos(took, 1_000_000));

    let metric = MetricNumber(0);
    let host = TagTest::In(TagkUid::from_number(1, UidWidth::DEFAULT)?, vec![tagv(4)?]);
    let rack = TagTest::In(TagkUid::from_number(2, UidWidth::DEFAULT)?, vec![tagv(4)?]);
    let centres = TagTest::In(
        TagkUid::from_number(3, UidWidth::DEFAULT)?,
        vec![tagv(0)?, tagv(1)?],
    );
    let (of_metric, took) = timed(|| catalogue.select(metric, &[]).len());
    println!("index      {took:>9.2?} for a metric of {of_metric} series");
    let (_, took) = timed(|| catalogue.metric_series(metric));
    println!("key order  {took:>9.2?}");
    for (name, tests) in [
        ("all", vec![]),
        ("host", vec![host.clone()]),
        ("host, rack", vec![host, rack.clone()]),
        ("rack", vec![rack.clone()]),
        ("2 of 4 centres", vec![centres.clone()]),
        ("rack, centres", vec![rack, centres]),
    ] {
        let (count, took) = timed(|| catalogue.select(metric, &tests).len());
        println!("select     {took:>9.2?} for {count} series ({name})");
    }
    let new: Vec<[u8; 21]> = (0..1000).map(|n| key(series + n * metrics, metrics)).collect();
    catalogue.numbers(&new.iter().map(<[u8; 21]>::as_slice).collect::<Vec<_>>())?;
    let (_, took) = timed(|| catalogue.select(metric, &[]));
    println!("index      {took:>9.2?} more after 1000 new series");
    let (_, took) = timed(|| catalogue.metric_series(metric));
    println!("key order  {took:>9.2?} more after 1000 new series");
    for metric in 1..metrics {
        catalogue.metric_series(MetricNumber(metric));
    }
    println!(
        "memory     {:>9.0} bytes a series counted, all metrics indexed and ordered, {:.0} resident",
        per_series(catalogue.byte_len()),
        per_series(resident() - start_bytes)
    );
    Ok(())
}

fn key(series: u32, metrics: u32) -> [u8; 21] {
    let host = series / metrics;
    let mut key = [0; 21];
    let uids = [series % metrics, 1, host, 2, host % 100, 3, host % 4];
    for (bytes, uid) in key.chunks_exact_mut(3).zip(uids) {
        bytes.copy_from_slice(&uid.to_be_bytes()[1..]);
    }
    key
}

fn tagv(number: u64) -> Result<TagvUid, Box<dyn std::error::Error>> {
    Ok(TagvUid::from_number(number, UidWidth::DEFAULT)?)
}

/// A number below `end`, in an order without a pattern.
fn shuffled(index: u32, end: u32) -> u32 {
    (index.wrapping_mul(0x9e37_79b1) ^ index >> 7) % end
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let began = Instant::now();
    let result = work();
    (result, began.elapsed())
}

fn nanos(took: Duration, count: u32) -> f64 {
    took.as_secs_f64() * 1e9 / f64::from(count)
}

fn file_bytes(path: &Path) -> usize {
    std::fs::metadata(path).map_or(0, |metadata| usize::try_from(metadata.len()).unwrap_or(0))
}

/// Resident bytes of this process; 0 where the system does not tell.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}
