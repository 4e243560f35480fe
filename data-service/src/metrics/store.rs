//! The store of points.

use std::sync::Arc;

use oxtsdb_ingest::Writer;
use oxtsdb_point_store::{Figures as StoreFigures, PointStore};
use oxtsdb_query::Engine;
use oxtsdb_row_store::StoreControl;
use oxtsdb_server::metrics::{Figures, Metrics};

pub(super) fn report(metrics: &Metrics, engine: &Engine, writer: Writer) {
    let storage = engine.storage();
    let points = storage.reader.columns().cloned();
    let store: Arc<dyn StoreControl> = storage.store.clone();
    let skipped_cells = engine.skipped_cells();
    metrics.collect(move |figures| {
        figures.gauge(
            "store_damaged_ranges",
            "Ranges of rows that were lost to damage; all others are served",
            store.damage().len() as u64,
        );
        figures.counter(
            "points_before_retention",
            "Points rejected because they are older than --retention",
            writer.too_old_points(),
        );
        figures.counter(
            "query_skipped_cells",
            "Cells without points that queries have skipped",
            skipped_cells.load(std::sync::atomic::Ordering::Relaxed),
        );
        if let Some(of_points) = points.as_ref().and_then(|points| points.figures()) {
            report_points(figures, &of_points);
        }
        if let Some(timings) = points.as_ref().and_then(|points| points.timings()) {
            figures.durations_by(
                "store_work_seconds",
                "How long the work of the store takes: a sync of the journal, a flush, a merge",
                "work",
                [
                    ("sync", timings.sync.counts()),
                    ("flush", timings.flush.counts()),
                    ("merge", timings.merge.counts()),
                ],
            );
        }
    });
}

/// What an operator has to repair although the store serves.
pub(super) fn notes(points: &dyn PointStore) -> Vec<String> {
    let figures = points
        .figures()
        .filter(|figures| figures.clock_needs_confirmation);
    let note = figures.map(|figures| {
        let days = figures.clock_held_back_ms / (24 * 60 * 60 * 1000);
        format!(
            "retention drops no points: the clock is {days} days ahead of the time at which the store was last used, more \
             than --retention; set it right, or restart with --confirm-clock and today's date"
        )
    });
    note.into_iter().collect()
}

fn report_points(figures: &mut Figures<'_>, of: &StoreFigures) {
    for (name, help, value) in [
        ("store_series", "Series", of.series),
        ("store_points", "Points in parts", of.points),
        ("store_parts", "Parts, which are files of points", of.parts),
        ("store_part_bytes", "Bytes of parts", of.bytes),
        (
            "store_merge_debt_bytes",
            "Bytes that merges will read until the sizes of parts are in order",
            of.merge_debt_bytes,
        ),
        (
            "store_journal_bytes",
            "Bytes of the journal of points that are in no part",
            of.journal_bytes,
        ),
        (
            "store_memory_bytes",
            "Memory of points that are in no part, of series and of indexes",
            of.memory_bytes,
        ),
        (
            "store_disk_reserve_bytes",
            "Free space of the disk under which merges stop; under half of it writes are rejected",
            of.disk_reserve_bytes,
        ),
    ] {
        figures.gauge(name, help, value);
    }
    figures.gauge(
        "store_clock_held_back_seconds",
        "How far the system's clock is ahead of the one that retention follows",
        of.clock_held_back_ms / 1000,
    );
    if let Some(free) = of.disk_free_bytes {
        figures.gauge("store_disk_free_bytes", "Free space of the disk", free);
    }
    for (name, help, value) in [
        (
            "store_flushes",
            "Flushes of points in memory to parts",
            of.flushes,
        ),
        ("store_merges", "Merges of parts", of.merges),
        ("store_failed_merges", "Merges that failed", of.failed_merges),
        (
            "store_journal_written_bytes",
            "Bytes written to the journal",
            of.journal_bytes_written,
        ),
        (
            "store_merge_read_bytes",
            "Bytes read by merges",
            of.merge_bytes_read,
        ),
        (
            "store_merge_written_bytes",
            "Bytes written by merges",
            of.merge_bytes_written,
        ),
        (
            "store_dropped_days",
            "Days of points that the retention dropped",
            of.dropped_days,
        ),
        ("store_clock_jumps", "Jumps of the system's clock", of.clock_jumps),
    ] {
        figures.counter(name, help, value);
    }
}
