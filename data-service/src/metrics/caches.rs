//! Caches of series, names and pages, and the service that they are filled from.

use oxtsdb_ingest::Writer;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_server::metrics::Metrics;

pub(super) fn report(metrics: &Metrics, writer: Writer, uids: Uids) {
    metrics.collect(move |figures| {
        let series = writer.series_cache();
        let names = uids.cached_entries().iter().map(|(_, entries)| entries).sum();
        figures.gauge_by(
            "cache_entries",
            "Entries of a cache",
            "cache",
            [("series", series.entries), ("names", names)],
        );
        let pages = writer
            .point_figures()
            .map(|figures| ("pages", figures.page_cache_bytes));
        let bytes = [("series", series.bytes), ("names", uids.cached_bytes())];
        figures.gauge_by(
            "cache_bytes",
            "Memory of a cache",
            "cache",
            bytes.into_iter().chain(pages),
        );
        figures.gauge(
            "uid_service_up",
            "0 from a failed call of a write to the UID service until it succeeds",
            u64::from(uids.is_available()),
        );
        let health = uids.uid_health();
        figures.gauge_by(
            "uid_service_blocked",
            "Whether the UID service assigns no UIDs of the kind, because its counter is below a UID that series use",
            "kind",
            health
                .kinds
                .iter()
                .map(|state| (state.kind.as_str(), u64::from(state.is_blocked()))),
        );
        figures.gauge_by(
            "uids_without_name",
            "UIDs of series that the UID service does not know, of all metrics, or 4096 of them, and the highest of tags",
            "kind",
            health.nameless.iter().map(|(kind, count)| (kind.as_str(), *count)),
        );
        figures.counter("series_cache_hits", "Points whose series was cached", series.hits);
        figures.counter(
            "series_cache_misses",
            "Points whose series had to be resolved by the UID service",
            series.misses,
        );
    });
}
