//! The background thread: merges parts and drops old days.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::core::Core;
use crate::{Figures, PointStoreError};

/// The pause while there is nothing to merge.
const PAUSE: Duration = Duration::from_millis(500);

/// How often figures are logged.
const REPORT: Duration = Duration::from_secs(600);

/// Works until the store stops.
pub(super) fn run(core: &Core) {
    let mut reported = Instant::now();
    loop {
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            report(&core.figures());
        }
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

fn report(figures: &Figures) {
    let Figures {
        series,
        points,
        parts,
        bytes,
        merge_debt_bytes,
        journal_bytes,
        memory_bytes,
        flushes,
        merges,
        failed_merges,
        dropped_days,
        clock_jumps,
    } = figures;
    tracing::info!(
        series,
        points,
        parts,
        bytes,
        merge_debt_bytes,
        journal_bytes,
        memory_bytes,
        flushes,
        merges,
        failed_merges,
        dropped_days,
        clock_jumps,
        "point store"
    );
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

/// Drops the days before the edge of the retention.
fn drop_old_days(core: &Core) -> Result<(), PointStoreError> {
    let Some(edge_ms) = core.advance_retention() else {
        return Ok(());
    };
    let dropped = core.days.drop_before(edge_ms)?;
    let counters = &core.counters;
    counters
        .dropped_days
        .fetch_add(dropped.days as u64, Ordering::Relaxed);
    counters.dropped_bytes.fetch_add(dropped.bytes, Ordering::Relaxed);
    Ok(())
}
