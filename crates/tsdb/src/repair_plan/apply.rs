//! Applies a plan, or makes changes back.

use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use indicatif::ProgressBar;
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::file::format_of;
use super::rejected::has_no_effect;
use super::repair::{Applied, Repair};
use super::undo::UndoWriter;
use super::{plan, undo};

/// Repairs of one request.
const BATCH: usize = 256;

/// Changes of a request with several repairs.
const BATCH_CHANGES: usize = 4096;

/// Bytes of a request with several repairs.
const BATCH_BYTES: usize = 1 << 20;

/// The repairs of a file.
type Repairs<R> = Box<dyn Iterator<Item = anyhow::Result<<R as Repair>::Stored>> + Send>;

/// Applies the repairs of a file, in batches. Records how to undo them in `undo`, which a plan needs.
///
/// # Errors
///
/// A file cannot be read or written, or a call fails.
pub(crate) async fn apply<R: Repair>(
    server: &Server<R::Client>,
    file: &Path,
    undo: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let format = format_of(file)?;
    let is_plan = if format == R::PLAN {
        true
    } else if format == R::UNDO {
        false
    } else {
        bail!("{}: `{format}` is neither a plan nor a record", file.display());
    };
    if is_plan && undo.is_none() {
        bail!("missing --undo FILE, the record of how to make the changes of the plan back");
    }
    // All lines are checked before the first change.
    let mut planned = 0;
    for repair in repairs::<R>(file, is_plan)? {
        R::checked(repair, file)?;
        planned += 1;
    }
    let mut run = Run {
        server,
        undo: undo.map(UndoWriter::create::<R>).transpose()?,
        bar: progress::progress(),
        planned,
        applied: 0,
        unchanged: 0,
        rejected: 0,
    };
    run.show_progress();
    let mut batch: Vec<R> = Vec::new();
    let (mut changes, mut bytes) = (0, 0);
    for repair in repairs::<R>(file, is_plan)? {
        let repair = R::checked(repair, file)?;
        let (count, size) = (repair.changes(), repair.byte_len());
        let is_full = batch.len() == BATCH || changes + count > BATCH_CHANGES || bytes + size > BATCH_BYTES;
        if is_full && !batch.is_empty() {
            run.send(std::mem::take(&mut batch)).await?;
            (changes, bytes) = (0, 0);
        }
        changes += count;
        bytes += size;
        batch.push(repair);
    }
    if !batch.is_empty() {
        run.send(batch).await?;
    }
    run.finish()
}

fn repairs<R: Repair>(file: &Path, is_plan: bool) -> anyhow::Result<Repairs<R>> {
    Ok(if is_plan {
        Box::new(plan::repairs::<R>(file)?)
    } else {
        Box::new(undo::repairs::<R>(file)?)
    })
}

/// The repairs that are being made, with counts of their results.
struct Run<'a, R: Repair> {
    server: &'a Server<R::Client>,
    undo: Option<UndoWriter>,
    bar: ProgressBar,
    planned: u64,
    applied: u64,
    unchanged: u64,
    rejected: u64,
}

impl<R: Repair> Run<'_, R> {
    /// Records how to undo repairs, and makes them.
    async fn send(&mut self, batch: Vec<R>) -> anyhow::Result<()> {
        let first = self.undo.as_mut().map(|undo| undo.record(&batch)).transpose()?;
        let titles: Vec<String> = batch.iter().map(R::title).collect();
        let results = R::send(&self.server.client, batch).await;
        let results = results.map_err(|error| self.server.error(R::COMMAND, &error))?;
        for (number, (title, result)) in (first.unwrap_or(0)..).zip(titles.iter().zip(results)) {
            match result {
                Ok(Applied::Changed) => self.applied += 1,
                Ok(Applied::Unchanged) => self.unchanged += 1,
                Err(rejection) => {
                    self.rejected += 1;
                    self.bar.suspend(|| eprintln!("{title}: {rejection}"));
                    if has_no_effect(&rejection)
                        && let Some(undo) = &mut self.undo
                    {
                        undo.not_applied(number)?;
                    }
                }
            }
        }
        self.show_progress();
        Ok(())
    }

    fn show_progress(&self) {
        let done = self.applied + self.unchanged + self.rejected;
        self.bar
            .set_message(format!("{done} of {} repairs", self.planned));
    }

    /// Syncs the record, and prints the counts.
    fn finish(mut self) -> anyhow::Result<ExitCode> {
        if let Some(undo) = &mut self.undo {
            undo.sync()?;
        }
        self.bar.finish_and_clear();
        print(&format!(
            "{} repairs applied, {} unchanged, {} rejected\n",
            self.applied, self.unchanged, self.rejected
        ))?;
        Ok(ExitCode::from(u8::from(self.rejected > 0)))
    }
}
