//! The compaction thread: runs a compaction of the row blocks after each flush.

use std::time::Duration;

use super::blocks::BlockError;
use super::compaction_state::Ended;
use super::core::Core;
use super::descriptors::{self, Spare};
use crate::StoreError;

/// The delay before a failed compaction, or a failed attempt to open the tree, is retried.
const RETRY: Duration = Duration::from_secs(10);

/// Compacts until the store stops.
pub(super) fn run(core: &Core) {
    let compaction = &core.compaction;
    let _ended = Ended::of(compaction);
    // Free bytes when a compaction last filled the disk.
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
                tracing::error!(%error, "cannot compact row blocks; reads slow down until compaction succeeds");
            }
            Ok(()) if is_new => tracing::info!("row blocks can be compacted again"),
            _ => {}
        }
        state.error = result.err();
    }
}

/// Runs a compaction, and repairs the damage that it encounters.
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
        // Removes its partial output.
        *full_at = Some(available);
        core.blocks.reopen_all()?;
    }
    result
}

fn log_fault(error: &BlockError) {
    if let BlockError::Damaged(_) = error {
        tracing::warn!("compaction encountered damaged row blocks; locating the file");
    }
}
