//! Rollups and pre-aggregates.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use oxtsdb_query::{Aggregator, RollupRules, Rollups};
use oxtsdb_schema::RollupConfig;
use oxtsdb_server::settings::{SettingError, in_range};

/// When the standing job of rollups runs and what it builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobRules {
    /// The pause between two passes.
    pub every: Duration,
    /// How long after its end an interval is built.
    pub delay: Duration,
    /// How far back from the end of a pass intervals are built again.
    pub look_back: Duration,
}

/// Rollups of all protocols.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Rollups")]
pub struct RollupSettings {
    /// Tables, intervals and aggregation ids of rollups: JSON, or the path of a file with it that ends in .json
    /// (tsd.rollups.config). Queries that downsample by a multiple of an interval then read its table. Unset:
    /// no rollups
    #[arg(long, env = "OXTSDB_ROLLUPS_CONFIG", value_name = "JSON|FILE")]
    pub rollups_config: Option<String>,

    /// Tag of pre-aggregates, with the aggregator as value (tsd.rollups.agg_tag_key)
    #[arg(long, env = "OXTSDB_ROLLUPS_AGG_TAG_KEY", value_name = "TAGK", default_value_t = Self::default().rollups_agg_tag_key)]
    pub rollups_agg_tag_key: String,

    /// Value of that tag for rollups of single series (tsd.rollups.raw_agg_tag_value)
    #[arg(long, env = "OXTSDB_ROLLUPS_RAW_AGG_TAG_VALUE", value_name = "TAGV", default_value_t = Self::default().rollups_raw_agg_tag_value)]
    pub rollups_raw_agg_tag_value: String,

    /// Give rollups of single series that tag too (tsd.rollups.tag_raw)
    #[arg(long, env = "OXTSDB_ROLLUPS_TAG_RAW", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub rollups_tag_raw: bool,

    /// Reject rollups and pre-aggregates by avg and dev, which cannot be combined further
    /// (tsd.rollups.block_derived)
    #[arg(long, env = "OXTSDB_ROLLUPS_BLOCK_DERIVED", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = true, action = clap::ArgAction::Set)]
    pub rollups_block_derived: bool,

    /// Build rollups of all metrics from points as time passes, as `tsdb rollup` does on request. On one server of a
    /// deployment
    #[arg(long, env = "OXTSDB_ROLLUP_JOBS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub rollup_jobs: bool,

    /// The pause between two passes of --rollup-jobs, seconds
    #[arg(long, env = "OXTSDB_ROLLUP_JOBS_SECONDS", value_name = "SECONDS", default_value_t = Self::default().rollup_jobs_seconds)]
    pub rollup_jobs_seconds: u64,

    /// How long after its end an interval is built by --rollup-jobs, seconds
    #[arg(long, env = "OXTSDB_ROLLUP_JOBS_DELAY_SECONDS", value_name = "SECONDS", default_value_t = Self::default().rollup_jobs_delay_seconds)]
    pub rollup_jobs_delay_seconds: u64,

    /// How far back --rollup-jobs looks for late points, hours: each pass reads the points of so many hours, and builds
    /// again what has changed
    #[arg(long, env = "OXTSDB_ROLLUP_JOBS_LOOK_BACK_HOURS", value_name = "HOURS", default_value_t = Self::default().rollup_jobs_look_back_hours)]
    pub rollup_jobs_look_back_hours: u64,
}

impl Default for RollupSettings {
    fn default() -> Self {
        let RollupRules {
            aggregate_tag,
            raw_value,
            tag_raw,
            block_derived,
        } = RollupRules::default();
        Self {
            rollups_config: None,
            rollups_agg_tag_key: aggregate_tag,
            rollups_raw_agg_tag_value: raw_value,
            rollups_tag_raw: tag_raw,
            rollups_block_derived: block_derived,
            rollup_jobs: false,
            rollup_jobs_seconds: 3600,
            rollup_jobs_delay_seconds: 600,
            rollup_jobs_look_back_hours: 6,
        }
    }
}

impl RollupSettings {
    /// The rollups; `None`: there are none.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the JSON is no configuration.
    pub fn rollups(&self) -> Result<Option<Arc<Rollups>>, SettingError> {
        // An empty text is OpenTSDB's default.
        let Some(config) = self.rollups_config.as_deref().filter(|config| !config.is_empty()) else {
            return Ok(None);
        };
        let wrong = |rule: String| SettingError::new("--rollups-config", format_args!("`{config}`"), rule);
        let parsed = if config.ends_with(".json") {
            let json = std::fs::read_to_string(config).map_err(|error| wrong(error.to_string()))?;
            RollupConfig::parse(&json)
        } else {
            RollupConfig::parse(config)
        };
        let parsed = parsed.map_err(|error| wrong(error.to_string()))?;
        if let Some((name, _)) = parsed
            .aggregators()
            .find(|(name, _)| Aggregator::parse(name).is_none())
        {
            return Err(wrong(format!("No such aggregator found for {name}")));
        }
        let rules = RollupRules {
            aggregate_tag: self.rollups_agg_tag_key.clone(),
            raw_value: self.rollups_raw_agg_tag_value.clone(),
            tag_raw: self.rollups_tag_raw,
            block_derived: self.rollups_block_derived,
        };
        let rollups = Rollups::new(parsed, rules).map_err(|error| wrong(error.to_string()))?;
        Ok(Some(rollups))
    }

    /// When the standing job runs; `None`: there is none.
    pub fn jobs(&self) -> Option<JobRules> {
        self.rollup_jobs.then(|| JobRules {
            every: Duration::from_secs(self.rollup_jobs_seconds),
            delay: Duration::from_secs(self.rollup_jobs_delay_seconds),
            look_back: Duration::from_secs(self.rollup_jobs_look_back_hours * 3600),
        })
    }

    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--rollup-jobs-seconds", self.rollup_jobs_seconds, 1, 604_800)?;
        in_range(
            "--rollup-jobs-delay-seconds",
            self.rollup_jobs_delay_seconds,
            0,
            604_800,
        )?;
        in_range(
            "--rollup-jobs-look-back-hours",
            self.rollup_jobs_look_back_hours,
            0,
            24 * 366,
        )?;
        if self.rollups()?.is_none() && self.rollup_jobs {
            let rule = "needs --rollups-config, which says what to build";
            return Err(SettingError::new("--rollup-jobs", true, rule));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"aggregationIds":{"sum":0},"intervals":[
        {"table":"r1h","preAggregationTable":"r1h-agg","interval":"1h","rowSpan":"1d"}]}"#;

    fn rollups(config: &str) -> Result<Option<usize>, String> {
        let settings = RollupSettings {
            rollups_config: Some(config.to_owned()),
            ..RollupSettings::default()
        };
        let rollups = settings.rollups().map_err(|error| error.to_string())?;
        Ok(rollups.map(|rollups| rollups.tables().count()))
    }

    #[test]
    fn reads_json_or_a_file() {
        assert_eq!(rollups(JSON), Ok(Some(2)));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rollups.json");
        std::fs::write(&file, JSON).unwrap();
        assert_eq!(rollups(file.to_str().unwrap()), Ok(Some(2)));
        assert_eq!(rollups(""), Ok(None));
        assert_eq!(RollupSettings::default().check(), Ok(()));
    }

    #[test]
    fn jobs_need_rollups() {
        let mut settings = RollupSettings {
            rollup_jobs: true,
            ..RollupSettings::default()
        };
        let error = settings.check().unwrap_err().to_string();
        assert!(
            error.starts_with("--rollup-jobs `") || error.starts_with("--rollup-jobs true"),
            "{error}"
        );
        settings.rollups_config = Some(JSON.to_owned());
        assert_eq!(settings.check(), Ok(()));
        settings.rollup_jobs_seconds = 0;
        let error = settings.check().unwrap_err().to_string();
        assert!(error.starts_with("--rollup-jobs-seconds"), "{error}");
    }

    #[test]
    fn errors_name_setting_and_rule() {
        for (config, expected) in [
            ("{}", "Rollup config given but no intervals were found."),
            ("/nowhere/rollups.json", "/nowhere/rollups.json"),
            (
                &JSON.replace("sum", "total"),
                "No such aggregator found for total",
            ),
            (&JSON.replace("r1h-agg", "a b"), "a b"),
        ] {
            let error = rollups(config).unwrap_err();
            assert!(
                error.starts_with("--rollups-config `") && error.contains(expected),
                "{error}"
            );
        }
    }
}
