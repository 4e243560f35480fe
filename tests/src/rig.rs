//! The real HBase and OpenTSDB that `tests/hbase/rig.sh run` started for the tests.

mod command;
mod part;

use std::env;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use oxtsdb_row_store::hbase::native::{NativeConfig, NativeStore, Registry};
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{RowStore, TableDef};

pub use part::Part;

use crate::data_fsck::DataFsck;
use crate::opentsdb::OpenTsdb;
use crate::tables::Tables;
use crate::uid_fsck::UidFsck;
use command::{output, rig};

/// A running HBase with Thrift servers ("gateways").
#[derive(Clone, Debug)]
pub struct Rig {
    gateways: Vec<SocketAddr>,
    /// ZooKeeper, if stores use HBase's own RPC.
    quorum: Option<String>,
    folder: PathBuf,
}

impl Rig {
    /// Returns the one that the environment names.
    ///
    /// # Errors
    ///
    /// If a variable is not set, or cannot be parsed.
    pub fn find() -> anyhow::Result<Self> {
        let folder = env::var_os("OXTSDB_TEST_HBASE_FOLDER")
            .context("the test needs an HBase: tests/hbase/rig.sh run cargo test …")?;
        let gateways = env::var("OXTSDB_TEST_HBASE").unwrap_or_default();
        let gateways = gateways
            .split(',')
            .filter(|address| !address.is_empty())
            .map(|address| {
                address
                    .parse()
                    .with_context(|| format!("OXTSDB_TEST_HBASE: `{address}`"))
            })
            .collect::<anyhow::Result<_>>()?;
        let quorum = match env::var("OXTSDB_TEST_HBASE_WAY").as_deref() {
            Ok("thrift") => None,
            Ok("native") | Err(_) => {
                let quorum = env::var("OXTSDB_TEST_HBASE_QUORUM");
                Some(quorum.context("OXTSDB_TEST_HBASE_QUORUM is not set")?)
            }
            Ok(other) => anyhow::bail!("OXTSDB_TEST_HBASE_WAY: `{other}`, expected native or thrift"),
        };
        Ok(Self {
            gateways,
            quorum,
            folder: folder.into(),
        })
    }

    /// Addresses of the gateways that all tests share; none on an HBase without a Thrift server.
    pub fn gateways(&self) -> &[SocketAddr] {
        &self.gateways
    }

    /// Flags for a store on this HBase: over its own RPC, or, if `OXTSDB_TEST_HBASE_WAY` is `thrift`, through the gateways.
    pub fn store_flags(&self) -> Vec<String> {
        match &self.quorum {
            Some(quorum) => vec!["--store=hbase".to_owned(), format!("--hbase-quorum={quorum}")],
            None => hbase_flags(&self.gateways),
        }
    }

    /// A store on this HBase, in the same way as [`Rig::store_flags`].
    ///
    /// # Errors
    ///
    /// If HBase cannot be reached.
    pub async fn store(&self) -> anyhow::Result<Arc<dyn RowStore>> {
        let Some(quorum) = &self.quorum else {
            let gateways = self.gateways.iter().map(SocketAddr::to_string);
            return Ok(Arc::new(ThriftStore::connect(ThriftConfig::new(gateways)).await?));
        };
        let registry = Registry::Quorum {
            servers: vec![quorum.clone()],
            parent: "/hbase".to_owned(),
        };
        Ok(Arc::new(NativeStore::connect(NativeConfig::new(registry)).await?))
    }

    /// This HBase as a place of `tsdb export`, `import --into` and `compare`, in the same way as [`Rig::store_flags`].
    pub fn place(&self) -> String {
        match &self.quorum {
            Some(quorum) => format!("hbase-quorum:{quorum}"),
            None => {
                let gateways: Vec<String> = self.gateways.iter().map(ToString::to_string).collect();
                format!("hbase:{}", gateways.join(","))
            }
        }
    }

    /// Flags for `tsdb serve` on tables of this HBase.
    pub fn flags(&self, tables: &Tables) -> Vec<String> {
        let mut flags = self.store_flags();
        flags.extend(tables.flags());
        flags
    }

    /// Flags for `uid-service` on these tables.
    pub fn uid_flags(&self, tables: &Tables) -> Vec<String> {
        let mut flags = self.store_flags();
        flags.push(format!("--uid-table={}", tables.uid));
        flags
    }

    /// Starts another gateway, for one test, with flags of HBase's Thrift server, such as `-f` for frames.
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn gateway(&self, flags: &[&str]) -> anyhow::Result<Part> {
        self.start(
            "gateway",
            unique("gateway"),
            flags.iter().map(|flag| (*flag).to_owned()),
        )
        .await
    }

    /// The HBase server itself: ZooKeeper, master and region server in one process. All tests
    /// share it: a test that stops it starts it again.
    pub fn hbase(&self) -> Part {
        Part {
            folder: self.folder.clone(),
            name: "hbase".to_owned(),
            address: None,
            is_shared: true,
        }
    }

    /// The region servers of a rig with `--region-servers`, which all tests share.
    ///
    /// # Errors
    ///
    /// If the rig's folder cannot be read.
    pub fn region_servers(&self) -> anyhow::Result<Vec<Part>> {
        let mut servers = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with("server-") {
                servers.push(Part {
                    folder: self.folder.clone(),
                    name,
                    address: None,
                    is_shared: true,
                });
            }
        }
        servers.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(servers)
    }

    /// Changes regions of a table, by `rig.sh regions`.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn change_regions(&self, arguments: &[&str]) -> anyhow::Result<String> {
        rig("regions", &self.folder, arguments).await
    }

    /// Starts an OpenTSDB on some tables, with settings beside [`Tables::opentsdb_settings`].
    ///
    /// # Errors
    ///
    /// If it does not start.
    pub async fn opentsdb(&self, tables: &Tables, settings: &[&str]) -> anyhow::Result<OpenTsdb> {
        let settings = tables
            .opentsdb_settings()
            .into_iter()
            .chain(settings.iter().map(|setting| (*setting).to_owned()));
        OpenTsdb::new(self.start("opentsdb", unique("opentsdb"), settings).await?)
    }

    /// Creates OpenTSDB's four tables with unique names, with a store's settings.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn create_tables(&self, test: &str) -> anyhow::Result<Tables> {
        let tables = self.new_tables(test);
        let store = self.store().await?;
        for (name, families) in [
            (&tables.data, &["t"][..]),
            (&tables.uid, &["id", "name"]),
            (&tables.tree, &["t"]),
            (&tables.meta, &["name"]),
        ] {
            store
                .create_table(&TableDef::new(name.parse()?, families))
                .await?;
        }
        Ok(tables)
    }

    /// Creates OpenTSDB's four tables as an operator of OpenTSDB does, with the encoding of OpenTSDB's own script. It takes a
    /// Java program.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn create_tables_of_opentsdb(&self, test: &str) -> anyhow::Result<Tables> {
        let tables = self.new_tables(test);
        rig("tables", &self.folder, tables.names()).await?;
        Ok(tables)
    }

    /// Returns names of tables that do not exist.
    pub fn new_tables(&self, test: &str) -> Tables {
        Tables::named(&unique(test))
    }

    /// Runs OpenTSDB's own check on a UID table, read-only.
    ///
    /// # Errors
    ///
    /// If it cannot be run. Its findings are not errors.
    pub async fn uid_fsck(&self, opentsdb: &OpenTsdb) -> anyhow::Result<UidFsck> {
        let part = &opentsdb.part().name;
        let output = output("tool", &self.folder, [part, "UidManager", "--verbose", "fsck"]).await?;
        UidFsck::parse(&String::from_utf8_lossy(&output.stderr))
    }

    /// Runs a subcommand of OpenTSDB's `uid`, such as `metasync`.
    ///
    /// # Errors
    ///
    /// If it fails, with its log.
    pub async fn uid_manager(&self, opentsdb: &OpenTsdb, subcommand: &[&str]) -> anyhow::Result<()> {
        let arguments: Vec<&str> = [opentsdb.part().name.as_str(), "UidManager"]
            .into_iter()
            .chain(subcommand.iter().copied())
            .collect();
        rig("tool", &self.folder, arguments).await?;
        Ok(())
    }

    /// Runs OpenTSDB's own check on a table of points, read-only.
    ///
    /// # Errors
    ///
    /// If it cannot be run. Its findings are not errors.
    pub async fn data_fsck(&self, opentsdb: &OpenTsdb) -> anyhow::Result<DataFsck> {
        let part = &opentsdb.part().name;
        let output = output("tool", &self.folder, [part, "Fsck", "--full-scan", "--threads=1"]).await?;
        DataFsck::parse(&String::from_utf8_lossy(&output.stderr))
    }

    /// Returns HBase's description of a table, as its shell prints it.
    ///
    /// # Errors
    ///
    /// If there is no such table.
    pub async fn describe(&self, table: &str) -> anyhow::Result<String> {
        rig("describe", &self.folder, [table]).await
    }

    async fn start(
        &self,
        verb: &str,
        name: String,
        arguments: impl Iterator<Item = String>,
    ) -> anyhow::Result<Part> {
        let all: Vec<String> = std::iter::once(name.clone()).chain(arguments).collect();
        let address = rig(verb, &self.folder, &all).await?;
        Ok(Part {
            folder: self.folder.clone(),
            name,
            address: Some(address.trim().parse().with_context(|| format!("`{address}`"))?),
            is_shared: false,
        })
    }
}

/// Flags for a store behind some Thrift gateways.
pub fn hbase_flags(gateways: &[SocketAddr]) -> Vec<String> {
    let gateways: Vec<String> = gateways.iter().map(SocketAddr::to_string).collect();
    vec![
        "--store=hbase".to_owned(),
        format!("--hbase-thrift={}", gateways.join(",")),
    ]
}

/// Returns a name that no other test has used on this HBase.
fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{number}", std::process::id())
}
