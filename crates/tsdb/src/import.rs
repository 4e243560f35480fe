//! `tsdb import`: files in OpenTSDB's text format.
//!
//! ```text
//!   lines ─► batch ─► channel ─► sender ─► WriteStream
//!   └─── own thread ───┘         frames, window, acks, resending
//! ```

mod batch;
mod frame;
mod line;
mod lines;
mod reader;
mod report;
mod sender;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::mpsc;

use crate::cli::DataTarget;
use reader::FileReader;
use report::Report;
use sender::{Sender, Session};

/// Batches that are read ahead of what is sent.
const BATCHES_AHEAD: usize = 4;

/// Write points from files in OpenTSDB's text format
///
/// A line is `METRIC TIMESTAMP VALUE TAGK=TAGV [TAGK=TAGV ...]`, with or without `put ` before it.
/// Timestamps are seconds, or milliseconds (also as 1346846400.250); whole seconds are stored as
/// seconds. Values without `.`, `e` and `E` are integers; all others are stored in 4 bytes if that
/// loses nothing, else in 8 (OpenTSDB's import always takes 4, and 0.1 becomes 0.10000000149).
///
/// A line that is rejected does not stop the others. At the end standard output has one line,
/// `N points in S s (R points/s), E lines rejected`, and standard error the rejected lines as
/// `FILE:LINE: reason`. What is counted is stored durably. A broken connection is taken up again,
/// and what was not acknowledged is sent once more, which changes nothing if it was stored.
///
/// Exit status: 0 if all lines are stored, 1 if one was rejected or a file could not be read.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Write all rejected lines to this file, as FILE:LINE: reason
    #[arg(long, value_name = "FILE")]
    errors: Option<PathBuf>,

    /// While the data service is unavailable try again for so long, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,

    /// Files to read, plain or gzip (known by its first bytes); `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Imports all files.
///
/// # Errors
///
/// If the data service fails for good. What was stored until then is printed before.
pub(crate) async fn run(args: ImportArgs) -> anyhow::Result<ExitCode> {
    let target = args.target.open()?;
    let report = Arc::new(Mutex::new(Report::new(args.files.clone(), args.errors.as_ref())?));
    let session = Session::open(&target)
        .await
        .map_err(|status| target.error("import", &status))?;
    let start = Instant::now();
    let progress = progress_bar(&args.files);

    let (batches, mut receiver) = mpsc::channel(BATCHES_AHEAD);
    let reader = FileReader {
        files: args.files,
        report: Arc::clone(&report),
        max_series: session.max_series(),
        max_points: session.window_points(),
        batches,
        progress: {
            let progress = progress.clone();
            Arc::new(move |bytes| progress.inc(bytes))
        },
    };
    // Not one of the runtime's threads: those are waited for at the end of the program, and this
    // one may be waiting for somebody to type.
    let reading = std::thread::spawn(move || reader.run());
    let on_ack = {
        let progress = progress.clone();
        let acknowledged = std::sync::atomic::AtomicU64::new(0);
        Box::new(move |points| {
            let before = acknowledged.fetch_add(points, std::sync::atomic::Ordering::Relaxed);
            progress.set_message(format!("{} points", before + points));
        })
    };
    let patience = Duration::from_secs(args.patience);
    let mut sender = Sender::new(target.clone(), Arc::clone(&report), patience, on_ack);
    let sent = sender.run(session, &mut receiver).await;
    if sent.is_ok() && reading.join().is_err() {
        anyhow::bail!("the thread that reads the files failed");
    }
    progress.finish_and_clear();

    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    eprint!("{}", report.rejected_lines());
    println!("{}", summary(report.written, start.elapsed(), report.rejected));
    report.finish().context("write the file of errors")?;
    if let Err(status) = sent {
        let error = target.error("import", &status);
        return Err(match sender.first_unacknowledged() {
            Some((file, line)) => error.context(format!(
                "stopped; not acknowledged from {} on",
                report.place(file, line)
            )),
            None => error,
        });
    }
    Ok(if report.rejected + report.broken_files == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
