//! The embedded store of points: retention, memory, work in the background, snapshots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use oxtsdb_server::settings::{SettingError, in_range};

const MIB: u64 = 1 << 20;
const DAY_SECONDS: u64 = 24 * 60 * 60;

/// The longest retention: what 32 bits of seconds hold.
const MAX_RETENTION_DAYS: u64 = 50_000;

/// The default reserve of a disk: one part in `RESERVED_SHARE`, and at most `MAX_RESERVED_BYTES`.
const RESERVED_SHARE: u64 = 20;
const MAX_RESERVED_BYTES: u64 = 1 << 30;

/// The embedded store of points. Not used with --store hbase
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Point store")]
pub struct PointStoreSettings {
    /// Age at which points are dropped, a day of UTC at a time, for example 400d, 12w or 1y (365 days), at least
    /// 1d; 0: points are kept for ever. Older points are rejected. It follows the clock only as far as there are
    /// points, and only to a time that the store can explain: see --confirm-clock
    #[arg(long, env = "OXTSDB_RETENTION", value_name = "DURATION", default_value_t = Self::default().retention)]
    pub retention: String,

    /// Confirms that this day of UTC has come, as YYYY-MM-DD. If the clock is ahead of the time at which the store
    /// was last used by more than --retention, nothing is dropped for that until it is confirmed, since a clock that
    /// is wrong would drop all points. It has no effect on later days
    #[arg(long, env = "OXTSDB_CONFIRM_CLOCK", value_name = "DATE")]
    pub confirm_clock: Option<String>,

    /// Memory of points that are not in files yet, MiB [default: a sixth of --memory-limit-mib, at most 2048]
    #[arg(long, env = "OXTSDB_POINTS_MEMORY_MIB", value_name = "MIB")]
    pub points_memory_mib: Option<u64>,

    /// Cache of pages of files, MiB [default: a twelfth of --memory-limit-mib, at most 4096]
    #[arg(long, env = "OXTSDB_PAGE_CACHE_MIB", value_name = "MIB")]
    pub page_cache_mib: Option<u64>,

    /// Journal of points that are not in files yet, MiB; it bounds the time to read it at a start [default: 1.5
    /// times the memory of points, 256 to 1024]
    #[arg(long, env = "OXTSDB_JOURNAL_MIB", value_name = "MIB")]
    pub journal_mib: Option<u64>,

    /// Time after which points are in files, however few they are, seconds
    #[arg(long, env = "OXTSDB_FLUSH_AFTER_SECONDS", value_name = "SECONDS", default_value_t = Self::default().flush_after_seconds)]
    pub flush_after_seconds: u64,

    /// What merges of files write and checks of files read, MiB per second; 0: no limit
    #[arg(long, env = "OXTSDB_MERGE_MIB_PER_SECOND", value_name = "MIB", default_value_t = Self::default().merge_mib_per_second)]
    pub merge_mib_per_second: u64,

    /// Free space of the disk under which merges stop, MiB; under half of it writes are rejected [default: 5 % of
    /// the disk, at most 1024]
    #[arg(long, env = "OXTSDB_DISK_RESERVE_MIB", value_name = "MIB")]
    pub disk_reserve_mib: Option<u64>,

    /// The only folder in which snapshots are made, on the disk of --data-dir [default: snapshots in --data-dir]
    #[arg(long, env = "OXTSDB_SNAPSHOT_DIR", value_name = "DIR")]
    pub snapshot_dir: Option<PathBuf>,
}

impl Default for PointStoreSettings {
    fn default() -> Self {
        Self {
            retention: "0".to_owned(),
            confirm_clock: None,
            points_memory_mib: None,
            page_cache_mib: None,
            journal_mib: None,
            flush_after_seconds: 3600,
            merge_mib_per_second: 64,
            disk_reserve_mib: None,
            snapshot_dir: None,
        }
    }
}

impl PointStoreSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.retention()?;
        self.clock_confirmed_ms()?;
        let optional = |setting, value: Option<u64>, least, most| match value {
            Some(value) => in_range(setting, value, least, most),
            None => Ok(()),
        };
        optional("--points-memory-mib", self.points_memory_mib, 1, 1 << 20)?;
        optional("--page-cache-mib", self.page_cache_mib, 1, 1 << 20)?;
        optional("--journal-mib", self.journal_mib, 8, 1 << 16)?;
        in_range("--flush-after-seconds", self.flush_after_seconds, 1, DAY_SECONDS)?;
        in_range("--merge-mib-per-second", self.merge_mib_per_second, 0, 1 << 20)?;
        optional("--disk-reserve-mib", self.disk_reserve_mib, 0, 1 << 30)
    }

    /// The age at which points are dropped; `None`: never.
    ///
    /// # Errors
    ///
    /// The setting is not a duration, or shorter than a day.
    pub fn retention(&self) -> Result<Option<Duration>, SettingError> {
        let text = self.retention.trim();
        let rule = |rule: &str| SettingError::new("--retention", format_args!("`{text}`"), rule);
        if text == "0" {
            return Ok(None);
        }
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let number: Option<u64> = number.parse().ok();
        let unit = match unit {
            "s" => Some(1),
            "m" => Some(60),
            "h" => Some(60 * 60),
            "d" => Some(DAY_SECONDS),
            "w" => Some(7 * DAY_SECONDS),
            "n" => Some(30 * DAY_SECONDS),
            "y" => Some(365 * DAY_SECONDS),
            _ => None,
        };
        let seconds = number.zip(unit).map(|(number, unit)| number.saturating_mul(unit));
        match seconds {
            None => Err(rule(
                "expected 0, or a number and a unit (s, m, h, d, w, n: 30 days, y: 365 days), for example 400d",
            )),
            Some(seconds) if seconds < DAY_SECONDS => Err(rule(
                "expected at least 1d, since days are dropped as a whole; 0 keeps all points",
            )),
            Some(seconds) if seconds > MAX_RETENTION_DAYS * DAY_SECONDS => {
                Err(rule("expected at most 50000d; 0 keeps all points"))
            }
            Some(seconds) => Ok(Some(Duration::from_secs(seconds))),
        }
    }

    /// The last instant of the day that the operator confirms, in milliseconds since the epoch.
    ///
    /// # Errors
    ///
    /// The setting is not a day.
    pub fn clock_confirmed_ms(&self) -> Result<Option<i64>, SettingError> {
        let Some(text) = &self.confirm_clock else {
            return Ok(None);
        };
        let end = text.trim().parse().ok().and_then(|day: Date| {
            let next = day.tomorrow().ok()?.to_zoned(TimeZone::UTC).ok()?;
            Some(next.timestamp().as_millisecond() - 1)
        });
        let rule = "expected a day of UTC, for example 2026-11-26";
        let error = || SettingError::new("--confirm-clock", format_args!("`{text}`"), rule);
        end.map(Some).ok_or_else(error)
    }

    /// Memory of points that are not in files, in bytes, under a limit of all memory.
    pub fn head_bytes(&self, memory_limit_bytes: u64) -> u64 {
        let default = || (memory_limit_bytes / 6).clamp(8 * MIB, 2048 * MIB);
        self.points_memory_mib.map_or_else(default, |mib| mib * MIB)
    }

    /// Memory of pages of files, as [`Self::head_bytes`].
    pub fn cache_bytes(&self, memory_limit_bytes: u64) -> u64 {
        let default = || (memory_limit_bytes / 12).clamp(4 * MIB, 4096 * MIB);
        self.page_cache_mib.map_or_else(default, |mib| mib * MIB)
    }

    /// Size of the journal for `head_bytes` of points in memory, in bytes.
    pub fn journal_bytes(&self, head_bytes: u64) -> u64 {
        let default = || (head_bytes / 2).saturating_mul(3).clamp(256 * MIB, 1024 * MIB);
        self.journal_mib.map_or_else(default, |mib| mib * MIB)
    }

    /// Time after which points are in files.
    pub fn flush_after(&self) -> Duration {
        Duration::from_secs(self.flush_after_seconds)
    }

    /// Bytes that merges write per second; 0: no limit.
    pub fn merge_bytes_per_second(&self) -> u64 {
        self.merge_mib_per_second * MIB
    }

    /// The reserve of a disk with `disk_bytes`, in bytes.
    pub fn reserve_bytes(&self, disk_bytes: u64) -> u64 {
        let default = || (disk_bytes / RESERVED_SHARE).min(MAX_RESERVED_BYTES);
        self.disk_reserve_mib.map_or_else(default, |mib| mib * MIB)
    }

    /// The folder of snapshots, for a store below `data_dir`.
    pub fn snapshot_dir(&self, data_dir: &Path) -> PathBuf {
        let default = || data_dir.join("snapshots");
        self.snapshot_dir.clone().unwrap_or_else(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(text: &str) -> Result<Option<u64>, String> {
        let settings = PointStoreSettings {
            retention: text.to_owned(),
            ..PointStoreSettings::default()
        };
        let days = |retention: Duration| retention.as_secs() / DAY_SECONDS;
        let parsed = settings.retention().map(|retention| retention.map(days));
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn retention_is_a_number_and_a_unit() {
        assert_eq!(retention("0"), Ok(None));
        for (text, days) in [
            ("400d", 400),
            ("12w", 84),
            ("1y", 365),
            ("2n", 60),
            ("24h", 1),
            ("1440m", 1),
        ] {
            assert_eq!(retention(text), Ok(Some(days)), "{text}");
        }
    }

    #[test]
    fn retention_is_a_day_at_least() {
        for text in ["23h", "0d", "1s", "86399s"] {
            assert_eq!(
                retention(text).unwrap_err(),
                format!(
                    "--retention `{text}`: expected at least 1d, since days are dropped as a whole; 0 keeps all \
                     points"
                )
            );
        }
        for text in ["", "d", "1", "1.5d", "-1d", "1 d", "1D", "99999999999999999999d"] {
            let error = retention(text).unwrap_err();
            assert!(error.contains("expected 0, or a number and a unit"), "{error}");
        }
        assert!(retention("51000d").unwrap_err().contains("at most 50000d"));
    }

    #[test]
    fn a_clock_is_confirmed_for_a_day() {
        let confirmed = |text: &str| {
            let settings = PointStoreSettings {
                confirm_clock: Some(text.to_owned()),
                ..PointStoreSettings::default()
            };
            settings.clock_confirmed_ms().map_err(|error| error.to_string())
        };
        assert_eq!(confirmed("2026-11-26"), Ok(Some(1_795_737_600_000 - 1)));
        for text in ["", "yes", "2026-11", "2026-02-30", "1795651200"] {
            let error = confirmed(text).unwrap_err();
            assert!(
                error.starts_with(&format!("--confirm-clock `{text}`: expected a day")),
                "{error}"
            );
        }
    }

    #[test]
    fn defaults_suit_small_and_large_machines() {
        let settings = PointStoreSettings::default();
        let sizes = |limit_mib: u64, disk_gib: u64| {
            let head = settings.head_bytes(limit_mib * MIB);
            let cache = settings.cache_bytes(limit_mib * MIB);
            let reserve = settings.reserve_bytes(disk_gib << 30);
            [head, cache, settings.journal_bytes(head), reserve].map(|bytes| bytes / MIB)
        };
        assert_eq!(sizes(1024, 10), [170, 85, 256, 512]);
        assert_eq!(sizes(65_536, 1000), [2048, 4096, 1024, 1024]);
        assert_eq!(sizes(u64::MAX / MIB, 0), [2048, 4096, 1024, 0]);
    }
}
