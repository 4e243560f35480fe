//! What lies below: the embedded store, HBase's gateways, UIDs.

use super::{All, Figure, Named, Section, Shape, by_server, latency};

/// The embedded store of each server.
pub(super) fn store(servers: &[Named<'_>]) -> Section {
    let mut section = Section::new(
        "store",
        "STORE",
        Shape::Facts,
        &[
            ("server", "server"),
            ("series", "series"),
            ("points", "points in parts"),
            ("parts", "parts"),
            ("part_bytes", "size"),
            ("journal_bytes", "journal"),
            ("memory_bytes", "memory"),
            ("merge_debt_bytes", "merge debt"),
            ("journal_bytes_per_second", "journal written"),
            ("merge_read_bytes_per_second", "merges read"),
            ("merge_written_bytes_per_second", "merges wrote"),
            ("disk_free_bytes", "disk free"),
            ("disk_reserve_bytes", "reserve"),
            ("failed_merges", "failed merges"),
            ("damaged_ranges", "damaged ranges"),
        ],
    );
    let with_store = servers.iter().filter(|server| {
        let metrics = server.interval.metrics();
        metrics.value("oxtsdb_store_series", &[]).is_some()
    });
    let with_store: Vec<_> = with_store.collect();
    for server in &with_store {
        let metrics = server.interval.metrics();
        let value =
            |figure, name: &str| Figure::of(figure, metrics.value(&format!("oxtsdb_store_{name}"), &[]));
        let rate = |name: &str| {
            let rate = server.interval.rate(&format!("oxtsdb_store_{name}_total"), &[]);
            Figure::of(Figure::BytesPerSecond, rate)
        };
        // Shown only if there are some.
        let bad = |name: &str| {
            let count = metrics.value(&format!("oxtsdb_store_{name}"), &[]);
            Figure::of(Figure::Count, count.filter(|count| *count > 0.0))
        };
        section.rows.push(vec![
            Figure::Text(server.name.to_owned()),
            value(Figure::Count, "series"),
            value(Figure::Count, "points"),
            value(Figure::Count, "parts"),
            value(Figure::Bytes, "part_bytes"),
            value(Figure::Bytes, "journal_bytes"),
            value(Figure::Bytes, "memory_bytes"),
            value(Figure::Bytes, "merge_debt_bytes"),
            rate("journal_written_bytes"),
            rate("merge_read_bytes"),
            rate("merge_written_bytes"),
            value(Figure::Bytes, "disk_free_bytes"),
            value(Figure::Bytes, "disk_reserve_bytes"),
            bad("failed_merges_total"),
            bad("damaged_ranges"),
        ]);
    }
    by_server(section, with_store.len())
}

/// Syncs, flushes and merges.
pub(super) fn work(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "store_work",
        "STORE WORK",
        Shape::ShortTable,
        &[
            ("work", "work"),
            ("per_second", "/s"),
            ("p50_seconds", "p50"),
            ("p99_seconds", "p99"),
            ("total", "total"),
        ],
    );
    for work in all.label_values("oxtsdb_store_work_seconds_count", "work") {
        let labels = [("work", work)];
        let count = "oxtsdb_store_work_seconds_count";
        let [p50, p99] = latency(&all.histogram("oxtsdb_store_work_seconds", &labels));
        section.rows.push(vec![
            Figure::Text(work.to_owned()),
            Figure::of(Figure::PerSecond, all.rate(count, &labels)),
            p50,
            p99,
            Figure::of(Figure::Count, all.sum(count, &labels)),
        ]);
    }
    section
}

/// HBase's Thrift gateways, as all servers see them.
pub(super) fn gateways(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "gateways",
        "HBASE",
        Shape::Table,
        &[
            ("gateway", "gateway"),
            ("up", "up for"),
            ("servers", "of servers"),
            ("calls_per_second", "calls/s"),
            ("failed_per_second", "failed/s"),
            ("p50_seconds", "p50"),
            ("p99_seconds", "p99"),
        ],
    );
    let up = "oxtsdb_hbase_gateway_up";
    for gateway in all.label_values(up, "gateway") {
        let labels = [("gateway", gateway)];
        let with_gateway = all
            .0
            .iter()
            .filter(|interval| interval.metrics().sum(up, &labels).is_some());
        let servers = u32::try_from(with_gateway.count()).unwrap_or(u32::MAX);
        let [p50, p99] = latency(&all.histogram("oxtsdb_hbase_call_seconds", &labels));
        section.rows.push(vec![
            Figure::Text(gateway.to_owned()),
            Figure::of(Figure::Count, all.sum(up, &labels)),
            Figure::Count(f64::from(servers)),
            Figure::of(
                Figure::PerSecond,
                all.rate("oxtsdb_hbase_call_seconds_count", &labels),
            ),
            Figure::of(
                Figure::PerSecond,
                all.rate("oxtsdb_hbase_calls_failed_total", &labels),
            ),
            p50,
            p99,
        ]);
    }
    section
}

/// UIDs. Replicas share their table, so figures are not added up.
pub(super) fn uids(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "uids",
        "UIDS",
        Shape::ShortTable,
        &[
            ("kind", "kind"),
            ("used", "used"),
            ("available", "available"),
            ("assigned_per_day", "per day"),
            ("exhaustion_seconds", "exhausted in"),
        ],
    );
    for kind in all.label_values("oxtsdb_uid_used", "kind") {
        let labels = [("kind", kind)];
        let exhaustion = all.min("oxtsdb_uid_exhaustion_seconds", &labels);
        section.rows.push(vec![
            Figure::Text(kind.to_owned()),
            Figure::of(Figure::Count, all.max("oxtsdb_uid_used", &labels)),
            Figure::of(Figure::Count, all.min("oxtsdb_uid_available", &labels)),
            Figure::of(Figure::Count, all.max("oxtsdb_uid_assigned_per_day", &labels)),
            Figure::of(Figure::Duration, exhaustion),
        ]);
    }
    section
}
