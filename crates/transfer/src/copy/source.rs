//! The rows of a table, of a store or of an export.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{Row, Scan};

use super::manifest::{Manifest, Segment};
use super::place::{OpenTable, Opened};
use super::segment;

/// Rows in order of their keys, in batches.
pub(super) type Rows = BoxStream<'static, anyhow::Result<Vec<Row>>>;

/// Rows of a batch of a scan.
const BATCH_ROWS: usize = 512;

impl Opened {
    /// Its tables.
    pub(super) fn roles(&self) -> Vec<String> {
        match self {
            Self::Store(store) => store.tables.iter().map(|table| table.role.clone()).collect(),
            Self::Export(manifest) => {
                let tables = manifest.header.tables.iter();
                tables.map(|table| table.role.clone()).collect()
            }
        }
    }

    /// The rows of a table; none if there is no such table.
    pub(super) async fn rows(&self, role: &str) -> anyhow::Result<Rows> {
        match self {
            Self::Store(store) => match store.tables.iter().find(|table| table.role == role) {
                Some(table) => scan(table, None).await,
                None => Ok(futures::stream::empty().boxed()),
            },
            Self::Export(manifest) => {
                let segments: Vec<Segment> = manifest
                    .segments
                    .iter()
                    .filter(|segment| segment.table == role)
                    .cloned()
                    .collect();
                let manifest = Arc::clone(manifest);
                let rows =
                    futures::stream::iter(segments).then(move |segment| {
                        let manifest = Arc::clone(&manifest);
                        async move {
                            tokio::task::spawn_blocking(move || read_segment(&manifest, &segment)).await?
                        }
                    });
                Ok(rows.boxed())
            }
        }
    }
}

/// Scans a table of a store, after a row.
pub(super) async fn scan(table: &OpenTable, after: Option<&[u8]>) -> anyhow::Result<Rows> {
    let mut scan = Scan::range([], []);
    scan.batch_rows = BATCH_ROWS;
    if let Some(after) = after {
        scan = scan.resume_after(after);
    }
    let name = table.name().to_string();
    let at = move || format!("read table `{name}`");
    let rows = table.store.scan(table.name(), scan).await.with_context(&at)?;
    Ok(rows
        .map_err(move |error| anyhow::Error::new(error).context(at()))
        .boxed())
}

/// Reads a segment and checks it before any of its rows is returned. Blocks.
///
/// # Errors
///
/// The file, and where in it what is wrong.
pub(super) fn read_segment(manifest: &Manifest, segment: &Segment) -> anyhow::Result<Vec<Row>> {
    let path = manifest.folder.join(&segment.file);
    read_checked(manifest, segment)
        .with_context(|| format!("{}, segment of table {}", path.display(), segment.table))
}

fn read_checked(manifest: &Manifest, segment: &Segment) -> anyhow::Result<Vec<Row>> {
    let path = manifest.folder.join(&segment.file);
    let found_bytes = std::fs::metadata(&path)?.len();
    let table = manifest.header.tables.iter();
    let table = table.clone().find(|table| table.role == segment.table);
    let families: Arc<[String]> = table.context("no such table")?.families.clone().into();
    ensure!(
        found_bytes <= segment.file_bytes,
        "offset {}: the file has {found_bytes} bytes, the manifest {}",
        segment.file_bytes,
        segment.file_bytes
    );
    let file = std::fs::read(&path)?;
    let checksum = crc32fast::hash(&file);
    let decoded = segment::decode(&file, segment.bytes, &families);
    if found_bytes < segment.file_bytes {
        let detail = decoded
            .err()
            .map(|error| format!("; {error}"))
            .unwrap_or_default();
        anyhow::bail!(
            "truncated: the file has {found_bytes} bytes, the manifest {}{detail}",
            segment.file_bytes
        );
    }
    let rows = decoded?;
    // A whole segment, but of another export.
    ensure!(
        checksum == segment.crc32,
        "offset 0: the file has the checksum {checksum:08x}, the manifest {:08x}: damaged, or of another export",
        segment.crc32
    );
    let first = rows.first().map(Row::key).unwrap_or_default();
    let last = rows.last().map(Row::key).unwrap_or_default();
    let cells: usize = rows.iter().map(Row::len).sum();
    let actual = (u64::try_from(rows.len())?, u64::try_from(cells)?, first, last);
    ensure!(
        actual == (segment.rows, segment.cells, &segment.first[..], &segment.last[..]),
        "offset 0: {} rows and {} cells from {} to {}, the manifest has {} and {} from {} to {}",
        actual.0,
        actual.1,
        hex::encode(first),
        hex::encode(last),
        segment.rows,
        segment.cells,
        hex::encode(&segment.first),
        hex::encode(&segment.last)
    );
    Ok(rows)
}
