//! Names of tables, the layout of their keys, and connections with HBase, for commands that open tables themselves.

use anyhow::Context as _;
use clap::Args;
use data_service::DataSettings;
use data_service::settings::TableSettings;
use oxtsdb_schema::{RowKeyLayout, UidWidth, UidWidths};
use oxtsdb_server::store::HbaseSettings;
use uid_service::settings::UidTableSettings;

/// Names of tables, the layout of their keys, and connections, as for `serve`.
#[derive(Args, Clone, Debug)]
pub struct TableArgs {
    /// Table `tsdb-uid`.
    #[command(flatten)]
    pub uid_tables: UidTableSettings,

    /// The tables of the data service.
    #[command(flatten)]
    pub data_tables: TableSettings,

    /// Rollups; their tables are used too: JSON, or the path of a file with it that ends in .json
    /// (tsd.rollups.config)
    #[arg(
        long,
        env = "OXTSDB_ROLLUPS_CONFIG",
        value_name = "JSON|FILE",
        help_heading = "Tables"
    )]
    rollups_config: Option<String>,

    /// Connections with HBase.
    #[command(flatten)]
    pub hbase: HbaseSettings,
}

impl TableArgs {
    /// The layout of row keys.
    ///
    /// # Errors
    ///
    /// A setting is out of its range.
    pub fn layout(&self) -> anyhow::Result<RowKeyLayout> {
        let uids = &self.uid_tables;
        Ok(RowKeyLayout {
            salt: self.data_tables.salt()?,
            widths: UidWidths {
                metric: UidWidth::new(uids.uid_width_metric).context("--uid-width-metric")?,
                tagk: UidWidth::new(uids.uid_width_tagk).context("--uid-width-tagk")?,
                tagv: UidWidth::new(uids.uid_width_tagv).context("--uid-width-tagv")?,
            },
        })
    }

    /// The settings of the data service.
    pub fn data(&self) -> DataSettings {
        let mut data = DataSettings {
            tables: self.data_tables.clone(),
            ..DataSettings::default()
        };
        data.rollups.rollups_config.clone_from(&self.rollups_config);
        data
    }
}
