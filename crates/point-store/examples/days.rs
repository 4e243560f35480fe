//! Measures parts of a day: `cargo run --release -p oxtsdb-point-store --example days -- SERIES FLUSHES POINTS`
//!
//! Writes a part of `POINTS` points of each series, `FLUSHES` times, and merges as the policy says; then reads, takes a
//! snapshot, opens again and drops the day. Values are small integers, instants ten seconds apart.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_point_store::parts::days::Days;
use oxtsdb_point_store::parts::days::name::DayNumber;
use oxtsdb_point_store::parts::days::pace::Unpaced;
use oxtsdb_point_store::parts::days::policy::MergePolicy;
use oxtsdb_point_store::parts::folder::Folder;
use oxtsdb_point_store::parts::part::{Columns, Decoder, PageCache};
use oxtsdb_point_store::parts::series::{MetricNumber, SeriesKey};
use oxtsdb_point_store::{Point, PointKind, PointStoreError, Resolution, SeriesNumber, TimeRange, ValueKind};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::real::RealDisk;

const STEP_MS: i64 = 10_000;
const SERIES_OF_METRIC: u32 = 1000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u32> = std::env::args()
        .skip(1)
        .map(|text| text.parse())
        .collect::<Result<_, _>>()?;
    let [series, flushes, points] = arguments[..] else {
        return Err("usage: days SERIES FLUSHES POINTS".into());
    };
    let place = tempfile::tempdir_in(".")?;
    let folder = Folder::open(&RealDisk, &place.path().join("points"))?;
    let day = DayNumber::of(1_795_305_600_000);
    let mut days = open(&folder)?;
    let total = f64::from(series) * f64::from(flushes) * f64::from(points);
    let (mut flush_seconds, mut merge_seconds, mut most_parts) = (0.0, 0.0, 0);
    let mut flushed_bytes = 0;
    for flush in 0..flushes {
        let begin = Instant::now();
        let bytes = days.stats().days.first().map_or(0, |day| day.bytes);
        write(&days, day, series, i64::from(flush * points), i64::from(points))?;
        flushed_bytes += days.stats().days[0].bytes - bytes;
        flush_seconds += begin.elapsed().as_secs_f64();
        most_parts = most_parts.max(days.stats().days[0].parts);
        let begin = Instant::now();
        while let Some(job) = days.next_merge(day.first_ms(), u64::MAX) {
            job.run(&Unpaced)?;
        }
        merge_seconds += begin.elapsed().as_secs_f64();
    }
    let stats = days.stats();
    println!(
        "flush        {:6.1} M points/s, {:.2} bytes/point",
        total / flush_seconds / 1e6,
        div(flushed_bytes, total)
    );
    println!(
        "merges       {:6} in {merge_seconds:.1} s, {:.1} MB/s, wrote {:.2} bytes/point, parts at most {most_parts}, now {}",
        stats.merges.completed.get(),
        div(stats.merges.bytes_read.get(), merge_seconds) / 1e6,
        div(stats.merges.bytes_written.get(), total),
        stats.days[0].parts,
    );
    println!("alive        {:.2} bytes/point", div(stats.days[0].bytes, total));
    read(&days, series, "reads of parts")?;
    let begin = Instant::now();
    let now_ms = day.last_ms() + 1;
    drop(days.next_merge(now_ms, 0));
    while let Some(job) = days.next_merge(now_ms + 24 * 60 * 60 * 1000, u64::MAX) {
        job.run(&Unpaced)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "final merge  {seconds:.2} s, {:.1} M points/s, {:.2} bytes/point",
        total / seconds / 1e6,
        div(days.stats().days[0].bytes, total)
    );
    read(&days, series, "reads of one part")?;
    let begin = Instant::now();
    days.snapshot(&place.path().join("snapshot"))?;
    println!("snapshot     {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    days = open(&folder)?;
    println!("open         {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    days.drop_before(i64::MAX)?;
    println!("drop         {:.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn open(folder: &Folder) -> Result<Days, PointStoreError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    Days::open(
        disk,
        folder,
        Arc::new(PageCache::new(64 << 20, 256)),
        MergePolicy::default(),
        u32::MAX,
        false,
    )
}

#[expect(clippy::cast_precision_loss, reason = "a ratio")]
fn div(bytes: u64, by: f64) -> f64 {
    bytes as f64 / by
}

fn key(series: u32) -> SeriesKey {
    SeriesKey {
        metric: MetricNumber(series / SERIES_OF_METRIC),
        series: SeriesNumber(series),
    }
}

fn write(days: &Days, day: DayNumber, series: u32, first: i64, points: i64) -> Result<(), PointStoreError> {
    let mut new = days.new_part(day)?;
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let mut columns = Columns::default();
    for series in 0..series {
        columns.clear();
        for step in first..first + points {
            let noise =
                (u64::from(series) << 20 ^ step.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
            columns.push(Point {
                time_ms: day.first_ms() + step * STEP_MS,
                kind,
                bits: noise,
            });
        }
        new.writer().push(key(series), &columns)?;
    }
    days.add(new)
}

fn read(days: &Days, series: u32, what: &str) -> Result<(), PointStoreError> {
    let (mut decoder, mut columns) = (Decoder::default(), Columns::default());
    let begin = Instant::now();
    let (mut reads, mut points) = (0.0, 0);
    for series in (0..series).step_by(series.div_ceil(1000) as usize) {
        columns.clear();
        days.read(key(series), TimeRange::ALL, &mut decoder, &mut columns)?;
        points += columns.len() as u64;
        reads += 1.0;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{what}: {:.0} us a series, {:.1} M points/s",
        seconds / reads * 1e6,
        div(points, seconds) / 1e6
    );
    Ok(())
}
