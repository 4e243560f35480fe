//! The background threads: merge parts, drop old days and indexes that no query uses.

use std::time::{Duration, Instant};

use super::core::{Core, Errors};
use crate::{Figures, PointStoreError};

/// The pause while there is nothing to merge.
const PAUSE: Duration = Duration::from_millis(500);

/// How often figures are logged.
const REPORT: Duration = Duration::from_secs(600);

/// Indexes of metrics that no query has used for so long, or up to twice as long, are dropped.
const INDEX_UNUSED: Duration = Duration::from_secs(3600);

/// The largest merges of the thread that does no others: about the work of a few seconds.
const SMALL_MERGE_BYTES: u64 = 256 << 20;

/// Works until the store stops.
pub(super) fn run(core: &Core) {
    let (mut reported, mut indexes_checked) = (Instant::now(), Instant::now());
    repeat(
        core,
        |errors| &mut errors.merge,
        || {
            if reported.elapsed() >= REPORT {
                reported = Instant::now();
                report(&core.stats().figures);
            }
            if indexes_checked.elapsed() >= INDEX_UNUSED {
                indexes_checked = Instant::now();
                core.series.drop_unused_indexes();
            }
            drop_old_days(core)?;
            merge(core, |free| free)
        },
    );
}

/// Does small merges until the store stops: the parts of flushes would pile up behind the merge of a large day.
pub(super) fn run_small(core: &Core) {
    repeat(
        core,
        |errors| &mut errors.small_merge,
        // Beside a large merge, which may use all that is free.
        || merge(core, |free| SMALL_MERGE_BYTES.min(free / 8)),
    );
}

/// Calls `work` until the store stops, after a pause if it returns that there is nothing to do.
fn repeat(
    core: &Core,
    error_of: impl Fn(&mut Errors) -> &mut Option<PointStoreError>,
    mut work: impl FnMut() -> Result<bool, PointStoreError>,
) {
    while !core.stop.is_set() {
        let worked = work();
        *error_of(&mut core.errors.lock()) = worked.as_ref().err().cloned();
        if let Err(error) = &worked {
            tracing::warn!(%error, "work on parts failed; trying again");
        }
        if !matches!(worked, Ok(true)) {
            core.stop.wait(PAUSE);
        }
    }
}

fn report(figures: &Figures) {
    tracing::info!(
        series = figures.series,
        points = figures.points,
        parts = figures.parts,
        bytes = figures.part_bytes,
        merge_debt_bytes = figures.merge_debt_bytes,
        journal_bytes = figures.journal_bytes,
        memory_bytes = figures.memory_bytes(),
        flushes = figures.counters.flushes.get(),
        merges = figures.merges.completed.get(),
        failed_merges = figures.merges.failed.get(),
        dropped_days = figures.counters.dropped_days.get(),
        clock_jumps = figures.clock.jumps,
        clock_held_back_ms = figures.clock.held_back_ms,
        "point store"
    );
}

/// Runs one merge; `false` if there is none. `limit` returns the most bytes of its parts, of those that are free.
fn merge(core: &Core, limit: impl Fn(u64) -> u64) -> Result<bool, PointStoreError> {
    let config = &core.config;
    let free = config.disk.free_bytes(&config.path);
    let free = free.map_err(|error| PointStoreError::io(config.path.display(), &error))?;
    let limit = limit(free.saturating_sub(config.reserve_bytes));
    let Some(job) = core.days.next_merge(config.clock.now_ms(), limit) else {
        return Ok(false);
    };
    let begun = Instant::now();
    job.run(&core.pacer)?;
    core.timings.merge.observe_since(begun);
    Ok(true)
}

/// Drops the days before the edge of the retention.
fn drop_old_days(core: &Core) -> Result<(), PointStoreError> {
    let Some(edge_ms) = core.advance_retention() else {
        return Ok(());
    };
    let dropped = core.days.drop_before(edge_ms)?;
    core.counters.dropped_days.add(dropped.days as u64);
    core.counters.dropped_bytes.add(dropped.bytes);
    Ok(())
}
