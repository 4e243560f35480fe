//! Settings of HBase's Thrift gateways, and connecting to them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::Args;
use oxtsdb_row_store::StoreError;
use oxtsdb_row_store::hbase::{HbaseConfig, HbaseStore};

use super::tables::{self, StoreTable};
use crate::settings::{SettingError, in_range};

/// Connections with HBase.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "HBase")]
pub struct HbaseSettings {
    /// HBase's Thrift gateways (`hbase thrift start`), with --store hbase. Connections are distributed over
    /// several; one that fails is not used until it is back
    #[arg(long, env = "OXTSDB_HBASE_THRIFT", value_name = "HOST:PORT[,HOST:PORT...]")]
    pub hbase_thrift: Option<Gateways>,

    /// Connections with all gateways; each has one request in flight
    #[arg(long, env = "OXTSDB_HBASE_CONNECTIONS", value_name = "COUNT", default_value_t = defaults().connections)]
    pub hbase_connections: usize,

    /// Requests in the queue of a connection; further ones are rejected as UNAVAILABLE
    #[arg(long, env = "OXTSDB_HBASE_QUEUE", value_name = "COUNT", default_value_t = defaults().queue)]
    pub hbase_queue: usize,

    /// Time-out for connecting to a gateway, including its first response, milliseconds
    #[arg(long, env = "OXTSDB_HBASE_CONNECT_TIMEOUT_MS", value_name = "MS", default_value_t = millis(defaults().connect_timeout))]
    pub hbase_connect_timeout_ms: u64,

    /// Time-out of a request, in the queue and in HBase, milliseconds (hbase.rpc.timeout)
    #[arg(long, env = "OXTSDB_HBASE_REQUEST_TIMEOUT_MS", value_name = "MS", default_value_t = millis(defaults().request_timeout))]
    pub hbase_request_timeout_ms: u64,

    /// The gateways run with `--framed` (hbase.regionserver.thrift.framed)
    #[arg(long, env = "OXTSDB_HBASE_FRAMED", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = defaults().framed, action = clap::ArgAction::Set)]
    pub hbase_framed: bool,

    /// Memory of one reply, MiB. A longer reply is requested in parts where that is possible, otherwise the
    /// request fails
    #[arg(long, env = "OXTSDB_HBASE_MAX_REPLY_MIB", value_name = "MIB", default_value_t = defaults().max_reply_bytes >> 20)]
    pub hbase_max_reply_mib: usize,
}

/// Defaults of the store.
fn defaults() -> HbaseConfig {
    HbaseConfig::new(Vec::<String>::new())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

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

impl HbaseSettings {
    /// Checks ranges.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range, with the rule.
    pub fn check(&self) -> Result<(), SettingError> {
        const LONGEST_MS: u64 = 3_600_000;
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
    /// A setting breaks its rule, or no gateway responds; the error has a suggestion.
    pub async fn connect(&self) -> anyhow::Result<HbaseStore> {
        self.check()?;
        let gateways = self
            .hbase_thrift
            .as_ref()
            .context("--hbase-thrift HOST:PORT is needed, the address of HBase's Thrift server")?;
        let config = HbaseConfig {
            connections: self.hbase_connections,
            queue: self.hbase_queue,
            connect_timeout: Duration::from_millis(self.hbase_connect_timeout_ms),
            request_timeout: Duration::from_millis(self.hbase_request_timeout_ms),
            framed: self.hbase_framed,
            max_reply_bytes: self.hbase_max_reply_mib << 20,
            ..HbaseConfig::new(gateways.0.clone())
        };
        match HbaseStore::connect(config.clone()).await {
            Ok(store) => Ok(store),
            Err(error) => {
                let hint = hint(config, &error).await;
                Err(anyhow!("--hbase-thrift {gateways}: {error}; {hint}"))
            }
        }
    }

    /// Connects with HBase and checks that it has these tables.
    pub(super) async fn open(&self, tables: &[&StoreTable]) -> anyhow::Result<Arc<HbaseStore>> {
        let store = self.connect().await?;
        tables::check(tables, &store, &self.to_string(), &self.flags()).await?;
        Ok(Arc::new(store))
    }

    /// The flags with which another program reaches the same HBase.
    fn flags(&self) -> String {
        let gateways = self
            .hbase_thrift
            .as_ref()
            .map_or_else(String::new, Gateways::to_string);
        let framed = if self.hbase_framed { " --hbase-framed" } else { "" };
        format!("--hbase-thrift {gateways}{framed}")
    }
}

/// A suggestion for an HBase that cannot be reached.
async fn hint(config: HbaseConfig, error: &StoreError) -> &'static str {
    match error {
        StoreError::Unavailable { .. } => {}
        StoreError::TimedOut { .. } => {
            return "the gateway responds, but HBase behind it does not: is HBase running?";
        }
        _ => return "the gateway responds, but cannot use HBase: see its log",
    }
    // Peers with different framing wait for each other forever; only an attempt shows it.
    let framed = !config.framed;
    let attempt = HbaseConfig {
        framed,
        connections: 1,
        connect_timeout: config.connect_timeout.min(HINT_TIMEOUT),
        request_timeout: config.request_timeout.min(HINT_TIMEOUT),
        ..config
    };
    match HbaseStore::connect(attempt).await {
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
        match &self.hbase_thrift {
            Some(gateways) => write!(f, " at {gateways}"),
            None => Ok(()),
        }
    }
}
