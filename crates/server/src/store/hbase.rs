//! Settings of HBase, and connecting to it: natively, by its quorum or its masters, or through its Thrift gateways.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use oxtsdb_row_store::StoreError;
use oxtsdb_row_store::hbase::Hbase;
use oxtsdb_row_store::hbase::native::{NativeConfig, NativeStore, Registry};
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};

use super::hbase_kerberos::HbaseKerberos;
use super::hbase_tls::HbaseTls;
use super::hosts::Hosts;
use super::tables::{self, StoreTable};
use crate::settings::{SettingError, in_range};

/// Connections with HBase.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "HBase")]
pub struct HbaseSettings {
    /// ZooKeeper quorum of HBase, with --store hbase: requests go to the region servers themselves
    /// (hbase.zookeeper.quorum)
    #[arg(
        long,
        env = "OXTSDB_HBASE_QUORUM",
        value_name = "HOST[:PORT][,HOST[:PORT]...]"
    )]
    pub hbase_quorum: Option<Hosts>,

    /// Parent of HBase's znodes, with --hbase-quorum (zookeeper.znode.parent)
    #[arg(
        long,
        env = "OXTSDB_HBASE_ZNODE_PARENT",
        value_name = "PATH",
        default_value = "/hbase"
    )]
    pub hbase_znode_parent: String,

    /// Masters of HBase 2.3 or later in place of a quorum (hbase.masters)
    #[arg(
        long,
        env = "OXTSDB_HBASE_MASTERS",
        value_name = "HOST[:PORT][,HOST[:PORT]...]"
    )]
    pub hbase_masters: Option<Hosts>,

    /// Name that HBase's access control sees without Kerberos, with --hbase-quorum or --hbase-masters
    #[arg(
        long,
        env = "OXTSDB_HBASE_USER",
        value_name = "NAME",
        default_value = "oxtsdb"
    )]
    pub hbase_user: String,

    /// Kerberos of these connections.
    #[command(flatten)]
    pub kerberos: HbaseKerberos,

    /// TLS of these connections.
    #[command(flatten)]
    pub tls: HbaseTls,

    /// HBase's Thrift gateways (`hbase thrift start`) in place of a quorum. Connections are distributed over
    /// several; one that fails is not used until it is back
    #[arg(long, env = "OXTSDB_HBASE_THRIFT", value_name = "HOST:PORT[,HOST:PORT...]")]
    pub hbase_thrift: Option<Gateways>,

    /// Connections with all Thrift gateways; each has one request in flight
    #[arg(long, env = "OXTSDB_HBASE_CONNECTIONS", value_name = "COUNT", default_value_t = defaults().connections)]
    pub hbase_connections: usize,

    /// Requests in the queue of a Thrift connection; further ones are rejected as UNAVAILABLE
    #[arg(long, env = "OXTSDB_HBASE_QUEUE", value_name = "COUNT", default_value_t = defaults().queue)]
    pub hbase_queue: usize,

    /// Time-out for connecting to a server; of a Thrift gateway, including its first response; milliseconds
    #[arg(long, env = "OXTSDB_HBASE_CONNECT_TIMEOUT_MS", value_name = "MS", default_value_t = millis(defaults().connect_timeout))]
    pub hbase_connect_timeout_ms: u64,

    /// Time-out of a request, in the queue and in HBase, milliseconds (hbase.rpc.timeout)
    #[arg(long, env = "OXTSDB_HBASE_REQUEST_TIMEOUT_MS", value_name = "MS", default_value_t = millis(defaults().request_timeout))]
    pub hbase_request_timeout_ms: u64,

    /// The Thrift gateways run with `--framed` (hbase.regionserver.thrift.framed)
    #[arg(long, env = "OXTSDB_HBASE_FRAMED", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = defaults().framed, action = clap::ArgAction::Set)]
    pub hbase_framed: bool,

    /// Memory of one reply, MiB. A longer reply is requested in parts where that is possible, otherwise the
    /// request fails
    #[arg(long, env = "OXTSDB_HBASE_MAX_REPLY_MIB", value_name = "MIB", default_value_t = defaults().max_reply_bytes >> 20)]
    pub hbase_max_reply_mib: usize,
}

/// Defaults of the store.
fn defaults() -> ThriftConfig {
    ThriftConfig::new(Vec::<String>::new())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The ways to HBase, for errors: one of these settings is needed.
pub(super) const NO_WAY: &str = "--hbase-quorum HOST[:PORT], --hbase-masters HOST[:PORT] or --hbase-thrift HOST:PORT (HBase's Thrift server)";

/// Time-out of the attempt with the other framing, which decides the suggestion in the error.
const HINT_TIMEOUT: Duration = Duration::from_secs(2);

/// Addresses of Thrift gateways, at least one; written `HOST:PORT,HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateways(Vec<String>);

impl FromStr for Gateways {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let addresses = text.split(',').map(str::trim).map(|address| {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            // An IPv6 address has colons of its own.
            let is_host =
                !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
            if is_host && is_port {
                Ok(address.to_owned())
            } else {
                Err(format!(
                    "`{address}` is no gateway, expected HOST:PORT, for example localhost:9090"
                ))
            }
        });
        addresses.collect::<Result<_, _>>().map(Self)
    }
}

impl Gateways {
    /// The addresses, at least one.
    pub fn addresses(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Gateways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// The way to HBase.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    Quorum(&'a Hosts),
    Masters(&'a Hosts),
    Thrift(&'a Gateways),
}

impl Way<'_> {
    const fn flag(&self) -> &'static str {
        match self {
            Self::Quorum(_) => "--hbase-quorum",
            Self::Masters(_) => "--hbase-masters",
            Self::Thrift(_) => "--hbase-thrift",
        }
    }
}

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quorum(hosts) | Self::Masters(hosts) => hosts.fmt(f),
            Self::Thrift(gateways) => gateways.fmt(f),
        }
    }
}

impl HbaseSettings {
    /// The first way that is set.
    fn way(&self) -> Option<Way<'_>> {
        let quorum = self.hbase_quorum.as_ref().map(Way::Quorum);
        let masters = self.hbase_masters.as_ref().map(Way::Masters);
        quorum
            .or(masters)
            .or_else(|| self.hbase_thrift.as_ref().map(Way::Thrift))
    }

    /// The flag of the way to HBase, and its value; `None`: no way is set.
    pub fn place(&self) -> Option<(&'static str, String)> {
        self.way().map(|way| (way.flag(), way.to_string()))
    }

    /// Whether requests go to the region servers themselves.
    pub fn is_native(&self) -> bool {
        matches!(self.way(), Some(Way::Quorum(_) | Way::Masters(_)))
    }

    /// Checks ranges, that there is one way to HBase at most, and that files of TLS are used.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range, with the rule.
    pub fn check(&self) -> Result<(), SettingError> {
        const LONGEST_MS: u64 = 3_600_000;
        let ways = [
            self.hbase_quorum.as_ref().map(Way::Quorum),
            self.hbase_masters.as_ref().map(Way::Masters),
            self.hbase_thrift.as_ref().map(Way::Thrift),
        ];
        let mut ways = ways.into_iter().flatten();
        if let (Some(one), Some(other)) = (ways.next(), ways.next()) {
            let rule = format!("excludes {}: each is a way to HBase", one.flag());
            return Err(SettingError::new(other.flag(), other, rule));
        }
        self.kerberos.check(self.is_native())?;
        self.tls.check(self.is_native())?;
        in_range("--hbase-connections", self.hbase_connections, 1, 1024)?;
        in_range("--hbase-queue", self.hbase_queue, 1, 1 << 20)?;
        in_range(
            "--hbase-connect-timeout-ms",
            self.hbase_connect_timeout_ms,
            1,
            LONGEST_MS,
        )?;
        in_range(
            "--hbase-request-timeout-ms",
            self.hbase_request_timeout_ms,
            1,
            LONGEST_MS,
        )?;
        in_range("--hbase-max-reply-mib", self.hbase_max_reply_mib, 1, 1 << 20)
    }

    /// Connects with HBase.
    ///
    /// # Errors
    ///
    /// A setting breaks its rule, or HBase does not respond; the error has a suggestion.
    pub async fn connect(&self) -> anyhow::Result<Arc<dyn Hbase>> {
        self.check()?;
        let way = self.way().context(format!("{NO_WAY} is needed"))?;
        let registry = match way {
            Way::Thrift(gateways) => return self.connect_thrift(gateways).await,
            Way::Quorum(hosts) => Registry::Quorum {
                servers: hosts.names().to_vec(),
                parent: self.hbase_znode_parent.clone(),
            },
            Way::Masters(hosts) => Registry::Masters(hosts.names().to_vec()),
        };
        let config = NativeConfig {
            user: self.hbase_user.clone(),
            kerberos: self.kerberos.config(),
            tls: self.tls.credentials(),
            connect_timeout: Duration::from_millis(self.hbase_connect_timeout_ms),
            request_timeout: Duration::from_millis(self.hbase_request_timeout_ms),
            max_reply_bytes: self.hbase_max_reply_mib << 20,
            ..NativeConfig::new(registry)
        };
        match NativeStore::connect(config).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => Err(anyhow!(
                "{} {way}: {error}; expected a running HBase there, with a network that reaches its region servers",
                way.flag()
            )),
        }
    }

    async fn connect_thrift(&self, gateways: &Gateways) -> anyhow::Result<Arc<dyn Hbase>> {
        let config = ThriftConfig {
            connections: self.hbase_connections,
            queue: self.hbase_queue,
            connect_timeout: Duration::from_millis(self.hbase_connect_timeout_ms),
            request_timeout: Duration::from_millis(self.hbase_request_timeout_ms),
            framed: self.hbase_framed,
            max_reply_bytes: self.hbase_max_reply_mib << 20,
            ..ThriftConfig::new(gateways.0.clone())
        };
        match ThriftStore::connect(config.clone()).await {
            Ok(store) => Ok(Arc::new(store)),
            Err(error) => {
                let hint = hint(config, &error).await;
                Err(anyhow!("--hbase-thrift {gateways}: {error}; {hint}"))
            }
        }
    }

    /// Connects with HBase and checks that it has these tables.
    pub(super) async fn open(&self, tables: &[&StoreTable]) -> anyhow::Result<Arc<dyn Hbase>> {
        let store = self.connect().await?;
        tables::check(tables, &*store, &self.to_string(), &self.flags()).await?;
        Ok(store)
    }

    /// The flags with which another program reaches the same HBase.
    fn flags(&self) -> String {
        let Some(way) = self.way() else {
            return String::new();
        };
        let further = match way {
            Way::Quorum(_) if self.hbase_znode_parent != "/hbase" => {
                format!(" --hbase-znode-parent {}", self.hbase_znode_parent)
            }
            Way::Thrift(_) if self.hbase_framed => " --hbase-framed".to_owned(),
            Way::Quorum(_) | Way::Masters(_) | Way::Thrift(_) => String::new(),
        };
        format!("{} {way}{further}{}{}", way.flag(), self.kerberos, self.tls)
    }
}

/// A suggestion for an HBase that cannot be reached.
async fn hint(config: ThriftConfig, error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable { .. } => {}
        StoreError::TimedOut { .. } => {
            return "the gateway responds, but HBase behind it does not: is HBase running?";
        }
        _ => return "the gateway responds, but cannot use HBase: see its log",
    }
    // Peers with different framing wait for each other forever; only an attempt shows it.
    let framed = !config.framed;
    let attempt = ThriftConfig {
        framed,
        connections: 1,
        connect_timeout: config.connect_timeout.min(HINT_TIMEOUT),
        request_timeout: config.request_timeout.min(HINT_TIMEOUT),
        ..config
    };
    match ThriftStore::connect(attempt).await {
        Err(StoreError::Unavailable { .. }) => {
            "expected HBase's Thrift server there (`hbase thrift start`; its port is 9090 unless set)"
        }
        // Other errors come from HBase behind the gateway.
        _ if framed => "it speaks in frames: add --hbase-framed",
        _ => "it does not speak in frames: leave --hbase-framed out",
    }
}

impl fmt::Display for HbaseSettings {
    /// The place, for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HBase")?;
        match self.way() {
            Some(way) => write!(f, " at {way}"),
            None => Ok(()),
        }
    }
}
