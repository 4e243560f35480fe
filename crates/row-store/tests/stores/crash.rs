//! Acknowledged writes survive `kill -9`.
//!
//! The test starts itself as another process, which writes and reports acknowledged writes on its standard
//! output. That process is killed while it writes, several times on one folder.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{CellAddress, ColumnSelection, RowStore, TableDef, TableName, WriteBatch};

const FOLDER: &str = "OXTSDB_CRASH_FOLDER";
const WRITERS: u8 = 4;
const ROUNDS: usize = 6;

fn table() -> TableName {
    "crash".parse().unwrap()
}

fn counter() -> CellAddress {
    CellAddress::new("counter", "t", "n")
}

/// A store that flushes every few hundred writes, so that some kills interrupt a flush.
fn open(folder: &Path) -> CellStore {
    let mut config = CellConfig::new(folder);
    config.memory_bytes = 1 << 20;
    CellStore::open(config).unwrap()
}

fn row(writer: u8, number: u64) -> Vec<u8> {
    [&[writer][..], &number.to_be_bytes()].concat()
}

/// The killed process: writes forever.
#[test]
#[ignore = "started by acknowledged_writes_survive_kill_9"]
fn writing_process() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Arc::new(open(Path::new(&folder)));
        store.create_table(&TableDef::new(table(), &["t"])).await.unwrap();
        let first = store
            .increment(&table(), &counter(), 1 << 32)
            .await
            .unwrap()
            .cast_unsigned();
        let writers = (0..WRITERS).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in first.. {
                    let mut batch = WriteBatch::new(table());
                    let family = batch.family("t");
                    batch
                        .row(&row(writer, number))
                        .put(family, b"q", &number.to_be_bytes())
                        .put(family, b"r", &[7; 200]);
                    store.write(batch).await.unwrap();
                    let sum = store.increment(&table(), &counter(), 1).await.unwrap();
                    let line = format!("acknowledged {writer} {number} {sum}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                }
            })
        });
        futures::future::join_all(writers).await;
    });
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut acknowledged: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for round in 0..ROUNDS {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::writing_process", "--ignored", "--nocapture"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut last_sum = 0_i64;
        let mut count = 0;
        for line in output.lines() {
            let line = line.unwrap();
            // Other lines come from the test harness, or are the truncated last line.
            let words: Vec<&str> = line.split(' ').collect();
            let ["acknowledged", writer, number, sum] = words[..] else {
                continue;
            };
            let (Ok(writer), Ok(number), Ok(sum)) = (writer.parse(), number.parse(), sum.parse::<i64>())
            else {
                continue;
            };
            acknowledged.entry(writer).or_default().push(number);
            last_sum = last_sum.max(sum);
            count += 1;
            if count == 300 + 170 * round {
                // SIGKILL; output written before is still read.
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(count >= 300, "the process wrote: {count}");

        let store = open(folder.path());
        runtime.block_on(async {
            let sum = store.increment(&table(), &counter(), 0).await.unwrap();
            assert!(
                sum >= last_sum,
                "round {round}: the counter is at {sum}, {last_sum} was acknowledged"
            );
            for (writer, numbers) in &acknowledged {
                let keys: Vec<Vec<u8>> = numbers.iter().map(|number| row(*writer, *number)).collect();
                let rows = store
                    .get_rows(&table(), &keys, &ColumnSelection::All, None)
                    .await
                    .unwrap();
                for (number, row) in numbers.iter().zip(rows) {
                    let row = row
                        .unwrap_or_else(|| panic!("round {round}: row {number} of writer {writer} is lost"));
                    assert_eq!(row.get("t", b"q").unwrap().value, number.to_be_bytes());
                    assert_eq!(row.len(), 2, "both cells of a row, or none");
                }
            }
        });
    }
}
