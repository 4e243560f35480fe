//! Refusals of requests without a right.

use std::sync::Arc;

use oxtsdb_access::RefusalCounts;

use super::Metrics;

impl Metrics {
    /// Adds the refusals of the process, over all protocols.
    pub(crate) fn collect_refusals(&self, refusals: &Arc<RefusalCounts>) {
        let refusals = Arc::clone(refusals);
        self.collect(move |figures| {
            figures.counter_by(
                "access_refused",
                "Requests refused by --access-policy or --mode; of metrics: series of writes, and queries",
                "reason",
                refusals.all(),
            );
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn reports_refusals_by_reason() {
        let refusals = Arc::<RefusalCounts>::default();
        refusals.mode.store(3, Ordering::Relaxed);
        let metrics = Metrics::default();
        metrics.collect_refusals(&refusals);
        let text = metrics.encode().unwrap();
        for line in [
            "oxtsdb_access_refused_total{reason=\"mode\"} 3\n",
            "oxtsdb_access_refused_total{reason=\"unauthenticated\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
