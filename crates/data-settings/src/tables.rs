//! Tables and the layout of their row keys.

use clap::Args;
use oxtsdb_row_store::{TableName, TableNameError};
use oxtsdb_schema::{RowKeyLayout, SaltLayout, UidWidth, UidWidths, data_table};
use oxtsdb_server::settings::SettingError;

/// Tables of the data service, and the layout of their row keys.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Tables")]
pub struct TableSettings {
    /// Table of points (tsd.storage.hbase.data_table)
    #[arg(long, env = "OXTSDB_DATA_TABLE", value_name = "NAME", default_value_t = Self::default().data_table)]
    pub data_table: String,

    /// Table of series metadata (tsd.storage.hbase.meta_table)
    #[arg(long, env = "OXTSDB_META_TABLE", value_name = "NAME", default_value_t = Self::default().meta_table)]
    pub meta_table: String,

    /// Table of trees (tsd.storage.hbase.tree_table)
    #[arg(long, env = "OXTSDB_TREE_TABLE", value_name = "NAME", default_value_t = Self::default().tree_table)]
    pub tree_table: String,

    /// Bytes of salt before a row key, 0 to 8; must not change once there is data
    /// (tsd.storage.salt.width)
    #[arg(long, env = "OXTSDB_SALT_WIDTH", value_name = "BYTES", default_value_t = Self::default().salt_width)]
    pub salt_width: usize,

    /// Buckets over which the salt distributes series; must not change once there is data
    /// (tsd.storage.salt.buckets)
    #[arg(long, env = "OXTSDB_SALT_BUCKETS", value_name = "COUNT", default_value_t = Self::default().salt_buckets)]
    pub salt_buckets: u32,

    /// UID widths that the UID service must have, as METRIC/TAGK/TAGV [default: any]
    #[arg(long, env = "OXTSDB_EXPECTED_UID_WIDTHS", value_name = "M/K/V")]
    pub expected_uid_widths: Option<String>,
}

impl Default for TableSettings {
    fn default() -> Self {
        Self {
            data_table: data_table::DATA_TABLE.to_owned(),
            meta_table: data_table::META_TABLE.to_owned(),
            tree_table: data_table::TREE_TABLE.to_owned(),
            salt_width: 0,
            salt_buckets: oxtsdb_schema::salt::BUCKETS_DEFAULT,
            expected_uid_widths: None,
        }
    }
}

impl TableSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.data_table_name()?;
        self.meta_table_name()?;
        self.tree_table_name()?;
        self.salt()?;
        self.expected_widths().map(drop)
    }

    /// The table of points.
    ///
    /// # Errors
    ///
    /// The setting is not the name of a table.
    pub fn data_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--data-table", &self.data_table)
    }

    /// The table of series metadata.
    ///
    /// # Errors
    ///
    /// The setting is not the name of a table.
    pub fn meta_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--meta-table", &self.meta_table)
    }

    /// The table of trees.
    ///
    /// # Errors
    ///
    /// The setting is not the name of a table.
    pub fn tree_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--tree-table", &self.tree_table)
    }

    /// The table of what the job of rollups remembers, which OpenTSDB does not read.
    ///
    /// # Errors
    ///
    /// The name of the table of points is too long.
    pub fn rollup_state_table_name(&self) -> Result<TableName, SettingError> {
        table_name("--data-table", &format!("{}-rollup-state", self.data_table))
    }

    /// The salt of row keys.
    ///
    /// # Errors
    ///
    /// Width or buckets are out of range.
    pub fn salt(&self) -> Result<SaltLayout, SettingError> {
        let (width, buckets) = (self.salt_width, self.salt_buckets);
        SaltLayout::new(width, buckets).map_err(|error| {
            SettingError::new(
                "--salt-width and --salt-buckets",
                format_args!("{width} and {buckets}"),
                error,
            )
        })
    }

    /// The row keys of a deployment with these UID widths.
    ///
    /// # Errors
    ///
    /// As [`TableSettings::salt`].
    pub fn row_key_layout(&self, widths: UidWidths) -> Result<RowKeyLayout, SettingError> {
        Ok(RowKeyLayout {
            salt: self.salt()?,
            widths,
        })
    }

    /// The UID widths that the deployment must have; `None`: any.
    ///
    /// # Errors
    ///
    /// The setting is not three widths.
    pub fn expected_widths(&self) -> Result<Option<UidWidths>, SettingError> {
        let Some(text) = &self.expected_uid_widths else {
            return Ok(None);
        };
        let width = |part: Option<&str>| part?.parse().ok().and_then(|bytes| UidWidth::new(bytes).ok());
        let mut parts = text.split('/');
        let widths = (
            width(parts.next()),
            width(parts.next()),
            width(parts.next()),
            parts.next(),
        );
        let (Some(metric), Some(tagk), Some(tagv), None) = widths else {
            return Err(SettingError::new(
                "--expected-uid-widths",
                format_args!("`{text}`"),
                "expected three widths of 1 to 8 bytes, as 3/3/3",
            ));
        };
        Ok(Some(UidWidths { metric, tagk, tagv }))
    }
}

fn table_name(setting: &'static str, text: &str) -> Result<TableName, SettingError> {
    text.parse()
        .map_err(|error: TableNameError| SettingError::new(setting, format_args!("`{text}`"), error))
}
