//! Counters of the HTTP and telnet front ends, which `/api/stats` and telnet's `stats` report.
//!
//! Names are OpenTSDB's, so that its dashboards work; counters that OpenTSDB does not have begin with
//! `oxtsdb.`. OpenTSDB's statistics that are not counted here are not reported.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.collectStats`, `PutDataPointRpc.collectStats`, `UniqueId.collectStats`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_ingest::{Caller, Example, IngestCounts, POINT_FIGURES, ProtocolCounts, RejectionKind, Writer};
use oxtsdb_metadata::meta::new_series::NewSeriesFeed;
use oxtsdb_point_store::{FIGURES, PointStore};
use oxtsdb_query::Engine;
use oxtsdb_resources::memory::POOL_FIGURES;
use oxtsdb_resources::{Admission, Figure, MemoryPool};
use oxtsdb_row_store::StoreControl;
use oxtsdb_server::connections::ConnectionCounts;
use oxtsdb_server::metrics::{Metrics, Protocol, Requests};

use crate::front::build_info;

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections of the listener.
    pub(crate) connections: Arc<ConnectionCounts>,
    /// HTTP requests.
    pub(crate) http_requests: AtomicU64,
    /// Telnet lines.
    pub(crate) telnet_lines: AtomicU64,
    /// Put requests: HTTP bodies and telnet lines.
    pub(crate) puts: AtomicU64,
    /// Points by protocol, of gRPC too.
    ingest: Arc<IngestCounts>,
    /// Requests by protocol and method.
    requests: OnceLock<Requests>,
    /// Points rejected for a value or timestamp that is not a number.
    pub(crate) invalid_values: AtomicU64,
    /// Points rejected by another rule.
    pub(crate) illegal_arguments: AtomicU64,
    /// Points rejected for an unknown name.
    pub(crate) unknown_metrics: AtomicU64,
    /// Points lost to failures of the store or the UID service.
    pub(crate) storage_errors: AtomicU64,
    /// Values of other protocols that are no points: texts, markers of stale series, histograms.
    pub(crate) left_out: AtomicU64,
    /// Successful HTTP queries.
    pub(crate) queries_succeeded: AtomicU64,
    /// Rejected and failed HTTP queries.
    pub(crate) queries_failed: AtomicU64,
    /// Cells without points that queries have skipped, over gRPC too.
    skipped_cells: Arc<AtomicU64>,
    /// Admission and memory pools of the process, used over gRPC too.
    resources: Option<(Admission, [MemoryPool; 2])>,
    /// The store of points, for its damaged ranges.
    store: Option<Arc<dyn StoreControl>>,
    /// The points, if they are not in rows.
    points: Option<Arc<dyn PointStore>>,
    /// Counts points that are older than the retention.
    writer: Option<Writer>,
    /// Announcements of series with newly created metadata.
    new_series: NewSeriesFeed,
}

/// One line of statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statistic {
    pub(crate) name: &'static str,
    /// The tag that distinguishes lines of one name.
    pub(crate) tag: Option<(&'static str, &'static str)>,
    pub(crate) value: u64,
}

impl Statistic {
    /// As telnet and `/stats` show it: `tsd.rpc.received 1795250492 1 type=telnet host=vm`.
    pub(crate) fn line(&self, seconds: u64) -> String {
        let Self { name, tag, value } = self;
        let tag = tag
            .map(|(key, value)| format!(" {key}={value}"))
            .unwrap_or_default();
        format!("{name} {seconds} {value}{tag} host={}", build_info::host())
    }
}

/// The time of statistics, in seconds since the epoch.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Counters {
    /// New counters beside the counters of the query engine and the writer.
    pub(crate) fn beside(engine: &Engine, writer: &Writer) -> Counters {
        // The clock of the process's age starts here.
        build_info::started();
        let resources = engine.resources();
        let pools = [writer.memory().clone(), resources.memory.clone()];
        Counters {
            skipped_cells: engine.skipped_cells(),
            resources: Some((resources.admission.clone(), pools)),
            store: Some(engine.storage().store.clone()),
            points: engine.storage().reader.columns().cloned(),
            ingest: Arc::clone(writer.counts()),
            writer: Some(writer.clone()),
            new_series: writer.meta_table().new_series().clone(),
            ..Counters::default()
        }
    }

    /// Counts requests in the metrics of the process.
    pub(crate) fn report_to(&self, metrics: &Metrics) {
        // They are counted here if a request was served before.
        let _ = self.requests.set(metrics.requests().clone());
    }

    /// Requests by protocol and method.
    pub(crate) fn requests(&self) -> &Requests {
        self.requests.get_or_init(Requests::default)
    }

    /// The points of a protocol.
    pub(crate) fn ingest(&self, protocol: Protocol) -> &ProtocolCounts {
        self.ingest.for_protocol(protocol)
    }

    /// Counts a rejected point, and describes it for the log.
    pub(crate) fn reject(&self, caller: &Caller, kind: RejectionKind, example: impl FnOnce() -> Example) {
        self.ingest.reject(caller, kind, 1, example);
    }

    /// As [`Counters::reject`], for a line or a body that could not be parsed into points.
    pub(crate) fn reject_text(&self, caller: &Caller, example: impl FnOnce() -> Example) {
        self.ingest.reject_text(caller, example);
    }

    /// Adds one.
    pub(crate) fn count(counter: &AtomicU64) {
        Counters::add(counter, 1);
    }

    /// Adds a number.
    pub(crate) fn add(counter: &AtomicU64, number: usize) {
        counter.fetch_add(number as u64, Ordering::Relaxed);
    }

    /// All counters, in a fixed order.
    pub(crate) fn statistics(&self) -> Vec<Statistic> {
        let statistic = |name, tag, counter: &AtomicU64| Statistic {
            name,
            tag: Some(tag),
            value: counter.load(Ordering::Relaxed),
        };
        let untagged = |name, counter: &AtomicU64| Statistic {
            name,
            tag: None,
            value: counter.load(Ordering::Relaxed),
        };
        let connections = &*self.connections;
        let of_type = |kind, counter| statistic("tsd.connectionmgr.connections", ("type", kind), counter);
        let mut all = vec![
            of_type("open", &connections.open),
            of_type("rejected", &connections.refused),
            of_type("total", &connections.accepted),
            untagged("oxtsdb.connections.evicted", &connections.evicted),
            untagged("oxtsdb.connections.displaced", &connections.displaced),
            statistic("tsd.rpc.received", ("type", "telnet"), &self.telnet_lines),
            statistic("tsd.rpc.received", ("type", "http"), &self.http_requests),
            statistic("tsd.rpc.received", ("type", "put"), &self.puts),
            statistic("tsd.rpc.errors", ("type", "hbase_errors"), &self.storage_errors),
            statistic("tsd.rpc.errors", ("type", "invalid_values"), &self.invalid_values),
            statistic(
                "tsd.rpc.errors",
                ("type", "illegal_arguments"),
                &self.illegal_arguments,
            ),
            statistic(
                "tsd.rpc.errors",
                ("type", "unknown_metrics"),
                &self.unknown_metrics,
            ),
            untagged("tsd.http.query.success", &self.queries_succeeded),
            untagged("tsd.http.query.exceptions", &self.queries_failed),
            Statistic {
                name: "tsd.datapoints.added",
                tag: Some(("type", "all")),
                value: self.ingest.stored(),
            },
            untagged("oxtsdb.points.left_out", &self.left_out),
            untagged("oxtsdb.query.skipped_cells", &self.skipped_cells),
            Statistic {
                name: "oxtsdb.meta.announcements_lost",
                tag: None,
                value: self.new_series.lost(),
            },
        ];
        for protocol in Protocol::ALL {
            let tag = Some(("type", protocol.name()));
            all.extend(statistics(POINT_FIGURES, tag, self.ingest(protocol)));
        }
        if let Some(store) = &self.store {
            all.push(Statistic {
                name: "oxtsdb.store.damaged_ranges",
                tag: None,
                value: store.damage().len() as u64,
            });
        }
        if let Some(writer) = &self.writer {
            let cached = writer.uids().cached_entries();
            all.extend(cached.map(|(kind, value)| Statistic {
                name: "tsd.uid.cache-size",
                tag: Some(("kind", kind.as_str())),
                value,
            }));
            let value = writer.too_old_points();
            let name = "oxtsdb.points.before_retention";
            all.push(Statistic {
                name,
                tag: None,
                value,
            });
        }
        if let Some(figures) = self.points.as_ref().and_then(|points| points.figures()) {
            all.extend(statistics(FIGURES, None, &figures));
        }
        if let Some((admission, pools)) = &self.resources {
            all.extend(limits(admission, pools));
        }
        all
    }
}

/// The figures of a table that have a line.
fn statistics<T>(
    table: &[Figure<T>],
    tag: Option<(&'static str, &'static str)>,
    values: &T,
) -> impl Iterator<Item = Statistic> {
    table.iter().filter_map(move |figure| {
        Some(Statistic {
            name: figure.statistic?,
            tag,
            value: (figure.value)(values)?,
        })
    })
}

/// The usage of the limits of the process.
fn limits(admission: &Admission, pools: &[MemoryPool; 2]) -> Vec<Statistic> {
    let queries = admission.usage();
    let of_queries = |state, value| Statistic {
        name: "oxtsdb.queries",
        tag: Some(("state", state)),
        value,
    };
    let mut all = vec![
        of_queries("running", queries.running as u64),
        of_queries("queued", queries.queued as u64),
        of_queries("rejected", queries.rejected),
    ];
    for usage in pools.iter().map(MemoryPool::usage) {
        all.extend(statistics(POOL_FIGURES, Some(("pool", usage.name)), &usage));
    }
    all
}
