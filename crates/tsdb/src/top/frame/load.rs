//! The load of clients: points, queries, requests, errors.

use std::cmp::Ordering;

use super::{All, Figure, Section, Server, Shape, Sort, by_server, latency};
use crate::admin::{Labels, Query, Rejection};

const PER_SECOND: fn(f64) -> Figure = Figure::PerSecond;

/// Points by protocol; a protocol that was never used is left out.
pub(super) fn points(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "points",
        "POINTS",
        Shape::Table,
        &[
            ("protocol", "protocol"),
            ("added_per_second", "added/s"),
            ("rejected_per_second", "rejected/s"),
            ("failed_per_second", "failed/s"),
            ("batches_per_second", "batches/s"),
            ("added", "added"),
            ("rejected", "rejected"),
            ("failed", "failed"),
        ],
    );
    let names = [
        "points_added",
        "points_rejected",
        "points_failed",
        "write_batches",
    ];
    let [added, rejected, failed, batches] = names.map(|name| format!("oxtsdb_{name}_total"));
    for protocol in all.label_values(&added, "protocol") {
        let labels = [("protocol", protocol)];
        let total = |name: &str| all.sum(name, &labels).unwrap_or_default();
        if [&added, &rejected, &failed]
            .into_iter()
            .all(|name| total(name) == 0.0)
        {
            continue;
        }
        let rate = |name: &str| Figure::from_value(PER_SECOND, all.rate(name, &labels));
        section.rows.push(vec![
            Figure::Text(protocol.to_owned()),
            rate(&added),
            rate(&rejected),
            rate(&failed),
            rate(&batches),
            Figure::Count(total(&added)),
            Figure::Count(total(&rejected)),
            Figure::Count(total(&failed)),
        ]);
    }
    section
}

/// Queries that run, have ended and were rejected, and what they read.
pub(super) fn queries(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "queries",
        "QUERIES",
        Shape::Facts,
        &[
            ("running", "running"),
            ("queued", "queued"),
            ("ok_per_second", "ok/s"),
            ("failed_per_second", "failed/s"),
            ("not_admitted_per_second", "not admitted/s"),
            ("over_limit_per_second", "over limit/s"),
            ("series_per_second", "series/s"),
            ("rows_per_second", "rows/s"),
            ("bytes_per_second", "read"),
            ("points_per_second", "points/s"),
            ("points_sent_per_second", "sent/s"),
        ],
    );
    let active = "oxtsdb_queries_active";
    if all.sum(active, &[]).is_none() {
        return section;
    }
    let state = |state| Figure::from_value(Figure::Count, all.sum(active, &[("state", state)]));
    let ended = |result| {
        Figure::from_value(
            PER_SECOND,
            all.rate("oxtsdb_queries_total", &[("result", result)]),
        )
    };
    let read = |unit, resource| {
        Figure::from_value(
            unit,
            all.rate("oxtsdb_query_read_total", &[("resource", resource)]),
        )
    };
    section.rows.push(vec![
        state("running"),
        state("queued"),
        ended("ok"),
        ended("failed"),
        seen(all, "oxtsdb_queries_not_admitted_total"),
        seen(all, "oxtsdb_queries_over_limit_total"),
        read(PER_SECOND, "series"),
        read(PER_SECOND, "rows"),
        read(Figure::BytesPerSecond, "bytes"),
        read(PER_SECOND, "points"),
        read(PER_SECOND, "points_sent"),
    ]);
    section
}

/// The rate of what should not happen; missing if it never has.
fn seen(all: &All<'_>, name: &str) -> Figure {
    let has_happened = all.sum(name, &[]).is_some_and(|total| total > 0.0);
    Figure::from_value(PER_SECOND, all.rate(name, &[]).filter(|_| has_happened))
}

/// The stages of queries, in their order; left out before the first query.
pub(super) fn stages(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "stages",
        "STAGES",
        Shape::ShortTable,
        &[
            ("stage", "stage"),
            ("per_second", "/s"),
            ("p50_seconds", "p50"),
            ("p99_seconds", "p99"),
        ],
    );
    for stage in ["queue", "plan", "scan", "aggregate", "client"] {
        let labels = [("stage", stage)];
        let count = "oxtsdb_query_stage_seconds_count";
        if all.sum(count, &labels).unwrap_or_default() == 0.0 {
            continue;
        }
        let rate = Figure::from_value(PER_SECOND, all.rate(count, &labels));
        let [p50, p99] = latency(&all.histogram("oxtsdb_query_stage_seconds", &labels));
        section
            .rows
            .push(vec![Figure::Text(stage.to_owned()), rate, p50, p99]);
    }
    section
}

/// Running queries, the longest first.
pub(super) fn running(servers: &[Server]) -> Section {
    let mut section = Section::new(
        "running",
        "RUNNING",
        Shape::Table,
        &[
            ("id", "id"),
            ("server", "server"),
            ("seconds", "for"),
            ("series", "series"),
            ("rows", "rows"),
            ("points", "points"),
            ("bytes", "read"),
            ("memory_bytes", "memory"),
            ("query", "query"),
        ],
    );
    let with_data = |server: &&Server| {
        server
            .last
            .as_ref()
            .is_some_and(|scrape| scrape.queries.is_some())
    };
    let mut running: Vec<(&str, &Query)> = Vec::new();
    for server in servers {
        let queries = server.last.iter().filter_map(|scrape| scrape.queries.as_ref());
        let queries = queries.flat_map(|queries| &queries.running);
        running.extend(queries.map(|query| (server.name.as_str(), query)));
    }
    running.sort_by_key(|(_, query)| std::cmp::Reverse(query.elapsed_ms()));
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let number = |value: u64| value as f64;
    for (server, query) in running {
        section.rows.push(vec![
            Figure::Id(query.id),
            Figure::Text(server.to_owned()),
            Figure::Duration(number(query.elapsed_ms()) / 1000.0),
            Figure::Count(number(query.series())),
            Figure::Count(number(query.rows())),
            Figure::Count(number(query.points())),
            Figure::Bytes(number(query.bytes())),
            Figure::Bytes(number(query.memory())),
            Figure::Text(query.text()),
        ]);
    }
    by_server(section, servers.iter().filter(with_data).count())
}

/// The last rejected points by reason and caller.
pub(super) fn rejected(servers: &[Server]) -> Section {
    let mut section = Section::new(
        "rejected",
        "REJECTED",
        Shape::Table,
        &[
            ("kind", "kind"),
            ("server", "server"),
            ("seconds_ago", "ago"),
            ("protocol", "protocol"),
            ("caller", "caller"),
            ("points", "points"),
            ("reason", "reason"),
            ("point", "point"),
        ],
    );
    let mut rejected: Vec<(&str, u64, &Rejection)> = Vec::new();
    for server in servers {
        if let Some(scrape) = &server.last {
            let rejections = scrape.rejections.rejections.iter();
            rejected.extend(rejections.map(|rejection| {
                let ago_ms = scrape.facts.clock_ms.saturating_sub(rejection.last_ms);
                (server.name.as_str(), ago_ms, rejection)
            }));
        }
    }
    rejected.sort_by_key(|(_, ago_ms, _)| *ago_ms);
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let number = |value: u64| value as f64;
    for (server, ago_ms, rejection) in rejected {
        section.rows.push(vec![
            Figure::Text(rejection.kind.clone()),
            Figure::Text(server.to_owned()),
            Figure::Duration(number(ago_ms) / 1000.0),
            Figure::Text(rejection.protocol.clone()),
            Figure::Text(rejection.caller.clone()),
            Figure::Count(number(rejection.points)),
            Figure::Text(rejection.reason.clone()),
            Figure::Text(rejection.point.clone()),
        ]);
    }
    by_server(section, servers.len())
}

/// Requests by protocol and method.
pub(super) fn requests(all: &All<'_>, sort: Sort) -> Section {
    let mut section = Section::new(
        "requests",
        "REQUESTS",
        Shape::Table,
        &[
            ("method", "method"),
            ("protocol", "protocol"),
            ("per_second", "/s"),
            ("errors_per_second", "errors/s"),
            ("in_flight", "in flight"),
            ("p50_seconds", "p50"),
            ("p99_seconds", "p99"),
        ],
    );
    let in_flight = "oxtsdb_requests_in_flight";
    let ended = "oxtsdb_requests_total";
    let codes = all.label_values(ended, "code");
    let mut rows = Vec::new();
    for protocol in all.label_values(in_flight, "protocol") {
        for method in all.label_values(in_flight, "method") {
            let labels = [("protocol", protocol), ("method", method)];
            let Some(now) = all.sum(in_flight, &labels) else {
                continue;
            };
            let rate = all.rate(ended, &labels).unwrap_or_default();
            let failed = codes.iter().filter(|code| has_failed(protocol, code));
            let failed = failed.filter_map(|code| all.rate(ended, &[labels[0], labels[1], ("code", code)]));
            // The sum of nothing would be -0.
            let errors = failed.fold(0.0, |sum, rate| sum + rate);
            let histogram = all.histogram("oxtsdb_request_seconds", &labels);
            let slowest = histogram.quantile(0.99).unwrap_or_default();
            let [p50, p99] = latency(&histogram);
            let row = vec![
                Figure::Method(method.to_owned()),
                Figure::Text(protocol.to_owned()),
                Figure::PerSecond(rate),
                Figure::PerSecond(errors),
                Figure::Count(now),
                p50,
                p99,
            ];
            rows.push(([rate, errors, slowest], row));
        }
    }
    // Stable: rows that are equal stay in the order of their names.
    let by = |at: usize| {
        move |(a, _): &([f64; 3], Vec<Figure>), (b, _): &([f64; 3], Vec<Figure>)| -> Ordering {
            b[at].total_cmp(&a[at]).then_with(|| b[0].total_cmp(&a[0]))
        }
    };
    match sort {
        Sort::Rate => rows.sort_by(by(0)),
        Sort::Errors => rows.sort_by(by(1)),
        Sort::Latency => rows.sort_by(by(2)),
        Sort::Name => {}
    }
    section.rows.extend(rows.into_iter().map(|(_, row)| row));
    section
}

/// Whether a code of `oxtsdb_requests` is an error.
fn has_failed(protocol: &str, code: &str) -> bool {
    match protocol {
        "grpc" => code != "OK",
        "http" => code.parse::<u16>().is_ok_and(|status| status >= 400),
        _ => code != "ok",
    }
}

/// Reasons for which requests were rejected or failed, the most frequent first.
pub(super) fn errors(all: &All<'_>) -> Section {
    let mut section = Section::new(
        "errors",
        "ERRORS",
        Shape::Table,
        &[
            ("reason", "reason"),
            ("setting", "setting"),
            ("per_second", "/s"),
            ("total", "total"),
        ],
    );
    let mut rows: Vec<(f64, f64, &str, &str)> = Vec::new();
    let mut add = |name: &str, labels: Labels<'_>, reason, setting| {
        let total = all.sum(name, labels).unwrap_or_default();
        if total > 0.0 {
            rows.push((all.rate(name, labels).unwrap_or_default(), total, reason, setting));
        }
    };
    let [errors, refused] = ["oxtsdb_errors_total", "oxtsdb_access_refused_total"];
    for reason in all.label_values(errors, "reason") {
        for setting in all.label_values(errors, "setting") {
            add(
                errors,
                &[("reason", reason), ("setting", setting)],
                reason,
                setting,
            );
        }
    }
    for reason in all.label_values(refused, "reason") {
        let setting = if reason == "mode" {
            "--mode"
        } else {
            "--access-policy"
        };
        add(refused, &[("reason", reason)], reason, setting);
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let rows = rows.into_iter().map(|(rate, total, reason, setting)| {
        vec![
            Figure::Text(reason.to_owned()),
            Figure::Text(setting.to_owned()),
            Figure::PerSecond(rate),
            Figure::Count(total),
        ]
    });
    section.rows.extend(rows);
    section
}
