//! What an operator can set about the data service.
//!
//! Each setting is a flag, an environment variable `OXTSDB_…` and a key of the TOML file (the
//! flag's name with `_`). Where OpenTSDB has the setting too, its name stands behind it.

use std::time::Duration;

use oxtsdb_resources::{Admission, AdmissionLimits, ComputePool, FixedShare, MemoryAccount};
use oxtsdb_row_store::{TableName, TableNameError};
use oxtsdb_schema::{RowKeyLayout, SaltLayout, UidWidth, UidWidths, data_table};
use oxtsdb_server::settings::{SettingError, in_range};

use crate::write::WriteForm;
use oxtsdb_query::QueryResources;
use oxtsdb_query::exec::budget::{Limit, Limits};

/// What a query may hold at most, unless it is set, however much memory there is.
const MOST_MEMORY_OF_A_QUERY: u64 = 1 << 30;

/// Settings of the data service.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[command(next_help_heading = "Data service")]
pub struct DataSettings {
    /// Table of points (tsd.storage.hbase.data_table)
    #[arg(long, env = "OXTSDB_DATA_TABLE", value_name = "NAME", default_value_t = Self::default().data_table)]
    pub data_table: String,

    /// Table of series metadata (tsd.storage.hbase.meta_table)
    #[arg(long, env = "OXTSDB_META_TABLE", value_name = "NAME", default_value_t = Self::default().meta_table)]
    pub meta_table: String,

    /// Table of trees (tsd.storage.hbase.tree_table)
    #[arg(long, env = "OXTSDB_TREE_TABLE", value_name = "NAME", default_value_t = Self::default().tree_table)]
    pub tree_table: String,

    /// Most tags of a series (tsd.storage.max_tags)
    #[arg(long, env = "OXTSDB_MAX_TAGS", value_name = "COUNT", default_value_t = Self::default().max_tags)]
    pub max_tags: usize,

    /// Bytes of salt before a row key, 0 to 8; never change it once there is data
    /// (tsd.storage.salt.width)
    #[arg(long, env = "OXTSDB_SALT_WIDTH", value_name = "BYTES", default_value_t = Self::default().salt_width)]
    pub salt_width: usize,

    /// Buckets that salt spreads the series over; never change it once there is data
    /// (tsd.storage.salt.buckets)
    #[arg(long, env = "OXTSDB_SALT_BUCKETS", value_name = "COUNT", default_value_t = Self::default().salt_buckets)]
    pub salt_buckets: u32,

    /// Of several values for one instant take the one stored last, in place of failing the query;
    /// HTTP only, gRPC always does (tsd.storage.fix_duplicates)
    #[arg(long, env = "OXTSDB_FIX_DUPLICATES", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub fix_duplicates: bool,

    /// UID widths that the UID service must have, as METRIC/TAGK/TAGV; without it any
    #[arg(long, env = "OXTSDB_EXPECTED_UID_WIDTHS", value_name = "M/K/V")]
    pub expected_uid_widths: Option<String>,

    /// Wait so long for the UID service at start before giving up
    #[arg(long, env = "OXTSDB_UID_START_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().uid_start_timeout_seconds)]
    pub uid_start_timeout_seconds: u64,

    /// Memory for the cache of series, MiB
    #[arg(long, env = "OXTSDB_SERIES_CACHE_MIB", value_name = "MIB", default_value_t = Self::default().series_cache_mib)]
    pub series_cache_mib: usize,

    /// Memory for the caches of names and UIDs, MiB
    #[arg(long, env = "OXTSDB_NAME_CACHE_MIB", value_name = "MIB", default_value_t = Self::default().name_cache_mib)]
    pub name_cache_mib: usize,

    /// Longest time that the UIDs of a series, and names, are taken from memory: what others renamed or
    /// deleted is noticed after so long, and after --uid-cache-ttl-seconds of the UID service; 0: never
    #[arg(long, env = "OXTSDB_NAME_CACHE_TTL_SECONDS", value_name = "SECONDS", default_value_t = Self::default().name_cache_ttl_seconds)]
    pub name_cache_ttl_seconds: u64,

    /// Largest gRPC message that is read, MiB
    #[arg(long, env = "OXTSDB_MAX_MESSAGE_MIB", value_name = "MIB", default_value_t = Self::default().max_message_mib)]
    pub max_message_mib: usize,

    /// Memory for batches of points that are built and not yet confirmed by the store, MiB; more have to wait,
    /// calls for 10 s at most
    #[arg(long, env = "OXTSDB_MAX_WRITES_MIB", value_name = "MIB", default_value_t = Self::default().max_writes_mib)]
    pub max_writes_mib: usize,

    /// In which form points are stored; all forms are read. A point that is written again with another
    /// value replaces the old one if both are single cells or both are appended; beside a compacted cell
    /// OpenTSDB fails to read the row, unless it has tsd.storage.fix_duplicates
    #[arg(long, env = "OXTSDB_WRITE_FORM", value_enum, default_value_t = Self::default().write_form)]
    pub write_form: WriteForm,

    /// Let points wait so long for others of their row, milliseconds; 0: not at all. They are
    /// acknowledged when they are stored, so each write takes so much longer
    #[arg(long, env = "OXTSDB_LINGER_MS", value_name = "MS", default_value_t = Self::default().linger_ms)]
    pub linger_ms: u64,

    /// Give a cell the timestamp of its point, the last one of a compacted cell, for HBase's date-tiered
    /// compaction (tsd.storage.use_otsdb_timestamp). What is deleted cannot be written again before
    /// HBase has cleaned up; not with appends
    #[arg(long, env = "OXTSDB_USE_OTSDB_TIMESTAMP", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub use_otsdb_timestamp: bool,

    /// Keep a row for each series in the table of series metadata on HBase
    /// (tsd.core.meta.enable_tsuid_tracking); on a store of its own the service always does
    #[arg(long, env = "OXTSDB_ENABLE_TSUID_TRACKING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_tsuid_tracking: bool,

    /// With --enable-tsuid-tracking, add 1 to the counter of that row in place of setting it to 1, once
    /// for each series and hour; where OpenTSDB counts points there
    /// (tsd.core.meta.enable_tsuid_incrementing)
    #[arg(long, env = "OXTSDB_ENABLE_TSUID_INCREMENTING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_tsuid_incrementing: bool,

    /// On HBase, take what the table of series metadata has for all series there are, so that queries for
    /// few of many series need not scan for them. Only where every writer tracks its series: this one
    /// with --enable-tsuid-tracking, OpenTSDB with tsd.core.meta.enable_tsuid_tracking, and since the
    /// first point (or since OpenTSDB's `tsdb uid metasync`); points of other series are missing from answers
    #[arg(long, env = "OXTSDB_TRUST_TSUID_TRACKING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub trust_tsuid_tracking: bool,

    /// How old a list of series may be where others write too, seconds: points of a new series of
    /// theirs are found so much later, at most. A list that was too large is tried again after ten times that
    #[arg(long, env = "OXTSDB_SERIES_INDEX_MAX_AGE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().series_index_max_age_seconds)]
    pub series_index_max_age_seconds: u64,

    /// Memory for lists of the series of metrics, MiB
    #[arg(long, env = "OXTSDB_SERIES_INDEX_MIB", value_name = "MIB", default_value_t = Self::default().series_index_mib)]
    pub series_index_mib: usize,

    /// Unacknowledged frames of a write stream
    #[arg(long, env = "OXTSDB_STREAM_WINDOW_FRAMES", value_name = "COUNT", default_value_t = Self::default().stream_window_frames)]
    pub stream_window_frames: u32,

    /// Unacknowledged points of a write stream
    #[arg(long, env = "OXTSDB_STREAM_WINDOW_POINTS", value_name = "COUNT", default_value_t = Self::default().stream_window_points)]
    pub stream_window_points: u64,

    /// Series that a write stream may declare
    #[arg(long, env = "OXTSDB_STREAM_MAX_SERIES", value_name = "COUNT", default_value_t = Self::default().stream_max_series)]
    pub stream_max_series: u32,

    /// Memory for the names that a write stream declares, MiB
    #[arg(long, env = "OXTSDB_STREAM_MAX_SYMBOLS_MIB", value_name = "MIB", default_value_t = Self::default().stream_max_symbols_mib)]
    pub stream_max_symbols_mib: usize,

    /// When the server stops, wait so long for the clients of write streams to close them
    #[arg(long, env = "OXTSDB_STREAM_GRACE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().stream_grace_seconds)]
    pub stream_grace_seconds: u64,

    /// Queries that run at a time; 0: twice as many as there are processors, at least 4
    #[arg(long, env = "OXTSDB_MAX_CONCURRENT_QUERIES", value_name = "COUNT", default_value_t = Self::default().max_concurrent_queries)]
    pub max_concurrent_queries: usize,

    /// Queries that wait for that; more are rejected at once. Clients take turns
    #[arg(long, env = "OXTSDB_MAX_QUEUED_QUERIES", value_name = "COUNT", default_value_t = Self::default().max_queued_queries)]
    pub max_queued_queries: usize,

    /// How long a query waits until it may run, seconds
    #[arg(long, env = "OXTSDB_QUERY_QUEUE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().query_queue_timeout_seconds)]
    pub query_queue_timeout_seconds: u64,

    /// Deadline of queries that bring none, and the latest one of those that do, seconds; 0: none
    #[arg(long, env = "OXTSDB_QUERY_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().query_timeout_seconds)]
    pub query_timeout_seconds: u64,

    /// Cut off a client that reads less than 64 KiB in so long of what waits for it, seconds
    #[arg(long, env = "OXTSDB_CLIENT_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().client_timeout_seconds)]
    pub client_timeout_seconds: u64,

    /// Series that a query may read; 0: no limit. Without it one for each 2 KiB of --memory-limit-mib
    #[arg(long, env = "OXTSDB_QUERY_MAX_SERIES", value_name = "COUNT")]
    pub query_max_series: Option<u64>,

    /// Rows that a query may read, an hour of a series each; 0: no limit. Without it one for each 32 bytes of
    /// --memory-limit-mib
    #[arg(long, env = "OXTSDB_QUERY_MAX_ROWS", value_name = "COUNT")]
    pub query_max_rows: Option<u64>,

    /// Bytes of rows that a query may read; 0: no limit (tsd.query.limits.bytes.default). Without it 16 times
    /// --memory-limit-mib
    #[arg(long, env = "OXTSDB_QUERY_MAX_BYTES", value_name = "BYTES")]
    pub query_max_bytes: Option<u64>,

    /// Memory that a query may hold, MiB: rows, points, and its result until the client has read it; 0: no
    /// limit. Without it half of the memory for queries, at most 1 GiB. Over gRPC a long query emits results
    /// while it runs and frees them; over HTTP, and for expressions, the whole result has to fit
    #[arg(long, env = "OXTSDB_QUERY_MAX_MEMORY_MIB", value_name = "MIB")]
    pub query_max_memory_mib: Option<u64>,

    /// Points that a query may read or a fill policy may make up; 0: no limit
    /// (tsd.query.limits.data_points.default). Without it one for each 4 bytes of --memory-limit-mib
    #[arg(long, env = "OXTSDB_QUERY_MAX_POINTS", value_name = "COUNT")]
    pub query_max_points: Option<u64>,

    /// Connections on the HTTP and telnet port at a time. At the limit the one that has been idle the
    /// longest is closed; if all have requests in progress, new ones are refused
    #[arg(long, env = "OXTSDB_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = Self::default().max_connections)]
    pub max_connections: usize,

    /// Close a connection on the HTTP and telnet port that had no request for so long; 0: never
    /// (tsd.core.socket.timeout)
    #[arg(long, env = "OXTSDB_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().idle_timeout_seconds)]
    pub idle_timeout_seconds: u64,

    /// Largest body of an HTTP request, decompressed, MiB
    #[arg(long, env = "OXTSDB_HTTP_MAX_BODY_MIB", value_name = "MIB", default_value_t = Self::default().http_max_body_mib)]
    pub http_max_body_mib: usize,

    /// Origins of browsers' pages that may call the API over HTTP, separated by commas (`http://host:port`); `*`:
    /// all; empty: only pages of this server's own host. Others are rejected with 403
    /// (tsd.http.request.cors_domains)
    #[arg(long, env = "OXTSDB_CORS_DOMAINS", value_name = "ORIGINS", default_value_t = Self::default().cors_domains)]
    pub cors_domains: String,

    /// Add a stack trace's place to HTTP errors, as OpenTSDB does (tsd.http.show_stack_trace)
    #[arg(long, env = "OXTSDB_HTTP_SHOW_STACK_TRACE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_show_stack_trace: bool,

    /// Longest telnet line, bytes
    #[arg(long, env = "OXTSDB_TELNET_MAX_LINE_BYTES", value_name = "BYTES", default_value_t = Self::default().telnet_max_line_bytes)]
    pub telnet_max_line_bytes: usize,

    /// Most telnet lines in a batch; several batches of a connection are stored at a time
    #[arg(long, env = "OXTSDB_TELNET_BATCH_POINTS", value_name = "COUNT", default_value_t = Self::default().telnet_batch_points)]
    pub telnet_batch_points: usize,
}

impl Default for DataSettings {
    fn default() -> Self {
        Self {
            data_table: data_table::DATA_TABLE.to_owned(),
            meta_table: data_table::META_TABLE.to_owned(),
            tree_table: data_table::TREE_TABLE.to_owned(),
            max_tags: data_table::MAX_TAGS_DEFAULT,
            salt_width: 0,
            salt_buckets: oxtsdb_schema::salt::BUCKETS_DEFAULT,
            fix_duplicates: false,
            expected_uid_widths: None,
            uid_start_timeout_seconds: 60,
            series_cache_mib: 256,
            name_cache_mib: 64,
            name_cache_ttl_seconds: 600,
            max_message_mib: 16,
            max_writes_mib: 128,
            write_form: WriteForm::Auto,
            use_otsdb_timestamp: false,
            linger_ms: 0,
            enable_tsuid_tracking: false,
            enable_tsuid_incrementing: false,
            trust_tsuid_tracking: false,
            series_index_max_age_seconds: 60,
            series_index_mib: 64,
            stream_window_frames: 64,
            stream_window_points: 1_000_000,
            stream_max_series: 1_000_000,
            stream_max_symbols_mib: 64,
            stream_grace_seconds: 10,
            max_concurrent_queries: 0,
            max_queued_queries: 1024,
            query_queue_timeout_seconds: 30,
            query_timeout_seconds: 300,
            client_timeout_seconds: 30,
            query_max_series: None,
            query_max_rows: None,
            query_max_bytes: None,
            query_max_memory_mib: None,
            query_max_points: None,
            max_connections: 4096,
            idle_timeout_seconds: 300,
            http_max_body_mib: 16,
            cors_domains: String::new(),
            http_show_stack_trace: false,
            telnet_max_line_bytes: 1024,
            telnet_batch_points: 4096,
        }
    }
}

impl DataSettings {
    /// Checks what the types alone do not say.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range, with the rule.
    pub fn check(&self) -> Result<(), SettingError> {
        self.data_table_name()?;
        self.meta_table_name()?;
        self.tree_table_name()?;
        self.salt()?;
        self.expected_widths()?;
        in_range("--max-tags", self.max_tags, 1, 64)?;
        in_range("--series-cache-mib", self.series_cache_mib, 1, 1 << 20)?;
        in_range("--name-cache-mib", self.name_cache_mib, 1, 1 << 20)?;
        in_range(
            "--name-cache-ttl-seconds",
            self.name_cache_ttl_seconds,
            0,
            315_360_000,
        )?;
        in_range("--max-message-mib", self.max_message_mib, 1, 1024)?;
        in_range("--max-writes-mib", self.max_writes_mib, 1, 1 << 20)?;
        in_range("--linger-ms", self.linger_ms, 0, 10_000)?;
        if self.use_otsdb_timestamp && self.write_form == WriteForm::Appends {
            let rule = "with --write-form appends a row is one cell, whose timestamp is the store's";
            return Err(SettingError::new("--use-otsdb-timestamp", true, rule));
        }
        if self.trust_tsuid_tracking && !self.enable_tsuid_tracking {
            let rule =
                "expected --enable-tsuid-tracking too, or the series that this service writes are missing";
            return Err(SettingError::new("--trust-tsuid-tracking", true, rule));
        }
        in_range(
            "--series-index-max-age-seconds",
            self.series_index_max_age_seconds,
            1,
            86_400,
        )?;
        in_range("--series-index-mib", self.series_index_mib, 1, 4095)?;
        in_range("--stream-window-frames", self.stream_window_frames, 1, 1 << 20)?;
        in_range("--stream-window-points", self.stream_window_points, 1, 1 << 40)?;
        in_range("--stream-max-series", self.stream_max_series, 1, 1 << 28)?;
        in_range("--stream-max-symbols-mib", self.stream_max_symbols_mib, 1, 1024)?;
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
        )?;
        in_range("--client-timeout-seconds", self.client_timeout_seconds, 1, 86_400)?;
        in_range("--max-connections", self.max_connections, 1, 1 << 20)?;
        let domains = self.cors_domains.split(',').map(str::trim);
        if domains.clone().count() > 1 && domains.into_iter().any(|domain| domain == "*") {
            let rule = "`*` allows all origins, expected it alone";
            return Err(SettingError::new(
                "--cors-domains",
                format_args!("`{}`", self.cors_domains),
                rule,
            ));
        }
        in_range("--http-max-body-mib", self.http_max_body_mib, 1, 1024)?;
        in_range("--telnet-max-line-bytes", self.telnet_max_line_bytes, 64, 1 << 20)?;
        in_range("--telnet-batch-points", self.telnet_batch_points, 1, 1 << 20)
    }

    /// Memory that the caches want and writes on their way to the store, in bytes.
    pub fn fixed_bytes(&self) -> u64 {
        let mib = self.series_cache_mib + self.name_cache_mib + self.series_index_mib + self.max_writes_mib;
        (mib as u64) << 20
    }

    /// These settings with caches that fit under the limit of memory.
    #[must_use]
    pub fn with_fixed_share(mut self, share: &FixedShare) -> Self {
        for mib in [
            &mut self.series_cache_mib,
            &mut self.name_cache_mib,
            &mut self.series_index_mib,
            &mut self.max_writes_mib,
        ] {
            let bytes = share.of((*mib as u64) << 20);
            *mib = usize::try_from(bytes >> 20).unwrap_or(*mib).max(1);
        }
        self
    }

    /// How many queries run at a time.
    pub fn concurrent_queries(&self) -> usize {
        match self.max_concurrent_queries {
            0 => std::thread::available_parallelism().map_or(4, |count| (2 * count.get()).max(4)),
            count => count,
        }
    }

    /// What queries share, with their part of the memory account.
    ///
    /// # Errors
    ///
    /// If the system gives no threads for computation.
    pub fn query_resources(&self, memory: &MemoryAccount) -> std::io::Result<QueryResources> {
        Ok(QueryResources {
            memory: memory.query().clone(),
            admission: Admission::new(AdmissionLimits {
                running: self.concurrent_queries(),
                queued: self.max_queued_queries,
                wait: Duration::from_secs(self.query_queue_timeout_seconds),
            }),
            compute: ComputePool::with_default_threads()?,
            expressions: ComputePool::with_default_threads()?,
            timeout: (self.query_timeout_seconds > 0)
                .then(|| Duration::from_secs(self.query_timeout_seconds)),
            client_timeout: self.client_timeout(),
        })
    }

    /// How long a client may leave unread what it is sent.
    pub fn client_timeout(&self) -> Duration {
        Duration::from_secs(self.client_timeout_seconds)
    }

    /// What a query may use.
    pub fn query_limits(&self, memory: &MemoryAccount) -> Limits {
        let all = memory.limit_bytes();
        // One large query may take half of the pool, as long as others leave that free.
        let share = memory.query().limit_bytes() / 2;
        let memory = self.query_max_memory_mib.map(|mib| mib.saturating_mul(1 << 20));
        Limits {
            series: Limit::of_setting_or("--query-max-series", self.query_max_series, all / 2048),
            rows: Limit::of_setting_or("--query-max-rows", self.query_max_rows, all / 32),
            bytes: Limit::of_setting_or("--query-max-bytes", self.query_max_bytes, all.saturating_mul(16)),
            points: Limit::of_setting_or("--query-max-points", self.query_max_points, all / 4),
            memory: Limit::of_setting_or(
                "--query-max-memory-mib",
                memory,
                share.min(MOST_MEMORY_OF_A_QUERY),
            ),
        }
    }

    /// The table of points.
    ///
    /// # Errors
    ///
    /// If it is no name of a table.
    pub fn data_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--data-table", &self.data_table)
    }

    /// The table of series metadata.
    ///
    /// # Errors
    ///
    /// If it is no name of a table.
    pub fn meta_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--meta-table", &self.meta_table)
    }

    /// The table of trees.
    ///
    /// # Errors
    ///
    /// If it is no name of a table.
    pub fn tree_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--tree-table", &self.tree_table)
    }

    /// The salt of row keys.
    ///
    /// # Errors
    ///
    /// If width or buckets are out of range.
    pub fn salt(&self) -> Result<SaltLayout, SettingError> {
        let (width, buckets) = (self.salt_width, self.salt_buckets);
        SaltLayout::new(width, buckets).map_err(|error| {
            SettingError::new(
                "--salt-width and --salt-buckets",
                format_args!("{width} and {buckets}"),
                error,
            )
        })
    }

    /// The row keys of a deployment with these UID widths.
    ///
    /// # Errors
    ///
    /// As [`DataSettings::salt`].
    pub fn row_key_layout(&self, widths: UidWidths) -> Result<RowKeyLayout, SettingError> {
        Ok(RowKeyLayout {
            salt: self.salt()?,
            widths,
        })
    }

    /// The UID widths that the deployment must have, if that was set.
    ///
    /// # Errors
    ///
    /// If it is not three widths.
    pub fn expected_widths(&self) -> Result<Option<UidWidths>, SettingError> {
        let Some(text) = &self.expected_uid_widths else {
            return Ok(None);
        };
        let width = |part: Option<&str>| part?.parse().ok().and_then(|bytes| UidWidth::new(bytes).ok());
        let mut parts = text.split('/');
        let widths = (
            width(parts.next()),
            width(parts.next()),
            width(parts.next()),
            parts.next(),
        );
        let (Some(metric), Some(tagk), Some(tagv), None) = widths else {
            return Err(SettingError::new(
                "--expected-uid-widths",
                format_args!("`{text}`"),
                "expected three widths of 1 to 8 bytes, as 3/3/3",
            ));
        };
        Ok(Some(UidWidths { metric, tagk, tagv }))
    }

    /// How long each cache holds what it learned; `None`: for ever. A stream may have taken a series from
    /// the cache of series, which was made of names that were remembered already: so each of the three
    /// has a third of the time.
    pub(crate) fn cache_ttl(&self) -> Option<Duration> {
        let seconds = self.name_cache_ttl_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds) / 3)
    }

    /// Largest gRPC message that is read, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_mib << 20
    }

    /// Largest body of an HTTP request after decompression, in bytes.
    pub fn http_max_body_bytes(&self) -> usize {
        self.http_max_body_mib << 20
    }

    /// How long a silent connection stays; `None`: for ever.
    pub fn idle_timeout(&self) -> Option<Duration> {
        (self.idle_timeout_seconds > 0).then(|| Duration::from_secs(self.idle_timeout_seconds))
    }

    /// How long a write stream may go on after the server began to stop.
    pub fn stream_grace(&self) -> Duration {
        Duration::from_secs(self.stream_grace_seconds)
    }
}

fn table_name(setting: &'static str, text: &str) -> Result<TableName, SettingError> {
    text.parse()
        .map_err(|error: TableNameError| SettingError::new(setting, format_args!("`{text}`"), error))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        settings: DataSettings,
    }

    #[test]
    fn flags_have_the_defaults_of_the_type() {
        let command = Command::try_parse_from(["data-service"]).unwrap();
        assert_eq!(command.settings, DataSettings::default());
        assert_eq!(DataSettings::default().check(), Ok(()));
    }

    #[test]
    fn a_bad_setting_is_named_with_its_value_and_rule() {
        let check = |change: fn(&mut DataSettings)| {
            let mut settings = DataSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(check(|s| s.max_tags = 0), "--max-tags 0: expected 1 to 64");
        assert_eq!(
            check(|s| s.expected_uid_widths = Some("3/3".into())),
            "--expected-uid-widths `3/3`: expected three widths of 1 to 8 bytes, as 3/3/3"
        );
        assert!(check(|s| s.salt_width = 9).starts_with("--salt-width and --salt-buckets 9 and 20: 9 bytes"));
        assert!(check(|s| s.data_table = "a b".into()).starts_with("--data-table `a b`: "));
    }
}
