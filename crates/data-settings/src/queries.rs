//! Queries: how many run, for how long, and the budget of each.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// Admission, deadlines and budgets of queries.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Queries")]
pub struct QuerySettings {
    /// Queries that run at a time, beside the first one of a client that runs no other; 0: twice the number of processors,
    /// at least 4
    #[arg(long, env = "OXTSDB_MAX_CONCURRENT_QUERIES", value_name = "COUNT", default_value_t = Self::default().max_concurrent_queries)]
    pub max_concurrent_queries: usize,

    /// Queries in the queue; more are rejected immediately. The queue is fair between clients
    #[arg(long, env = "OXTSDB_MAX_QUEUED_QUERIES", value_name = "COUNT", default_value_t = Self::default().max_queued_queries)]
    pub max_queued_queries: usize,

    /// Maximum time of a query in the queue, seconds
    #[arg(long, env = "OXTSDB_QUERY_QUEUE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().query_queue_timeout_seconds)]
    pub query_queue_timeout_seconds: u64,

    /// Deadline of queries without one, and the latest deadline of the others, seconds; 0: none
    #[arg(long, env = "OXTSDB_QUERY_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().query_timeout_seconds)]
    pub query_timeout_seconds: u64,

    /// Series that a query may read; 0: no limit [default: one for each 2 KiB of --memory-limit-mib]
    #[arg(long, env = "OXTSDB_QUERY_MAX_SERIES", value_name = "COUNT")]
    pub query_max_series: Option<u64>,

    /// Rows that a query may read, one hour of one series each; 0: no limit [default: one for each 32 bytes of
    /// --memory-limit-mib]
    #[arg(long, env = "OXTSDB_QUERY_MAX_ROWS", value_name = "COUNT")]
    pub query_max_rows: Option<u64>,

    /// Bytes of rows that a query may read; 0: no limit (tsd.query.limits.bytes.default) [default: 16 times
    /// --memory-limit-mib]
    #[arg(long, env = "OXTSDB_QUERY_MAX_BYTES", value_name = "BYTES")]
    pub query_max_bytes: Option<u64>,

    /// Memory that a query may hold, MiB: rows, points, and its result until the client has read it; 0: no
    /// limit. Over gRPC a long query streams results while it runs; over HTTP, and for expressions, the
    /// whole result has to fit [default: half of the memory for queries, at most 1024]
    #[arg(long, env = "OXTSDB_QUERY_MAX_MEMORY_MIB", value_name = "MIB")]
    pub query_max_memory_mib: Option<u64>,

    /// Points that a query may read or a fill policy may add; 0: no limit
    /// (tsd.query.limits.data_points.default) [default: one for each 4 bytes of --memory-limit-mib]
    #[arg(long, env = "OXTSDB_QUERY_MAX_POINTS", value_name = "COUNT")]
    pub query_max_points: Option<u64>,

    /// HTTP: of several values with one timestamp use the one stored last; otherwise the query fails. gRPC
    /// always uses the last one (tsd.storage.fix_duplicates)
    #[arg(long, env = "OXTSDB_FIX_DUPLICATES", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub fix_duplicates: bool,
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self {
            max_concurrent_queries: 0,
            max_queued_queries: 1024,
            query_queue_timeout_seconds: 30,
            query_timeout_seconds: 300,
            query_max_series: None,
            query_max_rows: None,
            query_max_bytes: None,
            query_max_memory_mib: None,
            query_max_points: None,
            fix_duplicates: false,
        }
    }
}

impl QuerySettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range(
            "--max-concurrent-queries",
            self.max_concurrent_queries,
            0,
            1 << 16,
        )?;
        in_range("--max-queued-queries", self.max_queued_queries, 0, 1 << 20)?;
        in_range(
            "--query-queue-timeout-seconds",
            self.query_queue_timeout_seconds,
            0,
            86_400,
        )?;
        in_range(
            "--query-timeout-seconds",
            self.query_timeout_seconds,
            0,
            31_536_000,
        )
    }

    /// Queries that run at a time.
    pub fn concurrent(&self) -> usize {
        match self.max_concurrent_queries {
            0 => std::thread::available_parallelism().map_or(4, |count| (2 * count.get()).max(4)),
            count => count,
        }
    }

    /// Longest time of a query in the queue.
    pub fn queue_timeout(&self) -> Duration {
        Duration::from_secs(self.query_queue_timeout_seconds)
    }

    /// Longest time of a query; `None`: no limit.
    pub fn timeout(&self) -> Option<Duration> {
        (self.query_timeout_seconds > 0).then(|| Duration::from_secs(self.query_timeout_seconds))
    }
}
