//! What HTTP and telnet have done since the start; `/api/stats` and telnet's `stats` tell it.
//!
//! Names are OpenTSDB's, so that its dashboards work; what OpenTSDB does not count begins with
//! `oxtsdb.`. Only what is counted here is told.
//!
//! Source: OpenTSDB 2.4, `RpcHandler.collectStats`, `PutDataPointRpc.collectStats`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Connections accepted.
    pub(crate) connections_total: AtomicU64,
    /// Connections closed at once because there were too many.
    pub(crate) connections_rejected: AtomicU64,
    /// Connections that are open now.
    connections_open: AtomicU64,
    /// HTTP requests.
    pub(crate) http_requests: AtomicU64,
    /// Telnet lines.
    pub(crate) telnet_lines: AtomicU64,
    /// Put requests: HTTP bodies and telnet lines.
    pub(crate) puts: AtomicU64,
    /// Points stored.
    pub(crate) points_added: AtomicU64,
    /// Points refused for a value or timestamp that is no number.
    pub(crate) invalid_values: AtomicU64,
    /// Points refused for another rule.
    pub(crate) illegal_arguments: AtomicU64,
    /// Points refused for a name that is unknown.
    pub(crate) unknown_metrics: AtomicU64,
    /// Points lost to failures of store or UID service.
    pub(crate) storage_errors: AtomicU64,
    /// HTTP queries answered.
    pub(crate) queries_answered: AtomicU64,
    /// HTTP queries refused or failed.
    pub(crate) queries_failed: AtomicU64,
    /// Cells without points that queries passed over, those over gRPC too.
    skipped_cells: Arc<AtomicU64>,
}

/// One line of statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statistic {
    pub(crate) name: &'static str,
    /// The tag that tells lines of one name apart.
    pub(crate) tag: Option<(&'static str, &'static str)>,
    pub(crate) value: u64,
}

/// Counts a connection as open until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection(Arc<Counters>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections_open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Beside what a query engine counts itself: cells that it passed over.
    pub(crate) fn beside(skipped_cells: Arc<AtomicU64>) -> Counters {
        Counters {
            skipped_cells,
            ..Counters::default()
        }
    }

    /// Counts one.
    pub(crate) fn count(counter: &AtomicU64) {
        Counters::add(counter, 1);
    }

    /// Counts many.
    pub(crate) fn add(counter: &AtomicU64, number: usize) {
        counter.fetch_add(number as u64, Ordering::Relaxed);
    }

    /// Counts a connection as open.
    pub(crate) fn opened(counters: &Arc<Counters>) -> OpenConnection {
        counters.connections_open.fetch_add(1, Ordering::Relaxed);
        OpenConnection(Arc::clone(counters))
    }

    /// All counts, in a fixed order.
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
        vec![
            statistic(
                "tsd.connectionmgr.connections",
                ("type", "open"),
                &self.connections_open,
            ),
            statistic(
                "tsd.connectionmgr.connections",
                ("type", "rejected"),
                &self.connections_rejected,
            ),
            statistic(
                "tsd.connectionmgr.connections",
                ("type", "total"),
                &self.connections_total,
            ),
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
            untagged("tsd.http.query.success", &self.queries_answered),
            untagged("tsd.http.query.exceptions", &self.queries_failed),
            statistic("tsd.datapoints.added", ("type", "all"), &self.points_added),
            untagged("oxtsdb.query.skipped_cells", &self.skipped_cells),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_count_as_open_while_they_are() {
        let counters = Arc::new(Counters::default());
        let open = |counters: &Counters| counters.statistics()[0].value;
        let first = Counters::opened(&counters);
        let second = Counters::opened(&counters);
        assert_eq!(open(&counters), 2);
        drop((first, second));
        assert_eq!(open(&counters), 0);
    }
}
