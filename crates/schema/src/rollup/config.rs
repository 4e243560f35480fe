//! The setting of rollups: intervals, and the ids of aggregators.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use super::interval::{IntervalError, IntervalText, RollupInterval};

/// The largest aggregation id.
const MAX_ID: i64 = 127;

/// The rollups of a deployment: OpenTSDB's setting `tsd.rollups.config`.
///
/// ```text
///   {"aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
///    "intervals": [{"table": "tsdb", "preAggregationTable": "tsdb-agg", "interval": "1m", "rowSpan": "1h",
///                   "defaultInterval": true},
///                  {"table": "tsdb-1h", "preAggregationTable": "tsdb-1h-agg", "interval": "1h", "rowSpan": "1d"}]}
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupConfig {
    /// By aggregator in lower case.
    ids: BTreeMap<String, u8>,
    intervals: Vec<RollupInterval>,
}

/// Why a configuration is rejected. Messages of OpenTSDB where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RollupConfigError {
    /// Not the JSON object of a configuration.
    #[error("expected a JSON object with aggregationIds and intervals: {reason}")]
    Json {
        /// The error of the parser.
        reason: String,
    },
    /// No intervals.
    #[error("Rollup config given but no intervals were found.")]
    NoIntervals,
    /// No ids.
    #[error("Rollup config given but no aggegation ID mappings found.")]
    NoIds,
    /// An interval that is not valid.
    #[error("interval `{interval}`: {error}")]
    Interval {
        /// Its text.
        interval: String,
        /// The broken rule.
        #[source]
        error: IntervalError,
    },
    /// An interval twice.
    #[error("Only one interval of each type can be configured: {interval}")]
    SameInterval {
        /// Its text.
        interval: String,
    },
    /// Two default intervals.
    #[error("Multiple default intervals configured. Only one is allowed: {interval}")]
    ManyDefaults {
        /// The second one.
        interval: String,
    },
    /// An id out of range.
    #[error("ID for aggregator must be between 0 and {MAX_ID}: {aggregator}={id}")]
    Id {
        /// The aggregator.
        aggregator: String,
        /// Its id.
        id: i64,
    },
    /// An id twice.
    #[error("Multiple mappings for the ID '{id}' are not allowed.")]
    SameId {
        /// The id.
        id: u8,
    },
}

/// An aggregator without an id. Has OpenTSDB's message.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("No ID found mapping to aggregator: {aggregator}")]
pub struct NoIdError {
    /// The aggregator, as given.
    pub aggregator: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigText {
    #[serde(default)]
    aggregation_ids: BTreeMap<String, i64>,
    #[serde(default)]
    intervals: Vec<IntervalText>,
}

impl RollupConfig {
    /// Parses OpenTSDB's JSON. Unknown fields are ignored; whether there are aggregators of these names is the caller's
    /// check.
    ///
    /// # Errors
    ///
    /// [`RollupConfigError`].
    pub fn parse(json: &str) -> Result<RollupConfig, RollupConfigError> {
        let text: ConfigText = serde_json::from_str(json).map_err(|error| RollupConfigError::Json {
            reason: error.to_string(),
        })?;
        let mut intervals: Vec<RollupInterval> = Vec::with_capacity(text.intervals.len());
        for text in text.intervals {
            let interval = text.interval.clone().unwrap_or_default();
            let parsed = match RollupInterval::try_from(text) {
                Ok(parsed) => parsed,
                Err(error) => return Err(RollupConfigError::Interval { interval, error }),
            };
            if intervals.iter().any(|other| other.name() == interval) {
                return Err(RollupConfigError::SameInterval { interval });
            }
            if parsed.is_default() && intervals.iter().any(RollupInterval::is_default) {
                return Err(RollupConfigError::ManyDefaults { interval });
            }
            intervals.push(parsed);
        }
        if intervals.is_empty() {
            return Err(RollupConfigError::NoIntervals);
        }
        if text.aggregation_ids.is_empty() {
            return Err(RollupConfigError::NoIds);
        }
        let mut ids = BTreeMap::new();
        for (aggregator, id) in text.aggregation_ids {
            let valid = u8::try_from(id).ok().filter(|_| id <= MAX_ID);
            let Some(valid) = valid else {
                return Err(RollupConfigError::Id { aggregator, id });
            };
            if ids.values().any(|other| *other == valid) {
                return Err(RollupConfigError::SameId { id: valid });
            }
            ids.insert(aggregator.to_lowercase(), valid);
        }
        Ok(RollupConfig { ids, intervals })
    }

    /// The intervals as configured.
    pub fn intervals(&self) -> &[RollupInterval] {
        &self.intervals
    }

    /// The interval of a text.
    pub fn interval(&self, name: &str) -> Option<&RollupInterval> {
        self.intervals.iter().find(|interval| interval.name() == name)
    }

    /// The interval of raw points.
    pub fn default_interval(&self) -> Option<&RollupInterval> {
        self.intervals.iter().find(|interval| interval.is_default())
    }

    /// The intervals that divide a length, the longest first.
    pub fn intervals_of(&self, seconds: u32) -> Vec<&RollupInterval> {
        let divides = |interval: &&RollupInterval| seconds > 0 && seconds.is_multiple_of(interval.seconds());
        let mut matching: Vec<_> = self.intervals.iter().filter(divides).collect();
        matching.sort_by_key(|interval| std::cmp::Reverse(interval.seconds()));
        matching.dedup_by_key(|interval| interval.seconds());
        matching
    }

    /// The id of an aggregator, in any case.
    ///
    /// # Errors
    ///
    /// [`NoIdError`] if it has none.
    pub fn id(&self, aggregator: &str) -> Result<u8, NoIdError> {
        let id = self.ids.get(&aggregator.to_lowercase()).copied();
        id.ok_or_else(|| NoIdError {
            aggregator: aggregator.to_owned(),
        })
    }

    /// The aggregators that have ids, in lower case, with their ids.
    pub fn aggregators(&self) -> impl Iterator<Item = (&str, u8)> {
        self.ids.iter().map(|(aggregator, id)| (aggregator.as_str(), *id))
    }

    /// All tables, without duplicates, ascending.
    pub fn tables(&self) -> Vec<&str> {
        let of = |interval| {
            [
                RollupInterval::table(interval),
                RollupInterval::pre_aggregation_table(interval),
            ]
        };
        let mut tables: Vec<_> = self.intervals.iter().flat_map(of).collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}
