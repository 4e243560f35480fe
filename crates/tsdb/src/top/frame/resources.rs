//! Resources of the processes: health, processors, memory, caches, connections.

use super::{All, Figure, Named, Section, Server, Shape, by_server};

/// A row for each server, with the reasons of those that cannot serve.
pub(super) fn servers(servers: &[Server]) -> Section {
    let mut section = Section::new(
        "servers",
        "SERVER",
        Shape::Table,
        &[
            ("server", "server"),
            ("state", "state"),
            ("version", "version"),
            ("uptime_seconds", "up"),
            ("cpu", "CPU"),
            ("resident_bytes", "resident"),
            ("limit_bytes", "limit"),
            ("descriptors", "fds"),
            ("max_descriptors", "of"),
            ("reason", ""),
        ],
    );
    for server in servers {
        let name = Figure::Text(server.name.clone());
        let row = match (&server.last, server.interval()) {
            (Some(scrape), Some(interval)) => {
                let state = if scrape.not_ready.is_empty() {
                    "ready"
                } else {
                    "not ready"
                };
                let value = |figure, name| Figure::from_value(figure, scrape.metrics.value(name, &[]));
                vec![
                    name,
                    Figure::Text(state.to_owned()),
                    Figure::Text(scrape.facts.version.clone()),
                    Figure::Duration(scrape.uptime()),
                    Figure::from_value(Figure::Share, interval.rate("process_cpu_seconds_total", &[])),
                    value(Figure::Bytes, "process_resident_memory_bytes"),
                    value(Figure::Bytes, "oxtsdb_memory_limit_bytes"),
                    value(Figure::Count, "process_open_fds"),
                    value(Figure::Count, "process_max_fds"),
                    note(&scrape.not_ready.join("; ")),
                ]
            }
            _ => {
                let mut row = vec![Figure::Missing; section.columns.len()];
                row[0] = name;
                row[1] = Figure::Text("away".to_owned());
                row[9] = note(server.error.as_deref().unwrap_or_default());
                row
            }
        };
        section.rows.push(row);
    }
    section
}

fn note(text: &str) -> Figure {
    match text {
        "" => Figure::Missing,
        text => Figure::Note(text.to_owned()),
    }
}

/// The pools of memory of each server.
pub(super) fn memory(servers: &[Named<'_>]) -> Section {
    let mut section = Section::new(
        "memory",
        "MEMORY",
        Shape::ShortTable,
        &[
            ("pool", "pool"),
            ("server", "server"),
            ("used_bytes", "used"),
            ("limit_bytes", "limit"),
            ("peak_bytes", "peak"),
            ("rejected_per_second", "rejected/s"),
            ("rejected", "rejected"),
        ],
    );
    for server in servers {
        let metrics = server.interval.metrics();
        for pool in metrics.label_values("oxtsdb_memory_pool_limit_bytes", "pool") {
            let labels = [("pool", pool)];
            let bytes = |name| {
                let name = format!("oxtsdb_memory_pool_{name}_bytes");
                Figure::from_value(Figure::Bytes, metrics.sum(&name, &labels))
            };
            let rejected = "oxtsdb_memory_pool_rejected_total";
            section.rows.push(vec![
                Figure::Text(pool.to_owned()),
                Figure::Text(server.name.to_owned()),
                bytes("used"),
                bytes("limit"),
                bytes("peak"),
                Figure::from_value(Figure::PerSecond, server.interval.rate(rejected, &labels)),
                Figure::from_value(Figure::Count, metrics.sum(rejected, &labels)),
            ]);
        }
    }
    by_server(section, servers.len())
}

/// Caches, with the share of points that had a cached series.
pub(super) fn caches(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "caches",
        "CACHES",
        Shape::ShortTable,
        &[
            ("cache", "cache"),
            ("entries", "entries"),
            ("bytes", "size"),
            ("hits", "hits"),
        ],
    );
    for cache in all.label_values("oxtsdb_cache_bytes", "cache") {
        let labels = [("cache", cache)];
        let hits = match cache {
            "series" => Figure::from_events(Figure::Share, series_hits(all)),
            _ => Figure::Missing,
        };
        section.rows.push(vec![
            Figure::Text(cache.to_owned()),
            Figure::from_value(Figure::Count, all.sum("oxtsdb_cache_entries", &labels)),
            Figure::from_value(Figure::Bytes, all.sum("oxtsdb_cache_bytes", &labels)),
            hits,
        ]);
    }
    if let Some(entries) = all.sum("oxtsdb_uid_cache_entries", &[]) {
        section.rows.push(vec![
            Figure::Text("uids".to_owned()),
            Figure::Count(entries),
            Figure::from_value(Figure::Bytes, all.sum("oxtsdb_uid_cache_bytes", &[])),
            Figure::Missing,
        ]);
    }
    section
}

/// None if no points were written.
fn series_hits(all: &All<'_>) -> Option<f64> {
    let hits = all.rate("oxtsdb_series_cache_hits_total", &[])?;
    let misses = all.rate("oxtsdb_series_cache_misses_total", &[])?;
    (hits + misses > 0.0).then(|| hits / (hits + misses))
}

/// Connections of clients by listener.
pub(super) fn connections(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "connections",
        "CONNECTIONS",
        Shape::ShortTable,
        &[
            ("listener", "listener"),
            ("open", "open"),
            ("limit", "limit"),
            ("accepted_per_second", "new/s"),
            ("rejected_per_second", "rejected/s"),
            ("evicted_per_second", "evicted/s"),
            ("displaced_per_second", "displaced/s"),
            ("tls_failed_per_second", "TLS failed/s"),
        ],
    );
    for listener in all.label_values("oxtsdb_connections", "listener") {
        let labels = [("listener", listener)];
        let rate = |name| all.rate(name, &labels);
        let failed = rate("oxtsdb_tls_handshakes_failed_total").unwrap_or_default()
            + rate("oxtsdb_tls_mismatches_total").unwrap_or_default();
        section.rows.push(vec![
            Figure::Text(listener.to_owned()),
            Figure::from_value(Figure::Count, all.sum("oxtsdb_connections", &labels)),
            Figure::from_value(Figure::Count, all.sum("oxtsdb_connections_limit", &labels)),
            Figure::from_value(Figure::PerSecond, rate("oxtsdb_connections_accepted_total")),
            Figure::from_value(Figure::PerSecond, rate("oxtsdb_connections_rejected_total")),
            Figure::from_value(Figure::PerSecond, rate("oxtsdb_connections_evicted_total")),
            Figure::from_value(Figure::PerSecond, rate("oxtsdb_connections_displaced_total")),
            Figure::PerSecond(failed),
        ]);
    }
    section
}
