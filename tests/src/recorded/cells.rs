//! The cells of an embedded store, in the form of the recorded ones.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::view::TableView;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore, Scan};
use oxtsdb_schema::RowKeyLayout;
use oxtsdb_schema::data_table::{DATA_TABLE, META_TABLE};
use oxtsdb_storage_file::disk::real::RealDisk;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};
use tokio_stream::StreamExt as _;

use super::json::Json;
use super::record::Dump;

/// Cells that differ which a message names.
const NAMED: usize = 5;

/// Compares the cells of a server's data folder with recorded ones, until they are equal or the patience ends. Returns how
/// they differ.
pub(super) async fn compare(
    data_dir: &Path,
    dump: &Dump,
    patience: Duration,
) -> anyhow::Result<Option<String>> {
    let recorded: Vec<String> = dump.cells.iter().map(|cell| cell.join(" | ")).collect();
    let end = Instant::now() + patience;
    loop {
        let read = read(data_dir, &dump.tables).await;
        let is_last = Instant::now() > end;
        match read {
            Ok(actual) => {
                let how = differences(&recorded, &actual);
                if how.is_none() || is_last {
                    return Ok(how);
                }
            }
            Err(error) if is_last => return Err(error),
            // The server wrote while its files were copied.
            Err(_) => {}
        }
        sleep(Duration::from_millis(100)).await;
    }
}

fn differences(recorded: &[String], actual: &[String]) -> Option<String> {
    let missing = recorded.iter().filter(|cell| !actual.contains(cell));
    let surplus = actual.iter().filter(|cell| !recorded.contains(cell));
    let differences: Vec<String> = missing
        .map(|cell| format!("  OpenTSDB stores {cell}"))
        .chain(surplus.map(|cell| format!("  we store        {cell}")))
        .collect();
    if differences.is_empty() {
        return None;
    }
    let named = differences.get(..NAMED).unwrap_or(&differences).join("\n");
    Some(format!("{} cells differ:\n{named}", differences.len()))
}

/// Reads tables from a copy of the folder: the server has it open. Acknowledged cells are in the copy, as after a crash.
async fn read(data_dir: &Path, tables: &[String]) -> anyhow::Result<Vec<String>> {
    let copy = TempDir::new()?;
    let mut cells = Vec::new();
    for folder in ["uid", "data"] {
        let of_folder: Vec<&String> = tables
            .iter()
            .filter(|table| (*table == "tsdb-uid") == (folder == "uid"))
            .collect();
        if of_folder.is_empty() {
            continue;
        }
        let copied = copy.path().join(folder);
        copy_folder(&data_dir.join(folder), &copied)?;
        let store = open(&copied).await?;
        for table in of_folder {
            read_table(&*store, table, &mut cells).await?;
        }
        store.close().await?;
    }
    Ok(cells)
}

/// Opens a folder of an embedded store; its tables are as the service sees them.
async fn open(folder: &Path) -> anyhow::Result<Arc<dyn RowStore>> {
    let cells: Arc<dyn RowStore> = Arc::new(CellStore::open(CellConfig::new(folder))?);
    let points = folder.join("points");
    if !points.exists() {
        return Ok(cells);
    }
    let config = PartsConfig::new(points, Arc::new(RealDisk));
    let points = tokio::task::spawn_blocking(|| PartsStore::open(config)).await??;
    let (layout, table) = (RowKeyLayout::default(), DATA_TABLE.parse()?);
    let shown = TableView::new(cells, Arc::new(points), layout, table);
    Ok(Arc::new(shown.with_counters(META_TABLE.parse()?).await?))
}

fn copy_folder(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Reads a table; of table `tsdb` the annotations.
async fn read_table(store: &dyn RowStore, table: &str, cells: &mut Vec<String>) -> anyhow::Result<()> {
    let name = table.parse().with_context(|| format!("`{table}`"))?;
    let mut rows = store.scan(&name, Scan::prefix(&[])).await?;
    while let Some(batch) = rows.next().await {
        for row in batch? {
            for cell in row.cells() {
                let is_annotation = cell.qualifier.first() == Some(&1) && cell.qualifier.len() % 2 == 1;
                if table == "tsdb" && !is_annotation {
                    continue;
                }
                let row = readable(row.key());
                let column = format!("{}:{}", cell.family, readable(cell.qualifier));
                cells.push([table.to_owned(), row, column, masked(&readable(cell.value))].join(" | "));
            }
        }
    }
    Ok(())
}

/// HBase's readable form of bytes.
///
/// Source: HBase 2, `Bytes.toStringBinary`.
fn readable(bytes: &[u8]) -> String {
    let byte = |byte: &u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(*byte).to_string(),
        byte if b" `~!@#$%^&*()-_=+[]{}|;:'\",.<>/?".contains(byte) => char::from(*byte).to_string(),
        byte => format!("\\x{byte:02X}"),
    };
    bytes.iter().map(byte).collect()
}

/// Replaces the time of creation by its marker, as the recorder does.
fn masked(value: &str) -> String {
    const KEY: &str = "\"created\":";
    let Some((before, rest)) = value.split_once(KEY) else {
        return value.to_owned();
    };
    let digits = rest
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(rest.len());
    let (number, after) = rest.split_at(digits);
    let is_now = number
        .parse::<i64>()
        .is_ok_and(|number| super::json::is_now_seconds(&Json::Number(number.into())));
    if is_now {
        format!("{before}{KEY}<now_seconds>{after}")
    } else {
        value.to_owned()
    }
}
