//! Settings of renames and deletes, and of their watches.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};
use oxtsdb_uids::change::LogRetention;

/// Renames and deletes, and how others learn of them.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Changes")]
pub struct UidChangeSettings {
    /// How many renames and deletes the log keeps, for replicas and watches that were away
    #[arg(long, env = "OXTSDB_UID_LOG_ENTRIES", value_name = "COUNT", default_value_t = Self::default().uid_log_entries)]
    pub uid_log_entries: u64,

    /// How long the log keeps a rename or delete, hours
    #[arg(long, env = "OXTSDB_UID_LOG_HOURS", value_name = "HOURS", default_value_t = Self::default().uid_log_hours)]
    pub uid_log_hours: u64,

    /// Open watches of the UID service (WatchUids) at most
    #[arg(long, env = "OXTSDB_MAX_UID_WATCHES", value_name = "COUNT", default_value_t = Self::default().max_uid_watches)]
    pub max_uid_watches: usize,

    /// Pause between two scans of the UID table for renames and deletes by other programs, seconds; 0: no scans.
    /// On HBase only
    #[arg(long, env = "OXTSDB_UID_SCAN_SECONDS", value_name = "SECONDS", default_value_t = Self::default().uid_scan_seconds)]
    pub uid_scan_seconds: u64,
}

impl Default for UidChangeSettings {
    fn default() -> Self {
        Self {
            uid_log_entries: 10_000,
            uid_log_hours: 168,
            max_uid_watches: 128,
            uid_scan_seconds: 300,
        }
    }
}

/// Ten years.
const MAX_HOURS: u64 = 87_600;

impl UidChangeSettings {
    pub(super) fn scan_interval(&self) -> Result<Option<Duration>, SettingError> {
        in_range("--uid-scan-seconds", self.uid_scan_seconds, 0, MAX_HOURS * 3600)?;
        Ok((self.uid_scan_seconds > 0).then(|| Duration::from_secs(self.uid_scan_seconds)))
    }

    pub(super) fn max_watches(&self) -> Result<usize, SettingError> {
        in_range("--max-uid-watches", self.max_uid_watches, 1, 10_000)?;
        Ok(self.max_uid_watches)
    }

    pub(super) fn log_retention(&self) -> Result<LogRetention, SettingError> {
        in_range("--uid-log-entries", self.uid_log_entries, 1, 1_000_000)?;
        in_range("--uid-log-hours", self.uid_log_hours, 1, MAX_HOURS)?;
        Ok(LogRetention {
            entries: self.uid_log_entries,
            age: Duration::from_secs(self.uid_log_hours * 3600),
        })
    }
}
