//! `/api/config`: the settings of this server under OpenTSDB's names, as texts.
//!
//! Settings that OpenTSDB does not have are listed as `oxtsdb.NAME`, where NAME is the flag's name with `_` for `-`.
//! OpenTSDB's settings without a counterpart here are absent, unless their value is fixed. Values of settings with
//! `pass` in their name are masked.
//!
//! Source: OpenTSDB 2.4, `RpcManager.ShowConfig`, `Config.dumpConfiguration`.

mod endpoint;

use std::collections::BTreeMap;

use oxtsdb_access::Mode;
use oxtsdb_schema::UidKind;

pub(crate) use self::endpoint::config;
use crate::http::cors;
use oxtsdb_data_settings::{DataSettings, WriteForm};
use oxtsdb_metadata::uids::Uids;

/// The text in place of a masked value.
const MASK: &str = "********";

/// Settings by name, sorted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config(BTreeMap<String, String>);

impl Config {
    /// The settings of a data service, and the settings of its UID service that it knows.
    pub(crate) fn new(settings: &DataSettings, uids: &Uids) -> Self {
        let mut config = Self::default();
        config.add_opentsdbs(settings, uids);
        config.add_own(settings);
        config
    }

    fn shown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| {
            let is_secret = name.to_ascii_lowercase().contains("pass");
            (name.as_str(), if is_secret { MASK } else { value.as_str() })
        })
    }

    fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_owned(), value.to_string());
    }

    /// Shows the mode of the server.
    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.set("tsd.mode", mode);
    }

    fn add_opentsdbs(&mut self, settings: &DataSettings, uids: &Uids) {
        let DataSettings {
            connections,
            tables,
            writing,
            histograms,
            series_index,
            queries,
            http,
            ..
        } = settings;
        for (name, value) in [
            ("tsd.core.authentication.enable", false),
            ("tsd.core.auto_create_metrics", uids.auto_creates(UidKind::Metric)),
            ("tsd.core.auto_create_tagks", uids.auto_creates(UidKind::Tagk)),
            ("tsd.core.auto_create_tagvs", uids.auto_creates(UidKind::Tagv)),
            ("tsd.core.enable_api", true),
            ("tsd.core.enable_ui", false),
            (
                "tsd.core.meta.enable_tsuid_incrementing",
                series_index.enable_tsuid_incrementing,
            ),
            (
                "tsd.core.meta.enable_realtime_ts",
                series_index.enable_realtime_ts,
            ),
            (
                "tsd.core.meta.enable_tsuid_tracking",
                series_index.enable_tsuid_tracking,
            ),
            ("tsd.http.query.allow_delete", http.http_allow_delete),
            ("tsd.http.request.enable_chunked", true),
            ("tsd.http.show_stack_trace", http.http_show_stack_trace),
            ("tsd.no_diediedie", true),
            (
                "tsd.storage.enable_appends",
                writing.write_form == WriteForm::Appends,
            ),
            ("tsd.storage.fix_duplicates", queries.fix_duplicates),
            ("tsd.storage.use_otsdb_timestamp", writing.use_otsdb_timestamp),
        ] {
            self.set(name, value);
        }
        let widths = uids.widths();
        for (name, value) in [
            ("tsd.core.connections.limit", connections.max_connections as u64),
            ("tsd.core.socket.timeout", connections.idle_timeout_seconds),
            (
                "tsd.query.limits.bytes.default",
                queries.query_max_bytes.unwrap_or(0),
            ),
            (
                "tsd.query.limits.data_points.default",
                queries.query_max_points.unwrap_or(0),
            ),
            (
                "tsd.query.timeout",
                queries.query_timeout_seconds.saturating_mul(1000),
            ),
            ("tsd.storage.max_tags", writing.max_tags as u64),
            ("tsd.storage.salt.buckets", tables.salt_buckets.into()),
            ("tsd.storage.salt.width", tables.salt_width as u64),
            ("tsd.storage.uid.width.metric", widths.metric.bytes() as u64),
            ("tsd.storage.uid.width.tagk", widths.tagk.bytes() as u64),
            ("tsd.storage.uid.width.tagv", widths.tagv.bytes() as u64),
        ] {
            self.set(name, value);
        }
        for (name, value) in [
            ("tsd.http.request.cors_domains", http.cors_domains.as_str()),
            ("tsd.http.request.cors_headers", cors::HEADER_NAMES),
            ("tsd.mode", "rw"),
            ("tsd.storage.hbase.data_table", &tables.data_table),
            ("tsd.storage.hbase.meta_table", &tables.meta_table),
            ("tsd.storage.hbase.tree_table", &tables.tree_table),
        ] {
            self.set(name, value);
        }
        if let Some(config) = &histograms.histograms_config {
            self.set("tsd.core.histograms.config", config);
        }
    }

    fn add_own(&mut self, settings: &DataSettings) {
        let DataSettings {
            connections,
            memory,
            naming,
            writing,
            series_index,
            queries,
            http,
            telnet,
            ..
        } = settings;
        for (name, value) in [
            ("client_timeout_seconds", connections.client_timeout_seconds),
            ("http_max_body_mib", http.http_max_body_mib as u64),
            ("linger_ms", writing.linger_ms),
            ("max_concurrent_queries", queries.max_concurrent_queries as u64),
            ("max_queued_queries", queries.max_queued_queries as u64),
            ("max_writes_mib", memory.max_writes_mib as u64),
            ("name_cache_mib", memory.name_cache_mib as u64),
            ("name_cache_ttl_seconds", naming.name_cache_ttl_seconds),
            ("query_timeout_seconds", queries.query_timeout_seconds),
            ("series_cache_mib", memory.series_cache_mib as u64),
            (
                "series_index_max_age_seconds",
                series_index.series_index_max_age_seconds,
            ),
            ("series_index_mib", memory.series_index_mib as u64),
            ("telnet_max_line_bytes", telnet.telnet_max_line_bytes as u64),
        ] {
            self.set(&format!("oxtsdb.{name}"), value);
        }
        self.set("oxtsdb.http_buffer_results", http.http_buffer_results);
        let optional = [
            ("query_max_memory_mib", queries.query_max_memory_mib),
            ("query_max_rows", queries.query_max_rows),
            ("query_max_series", queries.query_max_series),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                self.set(&format!("oxtsdb.{name}"), value);
            }
        }
        self.set("oxtsdb.trust_tsuid_tracking", series_index.trust_tsuid_tracking);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_secrets() {
        let mut config = Config::default();
        config.set("tsd.x.PassWord", "secret");
        config.set("tsd.mode", "rw");
        let shown: Vec<_> = config.shown().collect();
        assert_eq!(shown, [("tsd.mode", "rw"), ("tsd.x.PassWord", MASK)]);
    }
}
