//! Storage: the embedded store, HBase's gateways, UIDs.

use oxtsdb_point_store::FIGURES;
use oxtsdb_resources::figure::{ColumnFormat, FigureKind};

use super::{All, Figure, Named, Section, Shape, by_server, latency};

/// The embedded store of each server: the columns of [`FIGURES`], and the damage.
pub(super) fn store(servers: &[Named<'_>]) -> Section {
    let with_column = || FIGURES.iter().filter_map(|figure| Some((figure, figure.column?)));
    let mut columns = vec![("server", "server")];
    columns.extend(with_column().map(|(_, column)| (column.key, column.title)));
    columns.push(("damaged_ranges", "damaged ranges"));
    let mut section = Section::new("store", "STORE", Shape::Facts, &columns);
    for server in servers {
        let metrics = server.interval.metrics();
        if metrics.value("oxtsdb_store_series", &[]).is_none() {
            continue;
        }
        let mut row = vec![Figure::Text(server.name.to_owned())];
        row.extend(with_column().map(|(figure, column)| {
            let suffix = if figure.kind == FigureKind::Counter {
                "_total"
            } else {
                ""
            };
            let name = format!("oxtsdb_{}{suffix}", figure.metric);
            let value = metrics.value(&name, &[]);
            match column.format {
                ColumnFormat::Count => Figure::from_value(Figure::Count, value),
                ColumnFormat::Bytes => Figure::from_value(Figure::Bytes, value),
                ColumnFormat::BytesPerSecond => {
                    Figure::from_value(Figure::BytesPerSecond, server.interval.rate(&name, &[]))
                }
                ColumnFormat::Failures => failures(value),
            }
        }));
        row.push(failures(metrics.value("oxtsdb_store_damaged_ranges", &[])));
        section.rows.push(row);
    }
    let count = section.rows.len();
    by_server(section, count)
}

/// A number that is shown if it is not 0.
fn failures(count: Option<f64>) -> Figure {
    Figure::from_value(Figure::Count, count.filter(|count| *count > 0.0))
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
            Figure::from_value(Figure::PerSecond, all.rate(count, &labels)),
            p50,
            p99,
            Figure::from_value(Figure::Count, all.sum(count, &labels)),
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
            Figure::from_value(Figure::Count, all.sum(up, &labels)),
            Figure::Count(f64::from(servers)),
            Figure::from_value(
                Figure::PerSecond,
                all.rate("oxtsdb_hbase_call_seconds_count", &labels),
            ),
            Figure::from_value(
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
            Figure::from_value(Figure::Count, all.max("oxtsdb_uid_used", &labels)),
            Figure::from_value(Figure::Count, all.min("oxtsdb_uid_available", &labels)),
            Figure::from_value(Figure::Count, all.max("oxtsdb_uid_assigned_per_day", &labels)),
            Figure::from_value(Figure::Duration, exhaustion),
        ]);
    }
    section
}
