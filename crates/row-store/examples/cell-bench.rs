//! Rates of the cell store beside those of the embedded store.
//!
//! ```sh
//! cargo run --release -p oxtsdb-row-store --example cell-bench [folder]
//! ```
//!
//! Every acknowledged write is synced. Increments and check-and-puts have 64 callers, each with its own rows; batches
//! have 1,000 rows with a cell of 16 bytes, and four are in flight.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, TryStreamExt};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch,
};

const CALLERS: u32 = 64;
const CALLS: u32 = 200;
const BATCHES: u32 = 500;
const BATCH_ROWS: u32 = 1_000;
const IN_FLIGHT: usize = 4;
const GETS: u32 = 100_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("cell-bench-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    std::fs::create_dir_all(&folder)?;
    let result = runtime.block_on(async {
        let old = EmbeddedStore::open(EmbeddedConfig::new(folder.join("embedded")))?;
        run("embedded", Arc::new(old)).await?;
        let cells = Arc::new(CellStore::open(CellConfig::new(folder.join("cells")))?);
        run("cells", cells.clone()).await?;
        println!("cells: {:?}", cells.stats()?);
        cells.close().await
    });
    std::fs::remove_dir_all(&folder)?;
    Ok(result?)
}

/// A key whose order has nothing to do with the number.
fn key(number: u32) -> Vec<u8> {
    let scattered = number.wrapping_mul(2_654_435_761).to_be_bytes();
    [&[0, 0, 1][..], &scattered, &[0, 0, 1, 0, 0, 2]].concat()
}

fn report(store: &str, what: &str, count: u32, started: Instant) {
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    println!("{store}: {what}: {rate:.0}/s");
}

async fn run(name: &str, store: Arc<dyn RowStore>) -> Result<(), StoreError> {
    let table: TableName = "t".parse()?;
    store.create_table(&TableDef::new(table.clone(), &["f"])).await?;

    for is_shared in [false, true] {
        let started = Instant::now();
        concurrently(|caller| {
            let (store, table) = (store.clone(), table.clone());
            async move {
                let row = if is_shared {
                    "shared".to_owned()
                } else {
                    format!("counter {caller}")
                };
                let cell = CellAddress::new(row, "f", "n");
                for _ in 0..CALLS {
                    store.increment(&table, &cell, 1).await?;
                }
                Ok(())
            }
        })
        .await?;
        let what = if is_shared {
            "increments of one cell"
        } else {
            "increments"
        };
        report(name, what, CALLERS * CALLS, started);
    }

    let started = Instant::now();
    concurrently(|caller| {
        let (store, table) = (store.clone(), table.clone());
        async move {
            for call in 0..CALLS {
                let condition = Condition {
                    cell: CellAddress::new(format!("check {caller} {call}"), "f", "n"),
                    expected: None,
                };
                store.check_and_put(&table, &condition, b"value").await?;
            }
            Ok(())
        }
    })
    .await?;
    report(name, "check_and_put", CALLERS * CALLS, started);

    let started = Instant::now();
    futures::stream::iter((0..BATCHES).map(Ok))
        .try_for_each_concurrent(IN_FLIGHT, |batch| {
            let (store, table) = (store.clone(), table.clone());
            async move {
                let mut rows = WriteBatch::new(table);
                let family = rows.family("f");
                for number in 0..BATCH_ROWS {
                    rows.row(&key(batch * BATCH_ROWS + number))
                        .put(family, b"name", &[7; 16]);
                }
                store.write(rows).await
            }
        })
        .await?;
    report(name, "rows in batches", BATCHES * BATCH_ROWS, started);

    let started = Instant::now();
    for number in 0..GETS {
        let row = key(number.wrapping_mul(7_919) % (BATCHES * BATCH_ROWS));
        if store.get(&table, &row, &ColumnSelection::All).await?.is_none() {
            return Err(StoreError::Unavailable {
                detail: format!("row {number} is missing"),
            });
        }
    }
    report(name, "gets", GETS, started);

    let started = Instant::now();
    let mut scan = store.scan(&table, Scan::prefix(&[0, 0, 1])).await?;
    let mut rows = 0;
    while let Some(batch) = scan.next().await {
        rows += u32::try_from(batch?.len()).unwrap_or(0);
    }
    report(name, "scanned rows", rows, started);
    Ok(())
}

/// Runs all callers at the same time.
async fn concurrently<F>(call: impl Fn(u32) -> F) -> Result<(), StoreError>
where
    F: Future<Output = Result<(), StoreError>> + Send + 'static,
{
    let callers: Vec<_> = (0..CALLERS).map(|caller| tokio::spawn(call(caller))).collect();
    for caller in callers {
        caller.await.map_err(|error| StoreError::Unavailable {
            detail: error.to_string(),
        })??;
    }
    Ok(())
}
