//! Queries: admission, what they read and return, and how long their stages take.

use oxtsdb_query::Engine;
use oxtsdb_server::metrics::Metrics;

pub(super) fn report(metrics: &Metrics, engine: &Engine) {
    let (totals, admission) = (engine.totals(), engine.resources().admission.clone());
    metrics.collect(move |figures| {
        let usage = admission.usage();
        figures.gauge_by(
            "queries_active",
            "Queries that run, and that wait for a permit",
            "state",
            [("running", usage.running as u64), ("queued", usage.queued as u64)],
        );
        figures.counter(
            "queries_not_admitted",
            "Queries rejected because too many run and wait (--max-concurrent-queries, --max-queued-queries)",
            usage.rejected,
        );
        figures.counter_by("queries", "Queries that have ended", "result", totals.results());
        figures.counter_by(
            "query_read",
            "What queries that succeeded have read and returned",
            "resource",
            totals.read(),
        );
        figures.counter_by(
            "queries_over_limit",
            "Queries that exceeded a limit (--query-max-series and others)",
            "resource",
            totals.over_budget(),
        );
        figures.durations_by(
            "query_stage_seconds",
            "How long stages of queries take",
            "stage",
            totals
                .stages()
                .map(|(name, durations)| (name, durations.counts())),
        );
    });
}
