//! The compaction thread: one compaction of the row blocks after each flush.

use std::time::Duration;

use super::blocks::BlockError;
use super::compaction_state::Ended;
use super::core::Core;
use super::descriptors::{self, Spare};
use crate::StoreError;

/// How long after a failure a compaction is tried again, and a tree opened that could not be.
const RETRY: Duration = Duration::from_secs(10);

/// Compacts until the store stops.
pub(super) fn run(core: &Core) {
    let compaction = &core.compaction;
    let _ended = Ended::of(compaction);
    // The bytes that were free when a compaction last filled the disk.
    let mut full_at = None;
    let mut spare = Spare::new(core.folder.lock_file(), descriptors::COMPACTION);
    loop {
        {
            let mut state = compaction.state.lock();
            while !state.requested && !state.stopping {
                let waited = compaction.changed.wait_for(&mut state, RETRY);
                let is_due = || state.error.is_some() || core.blocks.check().is_err();
                state.requested |= waited.timed_out() && is_due();
            }
            if state.stopping {
                return;
            }
            state.requested = false;
        }
        let result = spare.lend(|| compact(core, &mut full_at));
        let mut state = compaction.state.lock();
        let is_new =
            result.as_ref().err().map(ToString::to_string) != state.error.as_ref().map(ToString::to_string);
        match &result {
            Err(error) if is_new => {
                tracing::error!(%error, "cannot compact row blocks; reads get slower until it is possible");
            }
            Ok(()) if is_new => tracing::info!("row blocks can be compacted again"),
            _ => {}
        }
        state.error = result.err();
    }
}

/// Runs a compaction, and sets aside the damage that it meets.
fn compact(core: &Core, full_at: &mut Option<u64>) -> Result<(), StoreError> {
    core.blocks.heal()?;
    let available = core.blocks.available()?;
    if let Some(full_at) = *full_at
        && available <= full_at
    {
        return Err(StoreError::Full {
            place: core.folder.blocks().display().to_string(),
        });
    }
    let result = core
        .blocks
        .with_repair(|| core.blocks.compact().inspect_err(log_fault));
    *full_at = None;
    if matches!(result, Err(StoreError::Full { .. })) {
        // What it wrote until then is of no use, and would be left there.
        *full_at = Some(available);
        core.blocks.reopen_all()?;
    }
    result
}

fn log_fault(error: &BlockError) {
    if let BlockError::Damaged(_) = error {
        tracing::warn!("a compaction met damaged row blocks; looking for the file");
    }
}
