//! The cells of an embedded store, in the form of the recorded ones.

use std::path::Path;

use anyhow::Context as _;
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use oxtsdb_row_store::{RowStore as _, Scan};
use tokio_stream::StreamExt as _;

use super::json::Json;
use super::record::Dump;

/// Cells that differ which a message names.
const NAMED: usize = 5;

/// Compares the cells of a data folder, which no server has open, with recorded ones. Returns how they differ.
pub(super) async fn compare(data_dir: &Path, dump: &Dump) -> anyhow::Result<Option<String>> {
    let mut actual = Vec::new();
    for table in &dump.tables {
        read(data_dir, table, &mut actual).await?;
    }
    let recorded: Vec<String> = dump.cells.iter().map(|cell| cell.join(" | ")).collect();
    let actual: Vec<String> = actual.iter().map(|cell| cell.join(" | ")).collect();
    let missing = recorded.iter().filter(|cell| !actual.contains(cell));
    let surplus = actual.iter().filter(|cell| !recorded.contains(cell));
    let differences: Vec<String> = missing
        .map(|cell| format!("  OpenTSDB stores {cell}"))
        .chain(surplus.map(|cell| format!("  we store        {cell}")))
        .collect();
    if differences.is_empty() {
        return Ok(None);
    }
    let named = differences.get(..NAMED).unwrap_or(&differences).join("\n");
    Ok(Some(format!("{} cells differ:\n{named}", differences.len())))
}

/// Reads a table; of table `tsdb` the annotations.
async fn read(data_dir: &Path, table: &str, cells: &mut Vec<[String; 4]>) -> anyhow::Result<()> {
    let folder = data_dir.join(if table == "tsdb-uid" { "uid" } else { "data" });
    let store = EmbeddedStore::open(EmbeddedConfig::new(&folder))
        .with_context(|| format!("open {}", folder.display()))?;
    let name = table.parse().with_context(|| format!("`{table}`"))?;
    let mut rows = store.scan(&name, Scan::prefix(&[])).await?;
    while let Some(batch) = rows.next().await {
        for row in batch? {
            for cell in row.cells() {
                let is_annotation = cell.qualifier.first() == Some(&1) && cell.qualifier.len() % 2 == 1;
                if table == "tsdb" && !is_annotation {
                    continue;
                }
                cells.push([
                    table.to_owned(),
                    readable(row.key()),
                    format!("{}:{}", cell.family, readable(cell.qualifier)),
                    masked(&readable(cell.value)),
                ]);
            }
        }
    }
    drop(rows);
    store.close().await?;
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
