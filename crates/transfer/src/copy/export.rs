//! `tsdb export`: all tables of a store as segments.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use futures::TryStreamExt as _;
use futures::future::LocalBoxFuture;
use indicatif::ProgressBar;
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::table_args::TableArgs;
use tokio::sync::mpsc;

use super::manifest::{End, Header, Manifest, ManifestWriter, Segment, TableHeader};
use super::place::{self, OpenStore, Place};
use super::segment::SegmentWriter;
use super::source;

/// Export all tables of a store to a folder
///
/// Writes rows and cells as they are stored: points, annotations and all other cells, names and UIDs, metadata and
/// trees, and the rollups of --rollups-config. The format is open and described in docs/export.md. `tsdb import --into` writes an export into a store,
/// `tsdb compare` compares it with one.
///
/// Calls no server. HBase may be written to meanwhile: rows that change are exported before or after the change. A
/// data folder must not be in use; of a running server, export a restored snapshot (`tsdb snapshot`, `tsdb restore`).
///
/// An export that was interrupted is resumed by the same command. Exit status: 0 if the export is complete.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The store: hbase-quorum:HOST[:PORT][,...][/ZNODE], hbase-masters:HOST[:PORT][,...], hbase:HOST:PORT[,...] (Thrift)
    /// or embedded:DIR
    #[arg(value_name = "STORE")]
    from: Place,

    /// The folder of the export, empty or absent, or of an interrupted export
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// Uncompressed size of a segment, MiB; its last row may exceed it. An import holds three segments in memory
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    segment_mib: u32,

    #[command(flatten)]
    tables: TableArgs,
}

impl ExportArgs {
    fn segment_bytes(&self) -> anyhow::Result<usize> {
        Ok(usize::try_from(self.segment_mib)? << 20)
    }
}

/// A segment to write.
type Pending = (String, SegmentWriter);

/// Exports all tables.
///
/// # Errors
///
/// The store cannot be read, or the folder cannot be written. Running it again resumes.
pub fn run(args: ExportArgs) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(execute(args))
}

async fn execute(args: ExportArgs) -> anyhow::Result<ExitCode> {
    let store = args.from.open_store(&args.tables, false).await?;
    let (manifest, writer) = begin(&args, &store)?;
    let bar = progress::progress();
    let (sender, receiver) = mpsc::channel(1);
    let writing = tokio::task::spawn_blocking({
        let (manifest, bar) = (manifest.clone(), bar.clone());
        move || write_segments(receiver, manifest, writer, &bar)
    });
    let scanned = match manifest.end {
        Some(_) => Ok(true),
        None => scan(&store, &manifest, args.segment_bytes()?, sender.clone()).await,
    };
    drop(sender);
    // Without all rows the thread must not write the end.
    let written = writing.await?;
    bar.finish_and_clear();
    let (mut manifest, writer) = written?;
    let is_complete = scanned?;
    ensure!(is_complete, "the thread that writes segments has ended");
    store.close().await?;
    if manifest.end.is_none() {
        let (rows, cells) = manifest.sums();
        let end = End { rows, cells };
        let mut writer = writer;
        writer.end(end.clone())?;
        manifest.end = Some(end);
    }
    print(&summary(&manifest))?;
    Ok(ExitCode::SUCCESS)
}

fn summary(manifest: &Manifest) -> String {
    let mut text = String::new();
    for table in &manifest.header.tables {
        let segments = manifest.segments.iter();
        let of_table = segments.filter(|segment| segment.table == table.role);
        let (mut rows, mut cells, mut bytes) = (0, 0, 0);
        for segment in of_table {
            rows += segment.rows;
            cells += segment.cells;
            bytes += segment.file_bytes;
        }
        text += &format!("{}: {rows} rows, {cells} cells, {bytes} bytes\n", table.name);
    }
    text
}

/// Begins an export, or resumes the one that the folder has.
fn begin(args: &ExportArgs, store: &OpenStore) -> anyhow::Result<(Manifest, ManifestWriter)> {
    let folder = &args.folder;
    let rollups = place::rollups(&args.tables)?.header;
    let tables: Vec<TableHeader> = store.tables.iter().map(|table| table.header()).collect();
    let source = args.from.to_string();
    if let Some(manifest) = Manifest::read(folder)? {
        let header = &manifest.header;
        ensure!(
            header.source == source && header.tables == tables && header.rollups == rollups,
            "{}: an export of {}, with other tables or rollups, or from another place than {source}: use another folder",
            folder.display(),
            header.source
        );
        header.check_layout(&args.tables.layout()?)?;
        let writer = ManifestWriter::resume(&manifest)?;
        return Ok((manifest, writer));
    }
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let mut entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    // A crash may have left a manifest without a line.
    let other = entries.find_map(|entry| {
        let name = entry.ok()?.file_name();
        (name != super::manifest::FILE).then_some(name)
    });
    ensure!(
        other.is_none(),
        "{}: is not empty and not an export",
        folder.display()
    );
    let header = Header::new(source, &args.tables.layout()?, rollups, tables)?;
    let writer = ManifestWriter::create(folder, &header)?;
    let manifest = Manifest::read(folder)?.context("the manifest is gone")?;
    Ok((manifest, writer))
}

/// Passes the rows that the manifest lacks to the writer, as segments; `false` if it has ended.
async fn scan(
    store: &OpenStore,
    manifest: &Manifest,
    segment_bytes: usize,
    segments: mpsc::Sender<Pending>,
) -> anyhow::Result<bool> {
    let last = manifest.segments.last();
    let begin = last.and_then(|last| store.tables.iter().position(|table| table.role == last.table));
    for (index, table) in store.tables.iter().enumerate().skip(begin.unwrap_or(0)) {
        let after = last.filter(|_| begin == Some(index)).map(|last| &last.last[..]);
        let families = table.families();
        let mut rows = source::scan(table, after).await?;
        let mut segment = SegmentWriter::new();
        while let Some(batch) = rows.try_next().await? {
            for row in &batch {
                segment.push(row, &families)?;
                if segment.len() < segment_bytes {
                    continue;
                }
                let full = std::mem::replace(&mut segment, SegmentWriter::new());
                if segments.send((table.role.clone(), full)).await.is_err() {
                    return Ok(false);
                }
            }
        }
        if segment.rows > 0 && segments.send((table.role.clone(), segment)).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Compresses and writes segments until there are no more.
fn write_segments(
    mut segments: mpsc::Receiver<Pending>,
    mut manifest: Manifest,
    mut writer: ManifestWriter,
    bar: &ProgressBar,
) -> anyhow::Result<(Manifest, ManifestWriter)> {
    while let Some((table, segment)) = segments.blocking_recv() {
        let Some((first, last)) = segment.keys.clone() else {
            continue;
        };
        let file = segment.compress()?;
        let number = manifest.segments.len();
        let line = Segment {
            file: format!("{number:06}-{table}.gz"),
            table: table.clone(),
            first,
            last,
            rows: segment.rows,
            cells: segment.cells,
            bytes: segment.len(),
            file_bytes: u64::try_from(file.len())?,
            crc32: crc32fast::hash(&file),
        };
        writer.segment(&line, &file)?;
        manifest.segments.push(line);
        let (rows, cells) = manifest.sums();
        bar.set_message(format!("{table}: {rows} rows, {cells} cells"));
    }
    Ok((manifest, writer))
}
