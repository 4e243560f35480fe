//! The tables of rollups in a copy.
//!
//! Cells of rollups have ids of aggregators and offsets in rows, and only the configuration says what they mean. An
//! export therefore has the settings that its cells depend on, and a store must have the same; the names of tables may
//! differ.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use data_service::DataSettings;
use oxtsdb_row_store::TableName;
use oxtsdb_schema::RowSpan;
use serde::{Deserialize, Serialize};

use super::roles::{DATA, STATE};

/// The settings that cells of rollups depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RollupHeader {
    /// By aggregator in lower case.
    aggregation_ids: BTreeMap<String, u8>,
    /// By interval.
    intervals: BTreeMap<String, IntervalHeader>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct IntervalHeader {
    row_span: String,
    /// The roles of its tables.
    table: String,
    pre_aggregation_table: String,
}

impl RollupHeader {
    /// Checks that a store reads the cells of an export as they were written; it may have more intervals and aggregators.
    ///
    /// # Errors
    ///
    /// The aggregator or the interval that differs.
    pub(super) fn check(&self, store: Option<&RollupHeader>) -> anyhow::Result<()> {
        let none = RollupHeader::default();
        let store = store.unwrap_or(&none);
        for (aggregator, id) in &self.aggregation_ids {
            let stored = store.aggregation_ids.get(aggregator);
            ensure!(
                stored == Some(id),
                "the export has rollups with id {id} for {aggregator}, the store {}: set --rollups-config",
                stored.map_or_else(|| "none".to_owned(), u8::to_string)
            );
        }
        for (name, interval) in &self.intervals {
            let stored = store.intervals.get(name);
            ensure!(
                stored == Some(interval),
                "the export has rollups of {name} with {interval}, the store {}: set --rollups-config",
                stored.map_or_else(|| "none".to_owned(), |stored| format!("with {stored}"))
            );
        }
        Ok(())
    }
}

impl std::fmt::Display for IntervalHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "rows of {} in tables `{}` and `{}`",
            self.row_span, self.table, self.pre_aggregation_table
        )
    }
}

/// The rollups of a store.
#[derive(Clone, Debug, Default)]
pub(super) struct Rollups {
    /// `None`: there are none.
    pub(super) header: Option<RollupHeader>,
    /// The table of the standing job: read first, so that the job builds again what changed during an export.
    pub(super) state: Option<(String, TableName)>,
    /// The tables of rollups with their roles, without the table of points.
    pub(super) tables: Vec<(String, TableName)>,
}

impl Rollups {
    /// The rollups of `--rollups-config`. A table of several intervals has the role of the first.
    ///
    /// # Errors
    ///
    /// A setting breaks its rule.
    pub(super) fn from_settings(settings: &DataSettings) -> anyhow::Result<Self> {
        let Some(rollups) = settings.rollups.rollups()? else {
            return Ok(Self::default());
        };
        let mut roles = vec![(DATA.to_owned(), settings.tables.data_table_name()?)];
        let mut role_of = |role: String, name: &str| -> anyhow::Result<String> {
            let table = rollups.table(name).context("a table of no interval")?;
            if let Some((role, _)) = roles.iter().find(|(_, other)| other == table) {
                return Ok(role.clone());
            }
            roles.push((role.clone(), table.clone()));
            Ok(role)
        };
        let mut header = RollupHeader::default();
        for (aggregator, id) in rollups.config().aggregators() {
            header.aggregation_ids.insert(aggregator.to_owned(), id);
        }
        for interval in rollups.config().intervals() {
            let name = interval.name();
            let row_span = match interval.row_span() {
                RowSpan::Hours(hours) => format!("{hours}h"),
                RowSpan::Day => "1d".to_owned(),
                RowSpan::Month => "1n".to_owned(),
                RowSpan::Year => "1y".to_owned(),
            };
            let interval = IntervalHeader {
                row_span,
                table: role_of(format!("rollup-{name}"), interval.table())?,
                pre_aggregation_table: role_of(
                    format!("rollup-{name}-pre"),
                    interval.pre_aggregation_table(),
                )?,
            };
            header.intervals.insert(name.to_owned(), interval);
        }
        roles.remove(0);
        Ok(Self {
            header: Some(header),
            state: Some((STATE.to_owned(), settings.tables.rollup_state_table_name()?)),
            tables: roles,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::roles::has_keys_of_points;

    fn rollups(config: &str) -> Rollups {
        let mut settings = DataSettings::default();
        settings.rollups.rollups_config = Some(config.to_owned());
        Rollups::from_settings(&settings).unwrap()
    }

    fn config(tables: [&str; 4]) -> String {
        let [minutes, minutes_pre, hours, hours_pre] = tables;
        format!(
            r#"{{"aggregationIds":{{"sum":0,"count":1}},"intervals":[
                {{"table":"{minutes}","preAggregationTable":"{minutes_pre}","interval":"1m","rowSpan":"1h"}},
                {{"table":"{hours}","preAggregationTable":"{hours_pre}","interval":"1h","rowSpan":"1d"}}]}}"#
        )
    }

    #[test]
    fn tables_have_the_roles_of_their_first_interval() {
        let rollups = rollups(&config(["tsdb", "pre", "h", "pre"]));
        let roles: Vec<_> = rollups
            .tables
            .iter()
            .map(|(role, table)| format!("{role} {table}"))
            .collect();
        assert_eq!(roles, ["rollup-1m-pre pre", "rollup-1h h"]);
        let json = serde_json::to_string(&rollups.header).unwrap();
        assert_eq!(
            json,
            r#"{"aggregation_ids":{"count":1,"sum":0},"intervals":{"1h":{"row_span":"1d","table":"rollup-1h","pre_aggregation_table":"rollup-1m-pre"},"1m":{"row_span":"1h","table":"data","pre_aggregation_table":"rollup-1m-pre"}}}"#
        );
        assert!(
            Rollups::from_settings(&DataSettings::default())
                .unwrap()
                .header
                .is_none()
        );
        assert!(["data", "rollup-1h", "rollup-1h-pre"].map(has_keys_of_points) == [true; 3]);
        assert!(!["uid", "meta", STATE].iter().any(|role| has_keys_of_points(role)));
    }

    #[test]
    fn rejects_stores_that_read_cells_otherwise() {
        let of = |text: &str| rollups(text).header.unwrap();
        let text = config(["tsdb", "pre", "h", "hpre"]);
        let header = of(&text);
        // Other names.
        let other = of(&config(["tsdb", "a", "b", "c"]));
        header.check(Some(&other)).unwrap();
        // More aggregators.
        let more = of(&text.replace(r#""count":1"#, r#""count":1,"max":2"#));
        header.check(Some(&more)).unwrap();
        let error = |header: &RollupHeader, store| header.check(store).unwrap_err().to_string();
        assert_eq!(
            error(&more, Some(&header)),
            "the export has rollups with id 2 for max, the store none: set --rollups-config"
        );
        assert!(error(&header, None).contains("id 1 for count, the store none"));
        let spans = of(&text
            .replace("1d", "2d")
            .replace("1h\",\"rowSpan\":\"2d", "1h\",\"rowSpan\":\"1n"));
        assert_eq!(
            error(&header, Some(&spans)),
            "the export has rollups of 1h with rows of 1d in tables `rollup-1h` and `rollup-1h-pre`, the store with rows of 1n \
             in tables `rollup-1h` and `rollup-1h-pre`: set --rollups-config"
        );
        // One table for both intervals is not two.
        let shared = of(&config(["tsdb", "pre", "h", "pre"]));
        assert!(error(&shared, Some(&header)).contains("`rollup-1m-pre`, the store with"));
    }
}
