//! Settings of the UID service, one type for each group.
//!
//! Each setting is a flag, an environment variable `OXTSDB_…` and a key of the TOML file (the flag's
//! name with `_` for `-`). The heading of a group in `--help` is also its table in the TOML file:
//! *Naming* is `[naming]`. Names in parentheses are OpenTSDB's names of the same settings.

mod changes;

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};
use oxtsdb_resources::FixedShare;
use oxtsdb_schema::name::MAX_LENGTH_DEFAULT;
use oxtsdb_schema::{NameRules, PerKind, UidKind, UidWidth, data_table};
use oxtsdb_server::settings::{SettingError, in_range};
use oxtsdb_uids::cache::CacheLimits;
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::layout::{KindLayout, UidLayout};
use oxtsdb_uids::policy::watch::PolicySource;

pub use self::changes::UidChangeSettings;

/// Settings of the UID service.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct UidSettings {
    /// The caches of the UID service.
    #[command(flatten)]
    pub memory: UidMemorySettings,
    /// The table of UIDs, and their widths.
    #[command(flatten)]
    pub tables: UidTableSettings,
    /// The rules of names, and when they are assigned UIDs.
    #[command(flatten)]
    pub naming: UidNamingSettings,
    /// Renames and deletes, and how others learn of them.
    #[command(flatten)]
    pub changes: UidChangeSettings,
}

/// The table of UIDs, and their widths.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Tables")]
pub struct UidTableSettings {
    /// Table of the UIDs, `[namespace:]name` (tsd.storage.hbase.uid_table)
    #[arg(long, env = "OXTSDB_UID_TABLE", value_name = "TABLE", default_value_t = Self::default().uid_table)]
    pub uid_table: String,

    /// Bytes of a metric UID, 1 to 8; must not change once there is data
    /// (tsd.storage.uid.width.metric)
    #[arg(long, env = "OXTSDB_UID_WIDTH_METRIC", value_name = "BYTES", default_value_t = Self::default().uid_width_metric)]
    pub uid_width_metric: usize,

    /// Bytes of a tag key UID, as above (tsd.storage.uid.width.tagk)
    #[arg(long, env = "OXTSDB_UID_WIDTH_TAGK", value_name = "BYTES", default_value_t = Self::default().uid_width_tagk)]
    pub uid_width_tagk: usize,

    /// Bytes of a tag value UID, as above (tsd.storage.uid.width.tagv)
    #[arg(long, env = "OXTSDB_UID_WIDTH_TAGV", value_name = "BYTES", default_value_t = Self::default().uid_width_tagv)]
    pub uid_width_tagv: usize,
}

impl Default for UidTableSettings {
    fn default() -> Self {
        let width = UidWidth::DEFAULT.bytes();
        Self {
            uid_table: data_table::UID_TABLE.to_owned(),
            uid_width_metric: width,
            uid_width_tagk: width,
            uid_width_tagv: width,
        }
    }
}

/// The rules of names, and when they are assigned UIDs.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Naming")]
pub struct UidNamingSettings {
    /// Assign a UID to an unknown metric when its first point is written
    /// (tsd.core.auto_create_metrics)
    #[arg(long, env = "OXTSDB_AUTO_CREATE_METRICS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = Self::default().auto_create_metrics, action = ArgAction::Set)]
    pub auto_create_metrics: bool,

    /// Assign a UID to an unknown tag key when its first point is written
    /// (tsd.core.auto_create_tagks)
    #[arg(long, env = "OXTSDB_AUTO_CREATE_TAGKS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = Self::default().auto_create_tagks, action = ArgAction::Set)]
    pub auto_create_tagks: bool,

    /// Assign a UID to an unknown tag value when its first point is written
    /// (tsd.core.auto_create_tagvs)
    #[arg(long, env = "OXTSDB_AUTO_CREATE_TAGVS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = Self::default().auto_create_tagvs, action = ArgAction::Set)]
    pub auto_create_tagvs: bool,

    /// Assign random metric UIDs, which distributes new metrics over the key space
    /// (tsd.core.uid.random_metrics)
    #[arg(long, env = "OXTSDB_RANDOM_METRIC_UIDS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = Self::default().random_metric_uids, action = ArgAction::Set)]
    pub random_metric_uids: bool,

    /// Store a document of metadata with each new UID (tsd.core.meta.enable_realtime_uid)
    #[arg(long, env = "OXTSDB_ENABLE_REALTIME_UID", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = Self::default().enable_realtime_uid, action = ArgAction::Set)]
    pub enable_realtime_uid: bool,

    /// Characters allowed in names beside letters, digits and `-_./` [default: none]
    /// (tsd.core.tag.allow_specialchars)
    #[arg(long, env = "OXTSDB_EXTRA_NAME_CHARACTERS", value_name = "CHARACTERS", default_value_t = Self::default().extra_name_characters, hide_default_value = true)]
    pub extra_name_characters: String,

    /// Maximum length of a name, characters, 1 to 32766
    #[arg(long, env = "OXTSDB_MAX_NAME_LENGTH", value_name = "CHARACTERS", default_value_t = Self::default().max_name_length)]
    pub max_name_length: usize,

    /// File with the rules and quotas of new names, TOML; read again when it changes. They apply to writes, not
    /// to explicit assignments
    #[arg(long, env = "OXTSDB_ASSIGNMENT_RULES", value_name = "FILE")]
    pub assignment_rules: Option<PathBuf>,

    /// Regular expressions, each of which a new metric must contain [default: none]
    /// (tsd.uidfilter.whitelist.metric_patterns)
    #[arg(long, env = "OXTSDB_UID_WHITELIST_METRICS", value_name = "REGEX,…", default_value_t = Self::default().uid_whitelist_metrics, hide_default_value = true)]
    pub uid_whitelist_metrics: String,

    /// As above, for tag keys (tsd.uidfilter.whitelist.tagk_patterns)
    #[arg(long, env = "OXTSDB_UID_WHITELIST_TAGKS", value_name = "REGEX,…", default_value_t = Self::default().uid_whitelist_tagks, hide_default_value = true)]
    pub uid_whitelist_tagks: String,

    /// As above, for tag values (tsd.uidfilter.whitelist.tagv_patterns)
    #[arg(long, env = "OXTSDB_UID_WHITELIST_TAGVS", value_name = "REGEX,…", default_value_t = Self::default().uid_whitelist_tagvs, hide_default_value = true)]
    pub uid_whitelist_tagvs: String,

    /// What separates the expressions of the three options above (tsd.uidfilter.whitelist.delimiter)
    #[arg(long, env = "OXTSDB_UID_WHITELIST_DELIMITER", value_name = "TEXT", default_value_t = Self::default().uid_whitelist_delimiter)]
    pub uid_whitelist_delimiter: String,

    /// How long a UID without references stays in quarantine before it can be released, and as long again before
    /// it can be assigned, seconds; longer than any cache of UIDs holds a mapping
    #[arg(long, env = "OXTSDB_RECLAIM_QUARANTINE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().reclaim_quarantine_seconds)]
    pub reclaim_quarantine_seconds: u64,

    /// How long the UID service caches a mapping, seconds. Renames and deletes by other programs take effect
    /// after that; 0: entries do not expire
    #[arg(long, env = "OXTSDB_UID_CACHE_TTL_SECONDS", value_name = "SECONDS", default_value_t = Self::default().uid_cache_ttl_seconds)]
    pub uid_cache_ttl_seconds: u64,
}

impl Default for UidNamingSettings {
    fn default() -> Self {
        Self {
            auto_create_metrics: true,
            auto_create_tagks: true,
            auto_create_tagvs: true,
            random_metric_uids: false,
            enable_realtime_uid: false,
            extra_name_characters: String::new(),
            max_name_length: MAX_LENGTH_DEFAULT,
            assignment_rules: None,
            uid_whitelist_metrics: String::new(),
            uid_whitelist_tagks: String::new(),
            uid_whitelist_tagvs: String::new(),
            uid_whitelist_delimiter: ",".to_owned(),
            reclaim_quarantine_seconds: 86_400,
            uid_cache_ttl_seconds: 300,
        }
    }
}

/// The caches of the UID service.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(next_help_heading = "Memory")]
pub struct UidMemorySettings {
    /// Cache of the UID service for each direction, names and UIDs, MiB; 0: no cache
    #[arg(long, env = "OXTSDB_UID_CACHE_MIB", value_name = "MIB", default_value_t = Self::default().uid_cache_mib)]
    pub uid_cache_mib: u64,
}

impl Default for UidMemorySettings {
    fn default() -> Self {
        Self { uid_cache_mib: 128 }
    }
}

const MIB: u64 = 1 << 20;

/// Ten years.
const MAX_TTL_SECONDS: u64 = 315_360_000;

impl UidSettings {
    /// Memory of the caches, in bytes: one for each direction.
    pub const fn fixed_bytes(&self) -> u64 {
        self.memory.uid_cache_mib.saturating_mul(2 * MIB)
    }

    /// These settings with caches that fit under the memory limit.
    #[must_use]
    pub fn with_fixed_share(mut self, share: &FixedShare) -> Self {
        let bytes = self.memory.uid_cache_mib.saturating_mul(MIB);
        self.memory.uid_cache_mib = share.scale(bytes) / MIB;
        self
    }

    /// Checks ranges, and settings that exclude or require each other.
    ///
    /// # Errors
    ///
    /// The first setting that breaks its rule.
    pub fn check(&self) -> Result<UidConfig, SettingError> {
        let Self {
            tables,
            naming,
            memory,
            changes,
        } = self;
        let of_table = tables
            .uid_table
            .parse()
            .and_then(UidConfig::new)
            .map_err(|error| {
                SettingError::new("--uid-table", format_args!("`{}`", tables.uid_table), error)
            })?;
        let metric = width("--uid-width-metric", tables.uid_width_metric)?;
        if naming.random_metric_uids && metric.bytes() > 7 {
            return Err(SettingError::new(
                "--random-metric-uids",
                true,
                format_args!("random UIDs have at most 7 bytes, --uid-width-metric is {metric}"),
            ));
        }
        let kinds = PerKind {
            metric: KindLayout {
                width: metric,
                random: naming.random_metric_uids,
                auto_create: naming.auto_create_metrics,
            },
            tagk: KindLayout {
                width: width("--uid-width-tagk", tables.uid_width_tagk)?,
                random: false,
                auto_create: naming.auto_create_tagks,
            },
            tagv: KindLayout {
                width: width("--uid-width-tagv", tables.uid_width_tagv)?,
                random: false,
                auto_create: naming.auto_create_tagvs,
            },
        };
        let name_rules = naming.name_rules()?;
        let ttl_seconds = naming.uid_cache_ttl_seconds;
        in_range("--uid-cache-ttl-seconds", ttl_seconds, 0, MAX_TTL_SECONDS)?;
        Ok(UidConfig {
            layout: UidLayout {
                kinds,
                name_rules,
                realtime_meta: naming.enable_realtime_uid,
            },
            cache: CacheLimits {
                bytes: memory.uid_cache_mib.saturating_mul(MIB),
                ttl: (ttl_seconds > 0).then(|| Duration::from_secs(ttl_seconds)),
            },
            quarantine: naming.quarantine()?,
            policy: naming.policy()?,
            log_retention: changes.log_retention()?,
            max_watches: changes.max_watches()?,
            scan_interval: changes.scan_interval()?,
            ..of_table
        })
    }
}

impl UidNamingSettings {
    fn quarantine(&self) -> Result<Duration, SettingError> {
        // The data services' caches are not known here.
        let least = self.uid_cache_ttl_seconds.max(1);
        let seconds = self.reclaim_quarantine_seconds;
        in_range("--reclaim-quarantine-seconds", seconds, least, MAX_TTL_SECONDS)?;
        Ok(Duration::from_secs(seconds))
    }

    fn policy(&self) -> Result<PolicySource, SettingError> {
        let delimiter = self.uid_whitelist_delimiter.clone();
        if delimiter.is_empty() {
            let rule = "is empty, it separates expressions";
            return Err(SettingError::new("--uid-whitelist-delimiter", "", rule));
        }
        let whitelist = |kind, setting, patterns: &String| (kind, setting, patterns.clone());
        Ok(PolicySource {
            file: self.assignment_rules.clone(),
            whitelists: vec![
                whitelist(
                    UidKind::Metric,
                    "--uid-whitelist-metrics",
                    &self.uid_whitelist_metrics,
                ),
                whitelist(UidKind::Tagk, "--uid-whitelist-tagks", &self.uid_whitelist_tagks),
                whitelist(UidKind::Tagv, "--uid-whitelist-tagvs", &self.uid_whitelist_tagvs),
            ],
            delimiter,
        })
    }

    fn name_rules(&self) -> Result<NameRules, SettingError> {
        let extra_characters = self.extra_name_characters.clone();
        // A zero byte as a name would be the row of the counters; other control characters are invisible.
        let invalid = |c: &char| c.is_control() || u32::from(*c) > 0xff;
        if let Some(character) = extra_characters.chars().find(invalid) {
            return Err(SettingError::new(
                "--extra-name-characters",
                format_args!("{extra_characters:?}"),
                format_args!("{character:?} is a control character or not in ISO-8859-1"),
            ));
        }
        let max_length = self.max_name_length;
        in_range("--max-name-length", max_length, 1, MAX_LENGTH_DEFAULT)?;
        Ok(NameRules {
            extra_characters,
            max_length,
        })
    }
}

fn width(setting: &'static str, bytes: usize) -> Result<UidWidth, SettingError> {
    UidWidth::new(bytes).map_err(|error| SettingError::new(setting, bytes, error))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn defaults_are_opentsdb_s_except_for_auto_create() {
        let config = UidSettings::default().check().unwrap();
        assert_eq!(config.table.to_string(), "tsdb-uid");
        let of_table = UidConfig::new(config.table.clone()).unwrap();
        assert_eq!(
            config,
            UidConfig {
                policy: config.policy.clone(),
                ..of_table
            }
        );
        let usual = KindLayout {
            width: UidWidth::DEFAULT,
            random: false,
            auto_create: true,
        };
        let kinds = PerKind {
            metric: usual,
            tagk: usual,
            tagv: usual,
        };
        assert_eq!(
            config.layout,
            UidLayout {
                kinds,
                name_rules: NameRules::default(),
                realtime_meta: false,
            }
        );
    }

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        settings: UidSettings,
    }

    #[test]
    fn flags_have_the_defaults_of_the_types() {
        let settings = |arguments: &[&str]| Command::try_parse_from(arguments).unwrap().settings;
        assert_eq!(settings(&["uid-service"]), UidSettings::default());
        let set = settings(&["uid-service", "--random-metric-uids", "--auto-create-tagks=false"]);
        assert!(set.naming.random_metric_uids && !set.naming.auto_create_tagks);
    }

    #[test]
    fn errors_name_setting_value_and_rule() {
        let check = |change: fn(&mut UidSettings)| {
            let mut settings = UidSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(
            check(|s| s.tables.uid_width_tagv = 9),
            "--uid-width-tagv 9: 9 bytes is not a UID width, expected 1 to 8"
        );
        assert_eq!(
            check(|s| (s.naming.random_metric_uids, s.tables.uid_width_metric) = (true, 8)),
            "--random-metric-uids true: random UIDs have at most 7 bytes, --uid-width-metric is 8"
        );
        assert_eq!(
            check(|s| s.naming.extra_name_characters = " \0".into()),
            "--extra-name-characters \" \\0\": '\\0' is a control character or not in ISO-8859-1"
        );
        assert_eq!(
            check(|s| s.naming.max_name_length = 0),
            "--max-name-length 0: expected 1 to 32766"
        );
        assert!(check(|s| s.tables.uid_table = "a b".into()).starts_with("--uid-table `a b`: "));
    }
}
