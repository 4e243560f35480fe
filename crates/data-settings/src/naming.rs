//! Names and UIDs, which the data service resolves through the UID service.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// How the data service uses the UID service.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Naming")]
pub struct NamingSettings {
    /// Time to wait for the UID service at start, seconds
    #[arg(long, env = "OXTSDB_UID_START_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().uid_start_timeout_seconds)]
    pub uid_start_timeout_seconds: u64,

    /// How long the data service caches names, UIDs and the UIDs of a series, seconds. Renames and deletes by
    /// other programs take effect after that plus --uid-cache-ttl-seconds of the UID service; 0: entries do
    /// not expire
    #[arg(long, env = "OXTSDB_NAME_CACHE_TTL_SECONDS", value_name = "SECONDS", default_value_t = Self::default().name_cache_ttl_seconds)]
    pub name_cache_ttl_seconds: u64,

    /// Start although the points in --data-dir were written with another table of UIDs, and use that of the UID
    /// service from now on. For one start after the folder of UIDs was lost; then run `tsdb uid recover`
    #[arg(long, env = "OXTSDB_ACCEPT_UID_TABLE", default_value_t = Self::default().accept_uid_table)]
    pub accept_uid_table: bool,
}

impl Default for NamingSettings {
    fn default() -> Self {
        Self {
            uid_start_timeout_seconds: 60,
            name_cache_ttl_seconds: 600,
            accept_uid_table: false,
        }
    }
}

impl NamingSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range(
            "--name-cache-ttl-seconds",
            self.name_cache_ttl_seconds,
            0,
            315_360_000,
        )
    }

    /// How long to wait for the UID service at start.
    pub fn start_timeout(&self) -> Duration {
        Duration::from_secs(self.uid_start_timeout_seconds)
    }

    /// How long each cache keeps an entry; `None`: without limit.
    ///
    /// Three caches feed each other: a write stream takes a series from the cache of series, which was
    /// built from the cache of names. Each has a third of the time, so that the sum is what is set.
    pub fn cache_ttl(&self) -> Option<Duration> {
        let seconds = self.name_cache_ttl_seconds;
        (seconds > 0).then(|| Duration::from_secs(seconds) / 3)
    }
}
