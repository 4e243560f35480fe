//! Measures the cell store on the real disk: first contact, reads, scans, opening after `kill -9`, one check-and-put.
//!
//! ```text
//! cargo run --release -p oxtsdb-row-store --example measure-cells -- FOLDER [ROWS...]
//! ```
//!
//! First contact assigns a number to each of ROWS new names, by one conditional commit with a forward and a reverse
//! mapping, with 1,000 and with 8,000 commits in flight. The writing process is another one, which is killed, so that memory
//! is measured for it alone and the next open replays its journal.

#![expect(clippy::unwrap_used, reason = "a measurement ends with the first error")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, RowStore, Scan, StoreControl as _, TableDef, TableName,
    WriteBatch,
};

fn table() -> TableName {
    "tsdb-uid".parse().unwrap()
}

fn config(folder: &Path) -> CellConfig {
    // A quarter of it for unflushed cells in each memtable, a third for blocks.
    CellConfig::new(folder).with_memory(192 << 20)
}

fn name(number: u32) -> Vec<u8> {
    format!("host-{:08x}.example", number.wrapping_mul(0x9e37_79b1)).into_bytes()
}

async fn assign(store: &CellStore, number: u32) {
    let name = name(number);
    let uid = number.to_be_bytes();
    let mut batch = WriteBatch::new(table());
    let (forward, reverse) = (batch.family("id"), batch.family("name"));
    batch.row(&name).put(forward, b"tagv", &uid);
    batch.row(&uid).put(reverse, b"tagv", &name);
    let absent = Condition {
        cell: CellAddress::new(name, "id", b"tagv".to_vec()),
        expected: None,
    };
    assert!(store.atomic().unwrap().commit_if(&[absent], batch).await.unwrap());
}

fn io_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .unwrap()
        >> 10
}

/// The process that is killed: assigns names, reports, waits.
async fn write(folder: &Path, rows: u32, in_flight: usize) {
    let store = Arc::new(CellStore::open(config(folder)).unwrap());
    let def = TableDef::new(table(), &["id", "name"]);
    store.create_table(&def).await.unwrap();
    let next = Arc::new(AtomicU32::new(0));
    let before = io_bytes();
    let begun = Instant::now();
    let writers = (0..in_flight).map(|_| {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= rows {
                    break;
                }
                assign(&store, number).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "first contact, {in_flight} in flight: {:.0} k/s, {} MB written, peak {} MB",
        f64::from(rows) / seconds / 1e3,
        (io_bytes() - before) >> 20,
        peak_mb()
    );
    println!("written");
    std::thread::park();
}

async fn read(folder: &Path, rows: u32) {
    let begun = Instant::now();
    let store = Arc::new(CellStore::open(config(folder)).unwrap());
    println!("open after kill -9: {:.3} s", begun.elapsed().as_secs_f64());

    let begun = Instant::now();
    let reads = 400_000_u32;
    let readers = (0..2_u32).map(|reader| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut times = Vec::with_capacity(reads as usize);
            for read in 0..reads {
                let number = (read.wrapping_mul(0x9e37_79b1) ^ reader).wrapping_mul(0x85eb_ca6b) % rows;
                let begun = Instant::now();
                let row = store.get(&table(), &name(number), &ColumnSelection::All).await;
                times.push(begun.elapsed());
                assert!(row.unwrap().is_some());
            }
            times
        })
    });
    let mut times: Vec<Duration> = Vec::new();
    for reader in readers.collect::<Vec<_>>() {
        times.extend(reader.await.unwrap());
    }
    let seconds = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100];
    println!(
        "reads: {:.0} k/s, p99 {} µs",
        f64::from(2 * reads) / seconds / 1e3,
        p99.as_micros()
    );

    let begun = Instant::now();
    let mut scanned = 0;
    let mut scan = store.scan(&table(), Scan::range([], [])).await.unwrap();
    while let Some(rows) = scan.try_next().await.unwrap() {
        scanned += rows.len();
    }
    let millions = scanned as f64 / 1e6;
    println!(
        "scan: {:.1} M rows/s of {millions:.1} M",
        millions / begun.elapsed().as_secs_f64()
    );

    let before = io_bytes();
    let mut times = Vec::new();
    let cell = CellAddress::new("a counter", "id", b"tagv".to_vec());
    let mut expected = None;
    for number in 0..2_000_u64 {
        let condition = Condition {
            cell: cell.clone(),
            expected: expected.clone(),
        };
        let value = number.to_be_bytes().to_vec();
        let begun = Instant::now();
        assert!(store.check_and_put(&table(), &condition, &value).await.unwrap());
        times.push(begun.elapsed());
        expected = Some(value);
    }
    times.sort_unstable();
    println!(
        "check-and-put: p50 {} µs, {} bytes; peak of this process {} MB",
        times[times.len() / 2].as_micros(),
        (io_bytes() - before) / 2_000,
        peak_mb()
    );
    store.close().await.unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let number = |index: usize| arguments[index].parse::<u32>().unwrap();
    if arguments[0] == "write" {
        let folder = Path::new(&arguments[1]);
        runtime.block_on(write(folder, number(2), number(3) as usize));
        return;
    }
    let root = Path::new(&arguments[0]);
    let mut sizes: Vec<u32> = (1..arguments.len()).map(number).collect();
    if sizes.is_empty() {
        sizes = vec![1_000_000, 5_000_000];
    }
    for rows in sizes {
        for in_flight in ["1000", "8000"] {
            println!("{rows} names");
            let folder = root.join(format!("cells-{rows}-{in_flight}"));
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args(["write", folder.to_str().unwrap(), &rows.to_string(), in_flight])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(process.stdout.take().unwrap());
            for line in output.lines() {
                let line = line.unwrap();
                if line == "written" {
                    break;
                }
                println!("{line}");
            }
            process.kill().unwrap();
            process.wait().unwrap();
            runtime.block_on(read(&folder, rows));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }
}
