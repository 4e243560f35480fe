//! Rollups in queries: the tables of a deployment, and the usage that a request selects.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.ROLLUP_USAGE`.

mod error;

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::{TableName, TableNameError};
use oxtsdb_schema::RollupConfig;

pub use self::error::RollupChoiceError;
pub(crate) use self::error::RollupRowError;

/// Whether a sub-query may read rollups, and the fallback if they have no series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RollupUsage {
    /// Points only.
    Raw,
    /// The best matching rollups; the result is empty if they are.
    #[default]
    NoFallback,
    /// If they are empty, the next shorter interval.
    Fallback,
    /// If they are empty, points.
    FallbackRaw,
}

/// OpenTSDB's names.
const USAGES: [(&str, RollupUsage); 4] = [
    ("ROLLUP_RAW", RollupUsage::Raw),
    ("ROLLUP_NOFALLBACK", RollupUsage::NoFallback),
    ("ROLLUP_FALLBACK", RollupUsage::Fallback),
    ("ROLLUP_FALLBACK_RAW", RollupUsage::FallbackRaw),
];

impl RollupUsage {
    /// Parses OpenTSDB's name in any case; any other text is the default.
    pub fn parse(text: &str) -> RollupUsage {
        Self::named(text).unwrap_or(RollupUsage::NoFallback)
    }

    /// The usage with OpenTSDB's name, in any case.
    pub fn named(text: &str) -> Option<RollupUsage> {
        let entry = USAGES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        entry.map(|(_, usage)| *usage)
    }

    /// OpenTSDB's name.
    pub fn name(self) -> &'static str {
        let entry = USAGES.iter().find(|(_, usage)| *usage == self);
        entry.map_or("", |(name, _)| *name)
    }
}

/// The tables that a sub-query requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RollupRequest {
    /// The use of rollups; `None`: the default.
    pub usage: Option<RollupUsage>,
    /// Read pre-aggregates: values that were combined over several series when they were written.
    pub pre_aggregate: bool,
}

/// The tag of pre-aggregates, and the rules of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupRules {
    /// The tag (`tsd.rollups.agg_tag_key`).
    pub aggregate_tag: String,
    /// Its value for data of single series (`tsd.rollups.raw_agg_tag_value`).
    pub raw_value: String,
    /// Rollups of single series get the tag too (`tsd.rollups.tag_raw`).
    pub tag_raw: bool,
    /// Averages and deviations are rejected (`tsd.rollups.block_derived`).
    pub block_derived: bool,
}

impl Default for RollupRules {
    fn default() -> Self {
        Self {
            aggregate_tag: "_aggregate".to_owned(),
            raw_value: "RAW".to_owned(),
            tag_raw: false,
            block_derived: true,
        }
    }
}

/// The rollups of a deployment.
#[derive(Debug)]
pub struct Rollups {
    config: RollupConfig,
    rules: RollupRules,
    tables: BTreeMap<String, TableName>,
}

impl Rollups {
    /// The rollups of a configuration.
    ///
    /// # Errors
    ///
    /// If a table of the configuration is not the name of one.
    pub fn new(config: RollupConfig, rules: RollupRules) -> Result<Arc<Rollups>, TableNameError> {
        let mut tables = BTreeMap::new();
        for table in config.tables() {
            tables.insert(table.to_owned(), table.parse()?);
        }
        Ok(Arc::new(Rollups {
            config,
            rules,
            tables,
        }))
    }

    /// Intervals and ids.
    pub const fn config(&self) -> &RollupConfig {
        &self.config
    }

    /// The tag of pre-aggregates, and the rules of writes.
    pub const fn rules(&self) -> &RollupRules {
        &self.rules
    }

    /// A table of the configuration.
    pub fn table(&self, name: &str) -> Option<&TableName> {
        self.tables.get(name)
    }

    /// All tables of the configuration.
    pub fn tables(&self) -> impl Iterator<Item = &TableName> {
        self.tables.values()
    }
}
