//! Applies a plan, or makes changes back.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use oxtsdb_client::UidClient;
use oxtsdb_client::proto::uid::v1::UidRepair;
use oxtsdb_client::proto::uid::v1::repair_uids_response::Effect;

use super::plan::{PLAN, PlanReader, Repair, format_of};
use super::undo::{UNDO, UndoReader, UndoWriter};
use crate::rejected_repair::has_no_effect;
use crate::stdout::print;
use crate::target::Server;

/// Repairs of one request.
const BATCH: usize = 256;

/// Changes of a request with several repairs.
const BATCH_CHANGES: usize = 4096;

/// Bytes of a request with several repairs.
const BATCH_BYTES: usize = 1 << 20;

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
    server: &Server<UidClient>,
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
    for repair in repairs(file, is_plan)? {
        repair?.message().with_context(|| file.display().to_string())?;
    }
    let mut undo = undo.map(UndoWriter::create).transpose()?;
    let mut totals = Totals::default();
    let mut batch: Vec<UidRepair> = Vec::new();
    let (mut changes, mut bytes) = (0, 0);
    for repair in repairs(file, is_plan)? {
        let repair = repair?.message()?;
        let size = byte_len(&repair);
        let is_full = batch.len() == BATCH
            || changes + repair.changes.len() > BATCH_CHANGES
            || bytes + size > BATCH_BYTES;
        if is_full && !batch.is_empty() {
            apply(server, std::mem::take(&mut batch), &mut undo, &mut totals).await?;
            (changes, bytes) = (0, 0);
        }
        changes += repair.changes.len();
        bytes += size;
        batch.push(repair);
    }
    if !batch.is_empty() {
        apply(server, batch, &mut undo, &mut totals).await?;
    }
    if let Some(undo) = &mut undo {
        undo.sync()?;
    }
    print(&format!(
        "{} repairs applied, {} unchanged, {} rejected\n",
        totals.applied, totals.unchanged, totals.rejected
    ))?;
    Ok(ExitCode::from(u8::from(totals.rejected > 0)))
}

type Repairs = Box<dyn Iterator<Item = anyhow::Result<Repair>> + Send>;

fn repairs(file: &Path, is_plan: bool) -> anyhow::Result<Repairs> {
    Ok(if is_plan {
        Box::new(PlanReader::open(file)?)
    } else {
        Box::new(UndoReader::open(file)?)
    })
}

async fn apply(
    server: &Server<UidClient>,
    batch: Vec<UidRepair>,
    undo: &mut Option<UndoWriter>,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let first = undo.as_mut().map(|undo| undo.record(&batch)).transpose()?;
    let labels: Vec<String> = batch.iter().map(|repair| repair.label.clone()).collect();
    let results = server.client.repair_uids(batch).await;
    let results = results.map_err(|error| server.error("uid fsck", &error))?;
    for (index, (label, result)) in labels.iter().zip(results).enumerate() {
        match result {
            Ok(Effect::Changed) => totals.applied += 1,
            Ok(Effect::Unchanged | Effect::Unspecified) => totals.unchanged += 1,
            Err(rejection) => {
                totals.rejected += 1;
                eprintln!("{label}: {rejection}");
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

fn byte_len(repair: &UidRepair) -> usize {
    let changes = repair.changes.iter();
    changes
        .map(|change| {
            let value = |value: &Option<_>| value.as_ref().map_or(0, |bytes: &bytes::Bytes| bytes.len());
            64 + change.row.len()
                + change.qualifier.len()
                + value(&change.old_value)
                + value(&change.new_value)
        })
        .sum()
}
