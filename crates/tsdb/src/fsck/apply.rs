//! Applies a plan, or makes changes back.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use indicatif::ProgressBar;
use oxtsdb_client::DataClient;
use oxtsdb_client::proto::data::v1::RowRepair;
use oxtsdb_client::proto::data::v1::repair_rows_response::Effect;

use super::plan::{PLAN, PlanReader, format_of};
use super::undo::{UNDO, UndoReader, UndoWriter};
use crate::rejected_repair::has_no_effect;
use crate::stdout::print;
use crate::target::Server;
use crate::uid::progress;

/// Repairs of one request.
const BATCH: usize = 256;

/// Changes of a request with several repairs.
const BATCH_CHANGES: usize = 4096;

/// Bytes of a request with several repairs.
const BATCH_BYTES: usize = 1 << 20;

/// Changes of a repair, as the server limits them.
const MAX_CHANGES: usize = 65_536;

/// Bytes of a repair: the server's limit of a request, with space for its encoding.
const MAX_BYTES: usize = 31 << 20;

/// What was done.
#[derive(Debug, Default)]
struct Totals {
    applied: u64,
    unchanged: u64,
    rejected: u64,
}

/// Applies the repairs of a file.
///
/// # Errors
///
/// A file cannot be read or written, or a call fails.
pub(super) async fn run(
    server: &Server<DataClient>,
    file: &Path,
    undo: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let format = format_of(file)?;
    let is_plan = match format.as_str() {
        PLAN => true,
        UNDO => false,
        other => bail!("{}: `{other}` is neither a plan nor a record", file.display()),
    };
    if is_plan && undo.is_none() {
        bail!("missing --undo FILE, the record of how to make the changes of the plan back");
    }
    // All lines are checked before the first change.
    let mut planned = 0;
    for repair in repairs(file, is_plan)? {
        let repair = repair.with_context(|| file.display().to_string())?;
        planned += 1;
        ensure!(
            byte_len(&repair) <= MAX_BYTES && repair.changes.len() <= MAX_CHANGES,
            "{}: the repair of row {} is too large: {} changes, {} bytes, at most {MAX_CHANGES} and {MAX_BYTES} are allowed",
            file.display(),
            hex::encode_upper(&repair.row_key),
            repair.changes.len(),
            byte_len(&repair)
        );
    }
    let mut undo = undo.map(UndoWriter::create).transpose()?;
    let bar = progress::progress();
    let mut totals = Totals::default();
    let mut batch: Vec<RowRepair> = Vec::new();
    let (mut changes, mut bytes) = (0, 0);
    for repair in repairs(file, is_plan)? {
        let repair = repair?;
        let size = byte_len(&repair);
        let is_full = batch.len() == BATCH
            || changes + repair.changes.len() > BATCH_CHANGES
            || bytes + size > BATCH_BYTES;
        if is_full && !batch.is_empty() {
            apply(server, std::mem::take(&mut batch), &mut undo, &mut totals, &bar).await?;
            (changes, bytes) = (0, 0);
        }
        changes += repair.changes.len();
        bytes += size;
        batch.push(repair);
        bar.set_message(format!(
            "{} of {planned} repairs",
            totals.applied + totals.unchanged + totals.rejected
        ));
    }
    if !batch.is_empty() {
        apply(server, batch, &mut undo, &mut totals, &bar).await?;
    }
    if let Some(undo) = &mut undo {
        undo.sync()?;
    }
    bar.finish_and_clear();
    print(&format!(
        "{} repairs applied, {} unchanged, {} rejected\n",
        totals.applied, totals.unchanged, totals.rejected
    ))?;
    Ok(ExitCode::from(u8::from(totals.rejected > 0)))
}

type Repairs = Box<dyn Iterator<Item = anyhow::Result<RowRepair>> + Send>;

fn repairs(file: &Path, is_plan: bool) -> anyhow::Result<Repairs> {
    Ok(if is_plan {
        Box::new(PlanReader::open(file)?)
    } else {
        Box::new(UndoReader::open(file)?)
    })
}

async fn apply(
    server: &Server<DataClient>,
    batch: Vec<RowRepair>,
    undo: &mut Option<UndoWriter>,
    totals: &mut Totals,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let first = undo.as_mut().map(|undo| undo.record(&batch)).transpose()?;
    let keys: Vec<String> = batch
        .iter()
        .map(|repair| hex::encode_upper(&repair.row_key))
        .collect();
    let results = server.client.repair_rows(batch).await;
    let results = results.map_err(|error| server.error("fsck", &error))?;
    for (index, (key, result)) in keys.iter().zip(results).enumerate() {
        match result {
            Ok(Effect::Changed) => totals.applied += 1,
            Ok(Effect::Unchanged | Effect::Unspecified) => totals.unchanged += 1,
            Err(rejection) => {
                totals.rejected += 1;
                bar.suspend(|| eprintln!("row {key}: {rejection}"));
                if has_no_effect(&rejection)
                    && let (Some(undo), Some(first)) = (undo.as_mut(), first)
                {
                    undo.not_applied(first + index as u64)?;
                }
            }
        }
    }
    Ok(())
}

fn byte_len(repair: &RowRepair) -> usize {
    let changes = repair.changes.iter();
    let changes: usize = changes
        .map(|change| {
            let value = |value: &Option<_>| value.as_ref().map_or(0, |bytes: &bytes::Bytes| bytes.len());
            64 + change.qualifier.len() + value(&change.old_value) + value(&change.new_value)
        })
        .sum();
    repair.row_key.len() + changes
}
