//! The store of points.

use std::sync::Arc;

use oxtsdb_ingest::Writer;
use oxtsdb_point_store::{FIGURES, PointStore};
use oxtsdb_query::Engine;
use oxtsdb_row_store::StoreControl;
use oxtsdb_server::metrics::Metrics;

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
        if let Some(values) = points.as_ref().and_then(|points| points.figures()) {
            figures.table(FIGURES, &values);
        }
        if let Some(timings) = points.as_ref().and_then(|points| points.timings()) {
            figures.durations_by(
                "store_work_seconds",
                "How long the work of the store takes: a sync of the journal, a flush, a merge",
                "work",
                timings.by_work(),
            );
        }
    });
}

/// Faults that an operator has to repair although the store serves.
pub(super) fn notes(points: &dyn PointStore) -> Vec<String> {
    let figures = points
        .figures()
        .filter(|figures| figures.clock.needs_confirmation);
    let note = figures.map(|figures| {
        let days = figures.clock.held_back_ms / (24 * 60 * 60 * 1000);
        format!(
            "retention drops no points: the clock is {days} days ahead of the time at which the store was last used, more \
             than --retention; set it right, or restart with --confirm-clock and today's date"
        )
    });
    note.into_iter().collect()
}
