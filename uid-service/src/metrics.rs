//! The metrics of the UID service.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use oxtsdb_server::metrics::Metrics;

use crate::uids::Uids;
use crate::usage::KindUsage;

/// Adds the metrics of `uids`, as long as it is used.
pub(crate) fn report(metrics: &Metrics, uids: &Arc<Uids>) {
    let uids: Weak<Uids> = Arc::downgrade(uids);
    metrics.collect(move |figures| {
        let Some(uids) = uids.upgrade() else { return };
        let usages = uids.last_usage();
        let by_kind = |value: fn(&KindUsage) -> u64| {
            usages
                .iter()
                .map(move |usage| (usage.kind.as_str(), value(usage)))
        };
        figures.gauge_by(
            "uid_used",
            "The highest reserved UID; with random UIDs: the names",
            "kind",
            by_kind(|usage| usage.used),
        );
        figures.gauge_by(
            "uid_available",
            "UIDs that can still be reserved",
            "kind",
            by_kind(|usage| usage.available),
        );
        figures.gauge_f64_by(
            "uid_assigned_per_day",
            "UIDs assigned per day, over the last week",
            "kind",
            usages
                .iter()
                .filter_map(|usage| Some((usage.kind.as_str(), usage.forecast.assigned_per_day?))),
        );
        let now = SystemTime::now();
        figures.gauge_f64_by(
            "uid_exhaustion_seconds",
            "Seconds until no UID is left at this rate; absent if that is more than a hundred years away",
            "kind",
            usages.iter().filter_map(|usage| {
                let left = usage.forecast.exhaustion?.duration_since(now).unwrap_or_default();
                Some((usage.kind.as_str(), left.as_secs_f64()))
            }),
        );
        let states = uids.kind_states();
        figures.gauge_by(
            "uid_assignment_blocked",
            "Whether the kind assigns no UIDs, because its counter is below a UID that series use",
            "kind",
            states
                .iter()
                .map(|state| (state.kind.as_str(), u64::from(state.is_blocked()))),
        );
        let cache = uids.cache();
        figures.gauge("uid_cache_entries", "Mappings in the cache", cache.entries());
        figures.gauge(
            "uid_cache_bytes",
            "Memory of the cache of mappings",
            cache.byte_len(),
        );
    });
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{RowStore, Writers};

    use super::*;
    use crate::settings::UidSettings;

    #[tokio::test]
    async fn reports_the_usage_that_was_read_last() {
        let settings = UidSettings::default();
        let store: Arc<dyn RowStore> = Arc::new(MemoryStore::new());
        let part = crate::store_part(&settings).unwrap();
        part.make_tables(&*store).await.unwrap();
        let uids = Arc::new(Uids::new(store, Writers::Single, settings.check().unwrap()));
        let metrics = Metrics::default();
        report(&metrics, &uids);
        assert!(!metrics.encode().unwrap().contains("oxtsdb_uid_used{"));
        uids.refresh_usage(SystemTime::now()).await;
        let text = metrics.encode().unwrap();
        assert!(text.contains("oxtsdb_uid_used{kind=\"metrics\"} 0\n"), "{text}");
        assert!(
            text.contains("oxtsdb_uid_available{kind=\"tagv\"} 16777215\n"),
            "{text}"
        );
        drop(uids);
        assert!(!metrics.encode().unwrap().contains("oxtsdb_uid_used"));
    }
}
