//! `tsdb import --into`: an export becomes rows of a store.
//!
//! Segments are written in their order. Each is checked as a whole before its first row is written, and noted in the
//! file of progress after the store has confirmed all of it. Puts have the timestamps of the export and may be repeated,
//! so a segment that a crash has interrupted is written again.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use futures::TryStreamExt as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oxtsdb_command::stdout::print;
use oxtsdb_command::table_args::TableArgs;
use oxtsdb_row_store::{ColumnSelection, Row, Scan, WriteBatch};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::manifest::{Manifest, Segment};
use super::place::{self, OpenStore, OpenTable, Place};
use super::source::read_segment;

/// Bytes of cells that are written at once.
const BATCH_BYTES: usize = 4 << 20;

/// Keys that are looked up at once.
const KEYS_AT_ONCE: usize = 256;

/// Import of an export.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Import of an export")]
pub(crate) struct IntoArgs {
    /// Write the export FILE, a folder of `tsdb export`, into this store, without a server:
    /// hbase-quorum:HOST[:PORT][,...][/ZNODE], hbase-masters:HOST[:PORT][,...], hbase:HOST:PORT[,...] (Thrift) or
    /// embedded:DIR
    #[arg(long, value_name = "STORE")]
    pub(crate) into: Option<Place>,

    /// Allow tables that have rows; the rows of the export are put over theirs
    #[arg(long, requires = "into")]
    overwrite: bool,

    /// File that notes imported segments, to resume [default: import.jsonl in the folder of the export]
    #[arg(long, requires = "into", value_name = "FILE")]
    progress: Option<PathBuf>,

    #[command(flatten)]
    tables: TableArgs,
}

/// Imports an export into a store.
///
/// # Errors
///
/// The export is damaged, the store has other rows or another layout, or cannot be written. Running it again resumes.
pub(crate) async fn run(args: IntoArgs, folders: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let [folder] = folders else {
        bail!("--into: expected one folder of an export, not {}", folders.len());
    };
    let into = args.into.context("--into is needed")?;
    let manifest = Manifest::complete(folder)?;
    let at = || folder.display().to_string();
    place::check(&args.tables, &manifest.header).with_context(at)?;
    let path = args.progress.unwrap_or_else(|| folder.join("import.jsonl"));
    let store = into.open_store(&args.tables, true).await?;
    let mut progress = Progress::open(&path, &manifest, &into)?;
    check_tables(&store, &manifest)?;
    if progress.done.is_empty() {
        if !args.overwrite {
            check_empty(&store, &manifest).await?;
        }
    } else {
        let done = check_imported(&store, &manifest, &progress).await;
        done.with_context(|| {
            format!(
                "{}: the store lacks imported rows, remove this file",
                path.display()
            )
        })?;
    }
    progress.begin()?;
    let bar = bar(manifest.sums().0);
    let imported = import(&store, Arc::new(manifest.clone()), &mut progress, &bar).await;
    bar.finish_and_clear();
    imported?;
    store.close().await?;
    let (rows, cells) = manifest.sums();
    print(&format!("{into}: {rows} rows, {cells} cells\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the segments that are not noted as imported.
async fn import(
    store: &OpenStore,
    manifest: Arc<Manifest>,
    progress: &mut Progress,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let is_done = |segment: &&Segment| progress.done.contains(&segment.file);
    let skipped = manifest.segments.iter().filter(is_done);
    bar.set_position(skipped.map(|segment| segment.rows).sum());
    let left: Vec<Segment> = manifest
        .segments
        .iter()
        .filter(|segment| !is_done(segment))
        .cloned()
        .collect();
    // The next segment is read while one is written.
    let (sender, mut receiver) = mpsc::channel(1);
    let reading = tokio::task::spawn_blocking(move || {
        for segment in left {
            let rows = read_segment(&manifest, &segment);
            let is_last = rows.is_err();
            if sender.blocking_send((segment, rows)).is_err() || is_last {
                return;
            }
        }
    });
    while let Some((segment, rows)) = receiver.recv().await {
        let rows = rows?;
        let table = store.tables.iter().find(|table| table.role == segment.table);
        let table = table.with_context(|| format!("the store has no table `{}`", segment.table))?;
        let written = write(table, &rows, bar).await;
        written.with_context(|| format!("write segment {} to table `{}`", segment.file, table.name()))?;
        progress.done(&segment.file)?;
    }
    reading.await?;
    Ok(())
}

/// Puts rows, with the timestamps of their cells.
async fn write(table: &OpenTable, rows: &[Row], bar: &ProgressBar) -> anyhow::Result<()> {
    let mut rows = rows.iter().peekable();
    while rows.peek().is_some() {
        let mut batch = WriteBatch::new(table.name().clone());
        let mut count = 0;
        while batch.byte_len() < BATCH_BYTES
            && let Some(row) = rows.next()
        {
            batch.row(row.key());
            for cell in row.cells() {
                let family = batch.family(cell.family);
                batch.put_at(family, cell.qualifier, cell.timestamp_ms, cell.value);
            }
            count += 1;
        }
        table.store.write(batch).await?;
        bar.inc(count);
    }
    Ok(())
}

/// Checks that the store has the tables and families of the export.
fn check_tables(store: &OpenStore, manifest: &Manifest) -> anyhow::Result<()> {
    for header in &manifest.header.tables {
        let table = store.tables.iter().find(|table| table.role == header.role);
        let table = table.with_context(|| format!("the store has no table `{}`", header.role))?;
        let families = table.families();
        let missing = header.families.iter().find(|family| !families.contains(family));
        if let Some(missing) = missing {
            let has_cells = manifest
                .segments
                .iter()
                .any(|segment| segment.table == header.role);
            ensure!(
                !has_cells,
                "table `{}` has no family `{missing}`, which the export has",
                table.name()
            );
        }
    }
    Ok(())
}

/// Rejects a store that has rows in tables of the export.
async fn check_empty(store: &OpenStore, manifest: &Manifest) -> anyhow::Result<()> {
    for table in &store.tables {
        if !manifest
            .segments
            .iter()
            .any(|segment| segment.table == table.role)
        {
            continue;
        }
        let mut scan = Scan::range([], []);
        scan.limit = Some(1);
        let mut rows = table.store.scan(table.name(), scan).await?;
        let first = rows.try_next().await?.and_then(|rows| rows.into_iter().next());
        if let Some(row) = first {
            bail!(
                "table `{}` has rows (the first is {}): its UIDs may be other names'; --overwrite writes over them",
                table.name(),
                hex::encode(row.key())
            );
        }
    }
    Ok(())
}

/// Checks that the store has the first and the last row of the segments that are noted as imported.
async fn check_imported(store: &OpenStore, manifest: &Manifest, progress: &Progress) -> anyhow::Result<()> {
    for table in &store.tables {
        let segments = manifest.segments.iter();
        let done =
            segments.filter(|segment| segment.table == table.role && progress.done.contains(&segment.file));
        let keys: Vec<Vec<u8>> = done
            .flat_map(|segment| [segment.first.clone(), segment.last.clone()])
            .collect();
        for keys in keys.chunks(KEYS_AT_ONCE) {
            let rows = table
                .store
                .get_rows(table.name(), keys, &ColumnSelection::All, None)
                .await?;
            let missing = keys.iter().zip(rows).find(|(_, row)| row.is_none());
            if let Some((key, _)) = missing {
                bail!("table `{}` has no row {}", table.name(), hex::encode(key));
            }
        }
    }
    Ok(())
}

/// The segments that were imported, in a file of JSON lines.
#[derive(Debug)]
struct Progress {
    path: PathBuf,
    head: Head,
    done: BTreeSet<String>,
    /// Bytes of complete lines.
    complete_bytes: usize,
    file: Option<File>,
}

/// Which import the file is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    export: String,
    into: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Import(Head),
    Done(String),
}

impl Progress {
    /// Reads the file, if there is one.
    ///
    /// # Errors
    ///
    /// If it is of another import.
    fn open(path: &Path, manifest: &Manifest, into: &Place) -> anyhow::Result<Self> {
        let at = || path.display().to_string();
        let head = Head {
            export: manifest.header.id.clone(),
            into: into.to_string(),
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(at),
        };
        let mut progress = Self {
            path: path.to_owned(),
            head,
            done: BTreeSet::new(),
            complete_bytes: 0,
            file: None,
        };
        for (number, line) in text.split_inclusive('\n').enumerate() {
            if !line.ends_with('\n') {
                break;
            }
            progress.complete_bytes += line.len();
            let at = || format!("{}, line {}", path.display(), number + 1);
            match serde_json::from_str(line).with_context(at)? {
                Line::Import(head) if number == 0 => ensure!(
                    head == progress.head,
                    "{}: of an import of export {} into {}: name another file with --progress",
                    path.display(),
                    head.export,
                    head.into
                ),
                Line::Done(file) if number > 0 => {
                    progress.done.insert(file);
                }
                Line::Import(_) | Line::Done(_) => bail!("{}: out of order", at()),
            }
        }
        Ok(progress)
    }

    /// Opens the file for appending.
    fn begin(&mut self) -> anyhow::Result<()> {
        let at = || self.path.display().to_string();
        let file = OpenOptions::new().create(true).append(true).open(&self.path);
        let file = file.with_context(at)?;
        file.set_len(u64::try_from(self.complete_bytes)?)
            .with_context(at)?;
        self.file = Some(file);
        if self.complete_bytes == 0 {
            self.append(&Line::Import(self.head.clone()))?;
        }
        Ok(())
    }

    /// Notes that a segment is in the store.
    fn done(&mut self, file: &str) -> anyhow::Result<()> {
        self.append(&Line::Done(file.to_owned()))?;
        self.done.insert(file.to_owned());
        Ok(())
    }

    fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        let line = serde_json::to_string(line)? + "\n";
        let file = self.file.as_mut().context("the file of progress is not open")?;
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        written.with_context(|| self.path.display().to_string())
    }
}

/// Rows of all segments; drawn only on a terminal.
fn bar(rows: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(rows), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} rows {elapsed} (still {eta})");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
