//! The background thread: merges parts and drops old days.

use std::time::Duration;

use super::core::Core;
use crate::PointStoreError;

/// The pause while there is nothing to merge.
const PAUSE: Duration = Duration::from_millis(500);

/// Works until the store stops.
pub(super) fn run(core: &Core) {
    loop {
        let worked = drop_old_days(core).and_then(|()| merge(core));
        core.errors.lock().merge = worked.as_ref().err().cloned();
        match worked {
            Ok(true) => {}
            Ok(false) => {
                if core.stop.wait(PAUSE) {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "work on parts failed; trying again");
                if core.stop.wait(PAUSE) {
                    return;
                }
            }
        }
        if core.stop.is_set() {
            return;
        }
    }
}

/// Runs one merge; `false` if there is none.
fn merge(core: &Core) -> Result<bool, PointStoreError> {
    let config = &core.config;
    let free = config.disk.free_bytes(&config.path);
    let free = free.map_err(|error| PointStoreError::io(config.path.display(), &error))?;
    let limit = free.saturating_sub(config.reserve_bytes);
    let Some(job) = core.days.next_merge(config.clock.now_ms(), limit) else {
        return Ok(false);
    };
    job.run(&core.pacer)?;
    Ok(true)
}

/// Drops the days before the edge. It follows the clock only as far as there are points: a clock that jumps ahead
/// drops nothing that is not older than the newest points by the retention.
fn drop_old_days(core: &Core) -> Result<(), PointStoreError> {
    if let Some(edge_ms) = core.retention_edge_ms() {
        core.days.drop_before(edge_ms)?;
    }
    Ok(())
}
