//! `tsdb import`: files in OpenTSDB's text format.
//!
//! ```text
//!   lines ─► points ─► channel ─► StreamWriter ─► data service      rollups: calls of WriteRollups
//!   └──── own thread ────┘            └─ acknowledgements ─► progress ─► report
//! ```

mod line;
mod lines;
mod points;
mod progress;
mod reader;
mod report;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use futures::future::LocalBoxFuture;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use oxtsdb_client::{DataClient, Error, StreamOptions, StreamWriter};
use oxtsdb_command::target::DataTarget;
use tokio::sync::mpsc;

use crate::copy::{IntoArgs, run_import};
use points::Batch;
use progress::Progress;
use reader::FileReader;
use report::Report;

/// Batches that are read ahead of what is sent.
const BATCHES_AHEAD: usize = 4;

/// Write points from files in OpenTSDB's text format
///
/// A line is `METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]`, with or without `put ` before it.
/// Timestamps are seconds, or milliseconds (also as 1346846400.250); whole seconds are stored as
/// seconds. Values without `.`, `e` and `E` are integers; all others are stored in 4 bytes if that
/// loses nothing, else in 8 (OpenTSDB's import always takes 4, and 0.1 becomes 0.10000000149).
///
/// A line `rollup INTERVAL-AGGREGATOR[:GROUPBY] METRIC TIMESTAMP VALUE TAGK=TAGV [...]` is a rollup or a pre-aggregate, as
/// telnet takes it; the server needs --rollups-config.
///
/// Rejected lines do not stop the import. At the end, standard output has one line,
/// `N points in S s (R points/s), E lines rejected`, and standard error the rejected lines as
/// `FILE:LINE: reason`. All counted points are durable. After a broken connection, points that are not
/// acknowledged are sent again, which does not change points that are already stored.
///
/// With --into, writes a folder of `tsdb export` into a store instead. The store's tables must be empty; a data folder
/// must not be in use. Cells keep their timestamps. An import that was interrupted is resumed by the same command.
///
/// Exit status: 0 if all lines are stored, 1 if a line was rejected or a file could not be read.
#[derive(Debug, Args)]
pub struct ImportArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Write all rejected lines to this file, as FILE:LINE: reason
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,

    /// How long to retry while the data service is unavailable, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,

    /// Files to read, plain or gzip (detected by their first bytes); `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    into: IntoArgs,
}

/// Imports all files.
///
/// # Errors
///
/// If the data service fails for good. The numbers of points stored until then are printed before.
pub fn run(args: ImportArgs) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    Box::pin(execute(args))
}

async fn execute(args: ImportArgs) -> anyhow::Result<ExitCode> {
    if args.into.into.is_some() {
        return run_import(args.into, &args.files).await;
    }
    if let Some(folder) = args.files.iter().find(|path| path.is_dir()) {
        anyhow::bail!(
            "{}: is a folder; name the store of an export with --into",
            folder.display()
        );
    }
    let server = args.target.data()?;
    let progress = Progress::new(Report::new(args.files.clone(), args.errors.as_ref())?);
    let bar = progress_bar(&args.files);
    let options = options(&progress, &bar, Duration::from_secs(args.patience));
    let writer = server.client.stream_writer(options).await;
    let mut writer = writer.map_err(|error| server.error("import", &error))?;
    let start = Instant::now();

    let (batches, mut receiver) = mpsc::channel(BATCHES_AHEAD);
    let reader = FileReader {
        files: args.files,
        progress: progress.clone(),
        batches,
        on_read: {
            let bar = bar.clone();
            Arc::new(move |bytes| bar.inc(bytes))
        },
    };
    // Not one of the runtime's threads: the runtime waits for those at exit, and this one may block on a
    // terminal.
    let reading = std::thread::spawn(move || reader.run());
    let written = write(&server.client, &mut writer, &mut receiver, &progress).await;
    if written.is_ok() && reading.join().is_err() {
        anyhow::bail!("the thread that reads the files failed");
    }
    bar.finish_and_clear();

    let succeeded = progress.with_report(|report| {
        eprint!("{}", report.rejected_lines());
        println!("{}", summary(report.written, start.elapsed(), report.rejected));
        report.finish().context("write the file of errors")?;
        anyhow::Ok(report.rejected + report.broken_files == 0)
    })?;
    if let Err(error) = written {
        let error = server.error("import", &error);
        return Err(match progress.place(writer.acknowledged()) {
            Some(place) => error.context(format!("stopped; not acknowledged from {place} on")),
            None => error,
        });
    }
    // Otherwise the runtime's end may break the connection under the writer, which would warn of it.
    let closed = writer.close().await;
    closed.map_err(|error| server.error("import", &error))?;
    Ok(if succeeded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn options(progress: &Progress, bar: &ProgressBar, patience: Duration) -> StreamOptions {
    let (failed, acknowledged, bar) = (progress.clone(), progress.clone(), bar.clone());
    StreamOptions::default()
        .patience(patience)
        .on_failure(move |point| failed.failed(&point))
        .on_acknowledged(move |points| {
            acknowledged.acknowledged(points);
            bar.set_message(format!("{} points", points.first_index + points.points));
        })
}

/// Writes all batches, and waits until they are acknowledged.
async fn write(
    client: &DataClient,
    writer: &mut StreamWriter,
    batches: &mut mpsc::Receiver<Batch>,
    progress: &Progress,
) -> Result<(), Error> {
    loop {
        let batch = tokio::select! {
            batch = batches.recv() => batch,
            error = writer.failed() => return Err(error),
        };
        let Some(batch) = batch else { break };
        if !batch.rollups.is_empty() {
            let written = client.write_rollups(batch.rollups.iter().cloned()).await?;
            progress.rollups_written(&batch, &written);
        }
        progress.sending(&batch, writer.sent());
        for point in &batch.points {
            writer.send(&point.series, point.timestamp, point.value).await?;
        }
    }
    writer.flush().await?;
    Ok(())
}

fn summary(points: u64, elapsed: Duration, rejected: u64) -> String {
    let seconds = elapsed.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = points as f64 / seconds.max(1e-9);
    format!("{points} points in {seconds:.3} s ({rate:.0} points/s), {rejected} lines rejected")
}

/// Bytes of all files, if all have a size; drawn only on a terminal.
fn progress_bar(files: &[PathBuf]) -> ProgressBar {
    let sizes = files
        .iter()
        .map(|path| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file))
        .map(|metadata| metadata.map(|metadata| metadata.len()));
    let (bar, template) = match sizes.sum::<Option<u64>>() {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{bar:40} {bytes}/{total_bytes} {msg} {elapsed} (still {eta})",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {msg} {elapsed}"),
    };
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    // The templates are constants, and right; a plain bar would do too.
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_points_time_rate_and_rejected_lines() {
        assert_eq!(
            summary(1_000_000, Duration::from_millis(2500), 3),
            "1000000 points in 2.500 s (400000 points/s), 3 lines rejected"
        );
    }
}
