//! The index of the series of each metric, which is read from the table of series metadata.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// Which series are recorded in the table of series metadata, and whether queries rely on it.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Series index")]
pub struct SeriesIndexSettings {
    /// On HBase, keep a row for each series in the table of series metadata
    /// (tsd.core.meta.enable_tsuid_tracking). The embedded store always does
    #[arg(long, env = "OXTSDB_ENABLE_TSUID_TRACKING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_tsuid_tracking: bool,

    /// Create a document of metadata (ts_meta) for each new series (tsd.core.meta.enable_realtime_ts). On HBase it
    /// needs --enable-tsuid-tracking
    #[arg(long, env = "OXTSDB_ENABLE_REALTIME_TS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_realtime_ts: bool,

    /// Count the points of each series in its row of the table of series metadata, which costs an increment for
    /// each series of a batch of points (tsd.core.meta.enable_tsuid_incrementing). It needs --enable-realtime-ts,
    /// and on HBase --enable-tsuid-tracking
    #[arg(long, env = "OXTSDB_ENABLE_TSUID_INCREMENTING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_tsuid_incrementing: bool,

    /// On HBase, use the table of series metadata as the complete list of series, so that queries that match
    /// few of many series need not scan all rows. Requires that every writer has tracked its series since
    /// the first point (or since OpenTSDB's `tsdb uid metasync`): this one with --enable-tsuid-tracking,
    /// OpenTSDB with tsd.core.meta.enable_tsuid_tracking. Points of untracked series are missing from
    /// results
    #[arg(long, env = "OXTSDB_TRUST_TSUID_TRACKING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub trust_tsuid_tracking: bool,

    /// On HBase, maximum age of a cached list of series, seconds: new series of other writers appear in
    /// results within this time. A list that exceeds --series-index-mib is retried after ten times this time
    #[arg(long, env = "OXTSDB_SERIES_INDEX_MAX_AGE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().series_index_max_age_seconds)]
    pub series_index_max_age_seconds: u64,
}

impl Default for SeriesIndexSettings {
    fn default() -> Self {
        Self {
            enable_tsuid_tracking: false,
            enable_realtime_ts: false,
            enable_tsuid_incrementing: false,
            trust_tsuid_tracking: false,
            series_index_max_age_seconds: 60,
        }
    }
}

impl SeriesIndexSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
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
        )
    }

    /// Longest age of a cached list where other programs write series too.
    pub fn max_age(&self) -> Duration {
        Duration::from_secs(self.series_index_max_age_seconds)
    }
}
