//! Throughput of the embedded store: writes, flushes, scans, recovery.
//!
//! ```sh
//! cargo run --release -p oxtsdb-row-store --example store-bench [folder]
//! ```
//!
//! The load resembles that of a server: 1,000 hosts with 10 metrics, a point every 10 seconds
//! for an hour, in the order of time, as cells of OpenTSDB's rows (row keys of 25 bytes, qualifiers
//! of 2). Even metrics are integers, odd ones decimals with 2 digits; both are random walks with
//! steps of up to 100 units. A batch has 1,000 points; four batches are in flight. Every
//! acknowledged batch is synced.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use oxtsdb_row_store::{
    ColumnSelection, RowFilter, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch,
};

const HOSTS: usize = 1_000;
const METRICS: usize = 10;
const STEPS: u32 = 360;
const IN_FLIGHT: usize = 4;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("store-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = print_sync_time(&folder).and_then(|()| Ok(runtime.block_on(run(&folder))?));
    std::fs::remove_dir_all(&folder)?;
    result
}

/// The baseline of the disk: the time of a sync of 16 KiB within an already allocated file.
fn print_sync_time(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    use std::os::unix::fs::FileExt;

    let file = std::fs::File::create(folder.join("sync"))?;
    file.write_all_at(&vec![0; 4 << 20], 0)?;
    file.sync_all()?;
    let mut times = Vec::new();
    for index in 0..200 {
        let started = Instant::now();
        file.write_all_at(&[1; 16 << 10], index * (16 << 10))?;
        file.sync_data()?;
        times.push(started.elapsed());
    }
    times.sort();
    println!(
        "fdatasync of 16 KiB: median {:.0} us, 99 of 100 {:.0} us",
        micros(times[100]),
        micros(times[198])
    );
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

async fn run(folder: &Path) -> Result<(), StoreError> {
    let table: TableName = "tsdb".parse()?;
    let config = EmbeddedConfig::new(folder.join("store"));
    let store = Arc::new(EmbeddedStore::open(config.clone())?);
    store.create_table(&TableDef::new(table.clone(), &["t"])).await?;

    let mut load = Load::new(&table);
    let hour = load.batches(STEPS);
    let points: usize = hour.iter().map(WriteBatch::row_count).sum();
    let bytes: usize = hour.iter().map(WriteBatch::byte_len).sum();
    println!(
        "{points} points in {} batches, {:.1} bytes of batch a point",
        hour.len(),
        per(bytes, points)
    );

    let watch = Watch::start();
    write(&store, hour).await?;
    watch.report("write, synced", points);
    let stats = store.stats()?;
    println!(
        "  {} groups, {} flushes, memory {} MiB, journal {} MiB",
        stats.groups_committed,
        stats.flushes,
        stats.memory_bytes >> 20,
        stats.journal_bytes >> 20
    );
    scans(&store, &table, "rows mostly in memory").await?;

    let watch = Watch::start();
    store.flush().await?;
    watch.report("flush", points);
    let stats = store.stats()?;
    println!(
        "  {:.3} bytes a point in row blocks, keys included",
        per(usize::try_from(stats.block_bytes).unwrap_or(0), points)
    );
    scans(&store, &table, "rows in blocks").await?;

    println!("10,000,000 points more, then the store is left as a crash would leave it");
    let watch = Watch::start();
    let mut more = 0;
    while more < 10_000_000 {
        let batches = load.batches(100);
        more += batches.iter().map(WriteBatch::row_count).sum::<usize>();
        write(&store, batches).await?;
    }
    watch.report("write, synced, with making the batches", more);
    let outstanding = store.stats()?;
    drop(store);
    let started = Instant::now();
    let store = EmbeddedStore::open(config)?;
    println!(
        "  opened in {:.0} ms with {} MiB of journal, {} rows in memory",
        started.elapsed().as_secs_f64() * 1e3,
        outstanding.journal_bytes >> 20,
        store.stats()?.rows_in_memory
    );
    store.flush().await?;
    let stats = store.stats()?;
    println!(
        "  {:.3} bytes a point in row blocks",
        per(usize::try_from(stats.block_bytes).unwrap_or(0), points + more)
    );
    store.close().await
}

/// Writes batches, some at a time.
async fn write(store: &Arc<EmbeddedStore>, batches: Vec<WriteBatch>) -> Result<(), StoreError> {
    let written = futures::stream::iter(batches)
        .map(|batch| {
            let store = store.clone();
            tokio::spawn(async move { store.write(batch).await })
        })
        .buffer_unordered(IN_FLIGHT)
        .collect::<Vec<_>>()
        .await;
    for result in written {
        result.map_err(|error| StoreError::Unavailable {
            detail: error.to_string(),
        })??;
    }
    Ok(())
}

async fn scans(store: &EmbeddedStore, table: &TableName, what: &str) -> Result<(), StoreError> {
    let mut scan = Scan::prefix(&[0, 0, 1]);
    scan.batch_rows = 256;
    let (rows, cells, time) = best(store, table, &scan).await?;
    println!(
        "scan, {what}: {rows} rows, {cells} cells in {:.2} ms",
        time.as_secs_f64() * 1e3
    );
    scan.filter = Some(RowFilter::new(|key| key.ends_with(&[0xff; 3])));
    let (rows, _, time) = best(store, table, &scan).await?;
    println!(
        "scan, {what}: 1,000 rows filtered out, {rows} returned, in {:.3} ms",
        time.as_secs_f64() * 1e3
    );
    let key = Load::key(1, 0, 500);
    let started = Instant::now();
    for _ in 0..100 {
        store.get(table, &key, &ColumnSelection::All).await?;
    }
    println!(
        "get, {what}: a row in {:.1} us",
        started.elapsed().as_secs_f64() * 1e4
    );
    Ok(())
}

/// The best of a few runs of a scan.
async fn best(
    store: &EmbeddedStore,
    table: &TableName,
    scan: &Scan,
) -> Result<(usize, usize, Duration), StoreError> {
    let mut best = (0, 0, Duration::MAX);
    for _ in 0..5 {
        let started = Instant::now();
        let mut stream = store.scan(table, scan.clone()).await?;
        let (mut rows, mut cells) = (0, 0);
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            rows += batch.len();
            cells += batch.iter().map(oxtsdb_row_store::Row::len).sum::<usize>();
        }
        if started.elapsed() < best.2 {
            best = (rows, cells, started.elapsed());
        }
    }
    Ok(best)
}

#[expect(clippy::cast_precision_loss, reason = "figures to be read")]
fn per(bytes: usize, points: usize) -> f64 {
    bytes as f64 / points as f64
}

/// Wall-clock time, and CPU time of all threads.
struct Watch {
    started: Instant,
    cpu_seconds: f64,
}

impl Watch {
    fn start() -> Self {
        Self {
            started: Instant::now(),
            cpu_seconds: cpu_seconds(),
        }
    }

    fn report(&self, what: &str, points: usize) {
        let seconds = self.started.elapsed().as_secs_f64();
        let cpu_seconds = cpu_seconds() - self.cpu_seconds;
        let millions = per(points, 1_000_000);
        println!(
            "{what}: {:.2} M points/s, {:.3} CPU s per million points",
            millions / seconds,
            cpu_seconds / millions
        );
    }
}

/// CPU time of this process so far, from `/proc`, in ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// Generates points.
struct Load {
    table: TableName,
    values: Vec<i32>,
    step: u32,
    random: u64,
}

impl Load {
    fn new(table: &TableName) -> Self {
        Self {
            table: table.clone(),
            values: vec![1_000; HOSTS * METRICS],
            step: 0,
            random: 1,
        }
    }

    /// Metric, hour, and three tags, with UIDs of 3 bytes.
    fn key(metric: usize, hour: u32, host: usize) -> Vec<u8> {
        let uid = |number: usize| u32::try_from(number).unwrap_or(0).to_be_bytes();
        let mut key = uid(metric)[1..].to_vec();
        key.extend_from_slice(&(1_699_999_200 + 3_600 * hour).to_be_bytes());
        for (tagk, tagv) in [(1, host), (2, host % 5), (3, host % 50)] {
            key.extend_from_slice(&uid(tagk)[1..]);
            key.extend_from_slice(&uid(tagv)[1..]);
        }
        key
    }

    fn batches(&mut self, steps: u32) -> Vec<WriteBatch> {
        let mut batches = Vec::new();
        for _ in 0..steps {
            let (hour, seconds) = (self.step / STEPS, self.step % STEPS * 10);
            self.step += 1;
            let mut batch = WriteBatch::new(self.table.clone());
            for series in 0..HOSTS * METRICS {
                let (host, metric) = (series / METRICS, series % METRICS);
                self.random = self
                    .random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let step = i32::try_from((self.random >> 33) % 201).unwrap_or(0) - 100;
                self.values[series] += step;
                put(
                    &mut batch,
                    &Self::key(metric, hour, host),
                    seconds,
                    metric % 2 == 1,
                    self.values[series],
                );
                if batch.row_count() == 1_000 {
                    batches.push(std::mem::replace(&mut batch, WriteBatch::new(self.table.clone())));
                }
            }
        }
        batches
    }
}

/// Encodes a point as OpenTSDB does: integers in the fewest bytes, decimals in 4 if that is exact.
fn put(batch: &mut WriteBatch, key: &[u8], seconds: u32, decimal: bool, value: i32) {
    let family = batch.family("t");
    let bytes = value.to_be_bytes();
    let (flags, value) = if decimal {
        let value = f64::from(value) / 100.0;
        #[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
        let single = value as f32;
        if f64::from(single).to_bits() == value.to_bits() {
            (0xb, single.to_be_bytes().to_vec())
        } else {
            (0xf, value.to_be_bytes().to_vec())
        }
    } else if i8::try_from(value).is_ok() {
        (0, bytes[3..].to_vec())
    } else if i16::try_from(value).is_ok() {
        (1, bytes[2..].to_vec())
    } else {
        (3, bytes.to_vec())
    };
    let qualifier = (seconds << 4 | flags).to_be_bytes();
    batch.row(key).put(family, &qualifier[2..], &value);
}
