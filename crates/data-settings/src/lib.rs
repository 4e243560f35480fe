//! Settings of the data service, one type for each group.
//!
//! Each setting is a flag, an environment variable `OXTSDB_…` and a key of the TOML file (the flag's
//! name with `_` for `-`). The heading of a group in `--help` is also its table in the TOML file:
//! *Write streams* is `[write_streams]`. Names in parentheses are OpenTSDB's names of the same
//! settings.
//!
//! This crate converts and checks values and knows no other part of the service.

mod compaction;
mod connections;
mod histograms;
mod memory;
mod naming;
mod point_store;
mod queries;
mod rollups;
mod series_index;
mod tables;
mod text_search;
mod trees;
mod uid_client;
mod writing;

pub use compaction::CompactionSettings;
pub use connections::{ConnectionSettings, HttpSettings, PICTURE_CACHE_BYTES, TelnetSettings};
pub use histograms::HistogramSettings;
pub use memory::MemorySettings;
pub use naming::NamingSettings;
pub use point_store::PointStoreSettings;
pub use queries::QuerySettings;
pub use rollups::{JobRules, RollupSettings};
pub use series_index::SeriesIndexSettings;
pub use tables::TableSettings;
pub use text_search::{TEXT_SEARCH_IS_BUILT, TEXT_SEARCH_MEMORY_BYTES, TextSearchSettings};
pub use trees::TreeSettings;
pub use uid_client::{ClientAccess, UidAccess};
pub use writing::{StreamSettings, WriteForm, WriteSettings};

use oxtsdb_resources::FixedShare;
use oxtsdb_server::settings::SettingError;

/// Settings of the data service.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct DataSettings {
    /// Connections with clients, of all protocols.
    #[command(flatten)]
    pub connections: ConnectionSettings,
    /// Caches and buffers.
    #[command(flatten)]
    pub memory: MemorySettings,
    /// Tables and row keys.
    #[command(flatten)]
    pub tables: TableSettings,
    /// Names and UIDs, which the UID service resolves.
    #[command(flatten)]
    pub naming: NamingSettings,
    /// Writes of all protocols.
    #[command(flatten)]
    pub writing: WriteSettings,
    /// Histograms.
    #[command(flatten)]
    pub histograms: HistogramSettings,
    /// Write streams of gRPC.
    #[command(flatten)]
    pub streams: StreamSettings,
    /// The embedded store of points.
    #[command(flatten)]
    pub point_store: PointStoreSettings,
    /// Compaction of rows in HBase.
    #[command(flatten)]
    pub compaction: CompactionSettings,
    /// The index of the series of each metric.
    #[command(flatten)]
    pub series_index: SeriesIndexSettings,
    /// Rollups and pre-aggregates.
    #[command(flatten)]
    pub rollups: RollupSettings,
    /// Trees.
    #[command(flatten)]
    pub trees: TreeSettings,
    /// Free-text search over metadata.
    #[command(flatten)]
    pub text_search: TextSearchSettings,
    /// Queries of all protocols.
    #[command(flatten)]
    pub queries: QuerySettings,
    /// HTTP.
    #[command(flatten)]
    pub http: HttpSettings,
    /// Telnet.
    #[command(flatten)]
    pub telnet: TelnetSettings,
}

impl DataSettings {
    /// These settings with caches that fit under the memory limit.
    #[must_use]
    pub fn with_fixed_share(mut self, share: &FixedShare) -> Self {
        self.memory.reduce_to(share);
        self
    }

    /// Memory of a fixed size, in bytes.
    pub fn fixed_bytes(&self) -> u64 {
        self.memory.fixed_bytes() + self.text_search.fixed_bytes() + PICTURE_CACHE_BYTES
    }

    /// Checks ranges, and settings that exclude or require each other.
    ///
    /// # Errors
    ///
    /// The first setting that breaks its rule.
    pub fn check(&self) -> Result<(), SettingError> {
        self.connections.check()?;
        self.memory.check()?;
        self.tables.check()?;
        self.naming.check()?;
        self.writing.check()?;
        self.histograms.check()?;
        self.streams.check()?;
        self.point_store.check()?;
        self.compaction.check(self.writing.use_otsdb_timestamp)?;
        self.series_index.check()?;
        self.rollups.check()?;
        self.text_search.check()?;
        self.queries.check()?;
        self.http.check()?;
        self.telnet.check()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        settings: DataSettings,
    }

    #[test]
    fn flags_have_the_defaults_of_the_types() {
        let command = Command::try_parse_from(["data-service"]).unwrap();
        assert_eq!(command.settings, DataSettings::default());
        assert_eq!(DataSettings::default().check(), Ok(()));
    }

    #[test]
    fn errors_name_setting_value_and_rule() {
        let check = |change: fn(&mut DataSettings)| {
            let mut settings = DataSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert_eq!(
            check(|s| s.writing.max_tags = 0),
            "--max-tags 0: expected 1 to 64"
        );
        assert_eq!(
            check(|s| s.tables.expected_uid_widths = Some("3/3".into())),
            "--expected-uid-widths `3/3`: expected three widths of 1 to 8 bytes, as 3/3/3"
        );
        assert!(
            check(|s| s.tables.salt_width = 9)
                .starts_with("--salt-width and --salt-buckets 9 and 20: 9 bytes")
        );
        let both = check(|s| {
            s.compaction.compact_rows_after = Some(600);
            s.writing.use_otsdb_timestamp = true;
        });
        assert!(
            both.starts_with("--compact-rows-after 600: with --use-otsdb-timestamp"),
            "{both}"
        );
        assert!(check(|s| s.tables.data_table = "a b".into()).starts_with("--data-table `a b`: "));
    }
}
