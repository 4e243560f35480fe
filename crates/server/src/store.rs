//! Where a program keeps its rows: the settings of it, and how the store is opened.
//!
//! A store is opened with its tables. The embedded one makes those that are missing. On HBase they are
//! an operator's matter (how they are compressed, split and expire), so there a missing table ends the
//! start with the command that makes it.

mod hbase;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use oxtsdb_resources::FixedShare;
use oxtsdb_row_store::RowStore;
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use tracing::info;

pub use hbase::{Gateways, HbaseSettings};
pub use tables::{StoreTable, TablesError};

use crate::StoreProbe;
use crate::settings::SettingError;

/// Memory for requests to HBase and replies of it that are under way.
const HBASE_BYTES: u64 = 256 << 20;

/// Where rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// On this machine, below --data-dir
    Embedded,
    /// In HBase, through its Thrift server at --hbase-thrift; OpenTSDB's tables, shared with it
    Hbase,
}

/// Settings of the store, the same for all programs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub struct StoreSettings {
    /// Where rows are kept
    #[arg(long, env = "OXTSDB_STORE", value_enum, default_value_t = StoreKind::Embedded)]
    pub store: StoreKind,

    /// Folder of the embedded store; made if it is not there. UIDs are in its folder uid, points in
    /// data. Not used with --store hbase
    #[arg(
        long,
        env = "OXTSDB_DATA_DIR",
        value_name = "DIR",
        default_value = "./oxtsdb-data"
    )]
    pub data_dir: PathBuf,

    /// How to reach HBase.
    #[command(flatten)]
    pub hbase: HbaseSettings,
}

/// What a service keeps in its store.
#[derive(Clone, Debug)]
pub struct StorePart {
    /// The folder of the service's embedded store within the data folder. The same for the service
    /// alone and within `tsdb serve`, so that a data folder can go from one to the other.
    pub folder: &'static str,
    /// The table that it works on, and that health checks read.
    pub table: StoreTable,
    /// Tables that it needs as well.
    pub others: Vec<StoreTable>,
    /// The memory that its embedded store wants, in bytes.
    pub memory_bytes: u64,
    /// Files of row blocks that its embedded store keeps open. All stores of a process have to fit into the
    /// descriptors that it keeps from its connections.
    pub open_files: usize,
}

impl StoreSettings {
    /// Checks what the types alone do not say.
    ///
    /// # Errors
    ///
    /// The first setting that breaks its rule.
    pub fn check(&self) -> Result<(), SettingError> {
        self.hbase.check()?;
        match (self.store, &self.hbase.hbase_thrift) {
            (StoreKind::Hbase, None) => Err(SettingError::new(
                "--store",
                "hbase",
                "needs --hbase-thrift HOST:PORT, the address of HBase's Thrift server",
            )),
            // Whoever names an HBase does not want the points in a folder.
            (StoreKind::Embedded, Some(gateways)) => Err(SettingError::new(
                "--hbase-thrift",
                gateways,
                "needs --store hbase, else the points would go to --data-dir",
            )),
            _ => Ok(()),
        }
    }

    /// The memory that the stores of these parts want, in bytes.
    pub fn memory_bytes(&self, parts: &[&StorePart]) -> u64 {
        match self.store {
            StoreKind::Embedded => parts.iter().map(|part| part.memory_bytes).sum(),
            // Requests to the gateways and their replies.
            StoreKind::Hbase => HBASE_BYTES,
        }
    }

    /// Opens the stores of services that run in one process, with their tables and their share of the
    /// memory: an embedded one for each, or one HBase for all.
    ///
    /// # Errors
    ///
    /// The folder or HBase cannot be used, or a table lacks a column family. The error names what to
    /// change.
    pub async fn open<const N: usize>(
        &self,
        parts: [&StorePart; N],
        memory: &FixedShare,
    ) -> anyhow::Result<[Arc<dyn RowStore>; N]> {
        self.check()?;
        let mut stores = Vec::with_capacity(N);
        match self.store {
            StoreKind::Embedded => {
                for part in parts {
                    stores.push(open_embedded(&self.data_dir, part, memory).await?);
                }
            }
            StoreKind::Hbase => {
                let tables: Vec<&StoreTable> = parts.iter().flat_map(|part| part.tables()).collect();
                stores = vec![self.hbase.open(&tables).await?; N];
            }
        }
        stores
            .try_into()
            .map_err(|_| anyhow::anyhow!("one store for each service"))
    }
}

impl std::fmt::Display for StoreSettings {
    /// Where rows are kept, for the log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.store, &self.hbase.hbase_thrift) {
            (StoreKind::Hbase, Some(gateways)) => write!(f, "HBase at {gateways}"),
            _ => write!(f, "{}", self.data_dir.display()),
        }
    }
}

impl StorePart {
    /// All its tables.
    pub fn tables(&self) -> impl Iterator<Item = &StoreTable> {
        std::iter::once(&self.table).chain(&self.others)
    }

    /// What tells whether the store can serve.
    pub fn probe(&self, store: &Arc<dyn RowStore>) -> StoreProbe {
        StoreProbe::new(Arc::clone(store), self.table.def.name.clone())
    }

    /// Makes the tables that a store does not have.
    ///
    /// # Errors
    ///
    /// A table is there with other families, or the store fails.
    pub async fn make_tables(&self, store: &dyn RowStore) -> anyhow::Result<()> {
        for StoreTable { def, .. } in self.tables() {
            let made = store
                .create_table(def)
                .await
                .with_context(|| format!("create table `{}`", def.name))?;
            if made {
                info!(table = %def.name, "table created");
            }
        }
        Ok(())
    }
}

async fn open_embedded(
    data_dir: &Path,
    part: &StorePart,
    memory: &FixedShare,
) -> anyhow::Result<Arc<dyn RowStore>> {
    let folder = data_dir.join(part.folder);
    let config = EmbeddedConfig {
        table_descriptors: part.open_files,
        ..EmbeddedConfig::new(&folder).with_memory(memory.of(part.memory_bytes))
    };
    let store =
        EmbeddedStore::open(config).with_context(|| format!("open the store in {}", folder.display()))?;
    part.make_tables(&store).await?;
    Ok(Arc::new(store))
}
