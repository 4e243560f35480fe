//! Compaction of rows in HBase.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// Compaction: rows of HBase whose hour is over become one cell.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Compaction")]
pub struct CompactionSettings {
    /// Compact rows on HBase in the background, so many seconds after the end of their hour and after the last write
    /// to them; without it only `tsdb compact` does. Not on the embedded store, which merges its files anyway, and
    /// not with --use-otsdb-timestamp. One of several data services is enough, more of them are safe
    #[arg(long, env = "OXTSDB_COMPACT_ROWS_AFTER", value_name = "SECONDS")]
    pub compact_rows_after: Option<u64>,

    /// Rows that the compaction in the background reads per second at most. It pauses while queries run
    #[arg(long, env = "OXTSDB_COMPACTION_ROWS_PER_SECOND", value_name = "ROWS", default_value_t = Self::default().compaction_rows_per_second)]
    pub compaction_rows_per_second: u64,

    /// Hours that the compaction in the background reads when the service starts and once a day, for points that
    /// were written late; between that, it reads the hours that have ended since
    #[arg(long, env = "OXTSDB_COMPACTION_LOOK_BACK_HOURS", value_name = "HOURS", default_value_t = Self::default().compaction_look_back_hours)]
    pub compaction_look_back_hours: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self {
            compact_rows_after: None,
            compaction_rows_per_second: 1000,
            compaction_look_back_hours: 24,
        }
    }
}

impl CompactionSettings {
    pub(super) fn check(&self, use_otsdb_timestamp: bool) -> Result<(), SettingError> {
        if let Some(seconds) = self.compact_rows_after {
            in_range("--compact-rows-after", seconds, 60, 30 * 86_400)?;
            if use_otsdb_timestamp {
                let rule = "with --use-otsdb-timestamp a point that is written while its row is compacted could be lost";
                return Err(SettingError::new("--compact-rows-after", seconds, rule));
            }
        }
        let rows = self.compaction_rows_per_second;
        in_range("--compaction-rows-per-second", rows, 1, 1_000_000)?;
        let hours = self.compaction_look_back_hours;
        in_range("--compaction-look-back-hours", hours, 1, 10_000)
    }

    /// The age of a row at which it is compacted in the background; `None`: never.
    pub fn after(&self) -> Option<Duration> {
        self.compact_rows_after.map(Duration::from_secs)
    }
}
