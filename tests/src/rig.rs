//! The real HBase and OpenTSDB that `tests/hbase/rig.sh run` started for the tests.

use std::env;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};

use crate::data_fsck::DataFsck;
use crate::opentsdb::OpenTsdb;
use crate::tables::Tables;
use crate::uid_fsck::UidFsck;

/// A running HBase with Thrift servers ("gateways").
#[derive(Clone, Debug)]
pub struct Rig {
    gateways: Vec<SocketAddr>,
    folder: PathBuf,
}

impl Rig {
    /// Returns the one that the environment names, or `None`, and prints that the test is skipped.
    ///
    /// # Errors
    ///
    /// If only some of the variables are set, or one cannot be parsed.
    pub fn find(test: &str) -> anyhow::Result<Option<Self>> {
        let Ok(gateways) = env::var("OXTSDB_TEST_HBASE") else {
            println!("{test}: SKIPPED, it needs an HBase: tests/hbase/rig.sh run cargo test …");
            return Ok(None);
        };
        let gateways = gateways
            .split(',')
            .map(|address| {
                address
                    .parse()
                    .with_context(|| format!("OXTSDB_TEST_HBASE: `{address}`"))
            })
            .collect::<anyhow::Result<_>>()?;
        let folder =
            env::var_os("OXTSDB_TEST_HBASE_FOLDER").context("OXTSDB_TEST_HBASE_FOLDER is not set")?;
        Ok(Some(Self {
            gateways,
            folder: folder.into(),
        }))
    }

    /// Addresses of the gateways that all tests share.
    pub fn gateways(&self) -> &[SocketAddr] {
        &self.gateways
    }

    /// Flags for `tsdb serve` on tables of this HBase.
    pub fn flags(&self, tables: &Tables) -> Vec<String> {
        let mut flags = hbase_flags(&self.gateways);
        flags.extend(tables.flags());
        flags
    }

    /// Flags for `uid-service` on these tables.
    pub fn uid_flags(&self, tables: &Tables) -> Vec<String> {
        let mut flags = hbase_flags(&self.gateways);
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

    /// Starts an OpenTSDB on some tables, with settings beside those of [`Tables::opentsdb_settings`].
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

    /// Creates OpenTSDB's four tables with unique names, as an operator of OpenTSDB does.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn create_tables(&self, test: &str) -> anyhow::Result<Tables> {
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

/// Flags for a store behind some gateways.
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

/// A process of the rig. Dropping one that was started for a test kills it.
#[derive(Debug)]
pub struct Part {
    folder: PathBuf,
    name: String,
    address: Option<SocketAddr>,
    is_shared: bool,
}

impl Part {
    /// Its address.
    ///
    /// # Errors
    ///
    /// For HBase itself, which only its own clients can reach.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.address
            .with_context(|| format!("{} has no address of its own", self.name))
    }

    /// Returns its log so far.
    ///
    /// # Errors
    ///
    /// If its log cannot be read.
    pub fn log(&self) -> anyhow::Result<String> {
        let log = self.folder.join(&self.name).join("log");
        let bytes = std::fs::read(&log).with_context(|| log.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// `kill -9`; returns after it has exited.
    ///
    /// # Errors
    ///
    /// The rig's.
    pub async fn kill9(&self) -> anyhow::Result<()> {
        self.command_part("kill").await
    }

    /// SIGSTOP: its connections stay open without responses.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.command_part("pause").await
    }

    /// SIGCONT.
    ///
    /// # Errors
    ///
    /// If it does not run.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.command_part("resume").await
    }

    /// Shuts it down; returns after it has exited.
    ///
    /// # Errors
    ///
    /// The rig's.
    pub async fn stop(&self) -> anyhow::Result<()> {
        self.command_part("stop").await
    }

    /// Starts it again at its address, after it has exited; returns when it is ready.
    ///
    /// # Errors
    ///
    /// If it still runs, or does not become ready.
    pub async fn again(&self) -> anyhow::Result<()> {
        self.command_part("again").await
    }

    async fn command_part(&self, verb: &str) -> anyhow::Result<()> {
        rig(verb, &self.folder, [&self.name]).await?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_shared {
            // After an error the rig stops it with the others.
            let _ = command("kill", &self.folder, [&self.name]).status();
        }
        if std::thread::panicking() {
            let log = self.log().unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines.get(lines.len().saturating_sub(20)..).unwrap_or_default();
            eprintln!("--- the end of the log of {}:\n{}", self.name, last.join("\n"));
        }
    }
}

fn command<I, S>(verb: &str, folder: &Path, arguments: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let package = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let mut command = Command::new(Path::new(&package).join("hbase/rig.sh"));
    command.arg(verb).arg(folder).args(arguments).stdin(Stdio::null());
    command
}

/// Runs the rig and returns its output, with any exit status.
async fn output<I, S>(verb: &str, folder: &Path, arguments: I) -> anyhow::Result<Output>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = command(verb, folder, arguments);
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

/// Runs the rig and returns its output; fails with its error.
async fn rig<I, S>(verb: &str, folder: &Path, arguments: I) -> anyhow::Result<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let output = output(verb, folder, arguments).await?;
    ensure!(
        output.status.success(),
        "rig.sh {verb}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
