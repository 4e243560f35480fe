//! Settings of the row store, and opening it with its tables.
//!
//! The embedded store creates missing tables. On HBase an operator decides about compression, splits and
//! expiry of a table, so a missing table ends the start with an error that has the command to create it. Tables
//! that OpenTSDB does not have are created there too.

mod generation;
mod hbase;
mod hbase_kerberos;
mod hbase_tls;
mod hosts;
mod open;
mod tables;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use oxtsdb_resources::FixedShare;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::hbase::Hbase;
use oxtsdb_row_store::{RowStore, TableDef, Writers};
use tracing::info;

pub use generation::Generation;
pub use hbase::{Gateways, HbaseSettings};
pub use hbase_kerberos::HbaseKerberos;
pub use hbase_tls::HbaseTls;
pub use hosts::Hosts;
pub use open::open_folder;
pub use tables::{StoreTable, TablesError};

use crate::StoreProbe;
use crate::settings::SettingError;

/// Memory of requests to HBase and of its replies.
const HBASE_BYTES: u64 = 256 << 20;

/// Where rows are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// On this machine, below --data-dir
    Embedded,
    /// In HBase, at --hbase-quorum, --hbase-masters or --hbase-thrift; in tables that OpenTSDB can share
    Hbase,
}

impl StoreKind {
    /// The processes that write to the tables.
    pub const fn writers(self) -> Writers {
        match self {
            Self::Embedded => Writers::Single,
            Self::Hbase => Writers::Multiple,
        }
    }
}

/// Settings of the store.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub struct StoreSettings {
    /// Where rows are stored
    #[arg(long, env = "OXTSDB_STORE", value_enum, default_value_t = StoreKind::Embedded)]
    pub store: StoreKind,

    /// Folder of the embedded store, created if it is missing: UIDs in its folder uid, points in data. Not used
    /// with --store hbase
    #[arg(
        long,
        env = "OXTSDB_DATA_DIR",
        value_name = "DIR",
        default_value = "./oxtsdb-data"
    )]
    pub data_dir: PathBuf,

    /// Connections with HBase.
    #[command(flatten)]
    pub hbase: HbaseSettings,
}

/// The open stores of services that run in one process.
#[derive(Debug)]
pub struct OpenStores<const N: usize> {
    /// One for each service.
    pub stores: [Arc<dyn RowStore>; N],
    /// The same by their folders, if they are embedded.
    pub embedded: Vec<(&'static str, Arc<CellStore>)>,
    /// HBase, if all of them are on it.
    pub hbase: Option<Arc<dyn Hbase>>,
}

/// The tables and the resources of a service's store.
#[derive(Clone, Debug)]
pub struct StorePart {
    /// The folder of the service's embedded store within the data folder. `tsdb serve` uses the same folders as
    /// the services alone, so that either can take over a data folder.
    pub folder: &'static str,
    /// The main table, which health checks read.
    pub table: StoreTable,
    /// Further tables.
    pub others: Vec<StoreTable>,
    /// Tables that OpenTSDB does not have. They are small and an operator has nothing to decide about them, so a
    /// missing one is created on HBase as well.
    pub own: Vec<TableDef>,
    /// Memory of its embedded store, in bytes.
    pub memory_bytes: u64,
    /// Memory of the points of an embedded store, which are not in its rows.
    pub points_bytes: u64,
}

impl StoreSettings {
    /// Checks ranges, and settings that exclude or require each other.
    ///
    /// # Errors
    ///
    /// The first setting that breaks its rule.
    pub fn check(&self) -> Result<(), SettingError> {
        self.hbase.check()?;
        match (self.store, self.hbase.place()) {
            (StoreKind::Hbase, None) => Err(SettingError::new(
                "--store",
                "hbase",
                format!("needs {}", hbase::NO_WAY),
            )),
            // A deployment with an HBase address does not expect points in a folder.
            (StoreKind::Embedded, Some((flag, place))) => Err(SettingError::new(
                flag,
                place,
                "needs --store hbase, else the points would go to --data-dir",
            )),
            _ => Ok(()),
        }
    }

    /// The data folder of embedded stores; `None` for HBase.
    pub fn embedded_dir(&self) -> Option<&Path> {
        (self.store == StoreKind::Embedded).then_some(&*self.data_dir)
    }

    /// The kind of the store, as its setting has it.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self.store {
            StoreKind::Embedded => "embedded",
            StoreKind::Hbase => "hbase",
        }
    }

    /// The addresses of HBase's gateways; none for the embedded store.
    pub(crate) fn gateways(&self) -> &[String] {
        self.hbase.hbase_thrift.as_ref().map_or(&[], Gateways::addresses)
    }

    /// Memory of the stores of these parts, in bytes.
    pub fn memory_bytes(&self, parts: &[&StorePart]) -> u64 {
        match self.store {
            StoreKind::Embedded => parts
                .iter()
                .map(|part| part.memory_bytes + part.points_bytes)
                .sum(),
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
    ) -> anyhow::Result<OpenStores<N>> {
        self.check()?;
        if self.store == StoreKind::Hbase {
            let tables: Vec<&StoreTable> = parts.iter().flat_map(|part| part.tables()).collect();
            let store = self.hbase.open(&tables).await?;
            for def in parts.iter().flat_map(|part| &part.own) {
                create(store.as_ref(), def).await?;
            }
            return Ok(OpenStores {
                stores: std::array::from_fn(|_| Arc::clone(&store) as Arc<dyn RowStore>),
                embedded: Vec::new(),
                hbase: Some(store),
            });
        }
        let (mut stores, mut embedded) = (Vec::with_capacity(N), Vec::with_capacity(N));
        for part in parts {
            let store = open_embedded(&self.data_dir, part, memory).await?;
            stores.push(Arc::clone(&store) as Arc<dyn RowStore>);
            embedded.push((part.folder, store));
        }
        let stores = stores.try_into();
        Ok(OpenStores {
            stores: stores.map_err(|_| anyhow::anyhow!("one store for each service"))?,
            embedded,
            hbase: None,
        })
    }
}

impl std::fmt::Display for StoreSettings {
    /// The place of the store, for the log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.store {
            StoreKind::Hbase => self.hbase.fmt(f),
            StoreKind::Embedded => write!(f, "{}", self.data_dir.display()),
        }
    }
}

impl StorePart {
    /// All its tables.
    pub fn tables(&self) -> impl Iterator<Item = &StoreTable> {
        std::iter::once(&self.table).chain(&self.others)
    }

    /// Health checks of the store.
    pub fn probe(&self, store: &Arc<dyn RowStore>) -> StoreProbe {
        StoreProbe::new(Arc::clone(store), self.table.def.name.clone())
    }

    /// Creates missing tables.
    ///
    /// # Errors
    ///
    /// A table exists with other families, or the store fails.
    pub async fn make_tables(&self, store: &dyn RowStore) -> anyhow::Result<()> {
        for def in self.tables().map(|table| &table.def).chain(&self.own) {
            create(store, def).await?;
        }
        Ok(())
    }
}

/// Creates a table if it is missing.
async fn create(store: &dyn RowStore, def: &TableDef) -> anyhow::Result<()> {
    let created = store
        .create_table(def)
        .await
        .with_context(|| format!("create table `{}`", def.name))?;
    if created {
        info!(table = %def.name, "table created");
    }
    Ok(())
}

async fn open_embedded(
    data_dir: &Path,
    part: &StorePart,
    memory: &FixedShare,
) -> anyhow::Result<Arc<CellStore>> {
    let memory_bytes = memory.scale(part.memory_bytes);
    let store = open_folder(data_dir, part.folder, |folder| {
        CellStore::open(CellConfig::new(folder).with_memory(memory_bytes))
    })?;
    part.make_tables(&store).await?;
    Ok(Arc::new(store))
}
