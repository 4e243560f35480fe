//! Settings that all programs with listeners have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oxtsdb_resources::memory::MIN_LIMIT_BYTES;
use oxtsdb_resources::{FixedShare, MemoryAccount};
use tracing::{info, warn};

use crate::access::AccessSettings;
use crate::connections::Connections;
use crate::settings::{SettingError, in_range};
use crate::store::StoreSettings;
use crate::telemetry::LogFormat;
use crate::tls::TlsSettings;
use crate::{GrpcOptions, Shutdown, ShutdownTrigger};

/// Settings of a program beside those of its services and its listeners.
#[derive(Clone, Debug, Args)]
pub struct ServerArgs {
    /// Settings file, logs, shutdown.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Connections with gRPC clients.
    #[command(flatten)]
    pub grpc: GrpcSettings,
    /// Who may call what.
    #[command(flatten)]
    pub access: AccessSettings,
    /// How connections are secured.
    #[command(flatten)]
    pub tls: TlsSettings,
    /// Where rows are stored.
    #[command(flatten)]
    pub store: StoreSettings,
    /// The memory limit.
    #[command(flatten)]
    pub memory: MemoryLimit,
}

/// Settings file, logs, shutdown.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    /// TOML file with settings
    #[arg(long, env = "OXTSDB_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Format of logs: text or json
    #[arg(
        long,
        env = "OXTSDB_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// Time after SIGTERM in which the server reports NOT_SERVING before it closes connections, so that load
    /// balancers remove it first, seconds
    #[arg(
        long,
        alias = "lame-duck",
        env = "OXTSDB_LAME_DUCK_SECONDS",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub lame_duck_seconds: u64,
}

impl ProgramArgs {
    pub(crate) fn shutdown(&self) -> (Shutdown, ShutdownTrigger) {
        Shutdown::new(Duration::from_secs(self.lame_duck_seconds))
    }
}

/// The memory limit of the process.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Memory")]
pub struct MemoryLimit {
    /// Memory of the whole process, MiB; 0: half of the memory of the machine or its control group. Caches and
    /// the store get at most half of it. Of the rest, a quarter is for writes that are not stored yet, three
    /// quarters are for queries and their results
    #[arg(
        long,
        env = "OXTSDB_MEMORY_LIMIT_MIB",
        value_name = "MIB",
        default_value_t = 0
    )]
    pub memory_limit_mib: u64,
}

impl MemoryLimit {
    /// The limit, in bytes.
    ///
    /// # Errors
    ///
    /// The setting is out of its range.
    pub fn limit_bytes(&self) -> Result<u64, SettingError> {
        match self.memory_limit_mib {
            0 => Ok(MemoryAccount::default_limit_bytes().max(MIN_LIMIT_BYTES)),
            mib => {
                in_range("--memory-limit-mib", mib, MIN_LIMIT_BYTES >> 20, 1 << 30)?;
                Ok(mib << 20)
            }
        }
    }

    /// The memory account of the process, and the share of `fixed_bytes` that caches and the store get.
    pub(crate) fn divide(&self, fixed_bytes: u64) -> Result<(MemoryAccount, FixedShare), SettingError> {
        let limit = self.limit_bytes()?;
        let share = FixedShare::new(fixed_bytes, limit);
        let memory = MemoryAccount::new(limit, share.total_bytes());
        log_memory(&memory, &share);
        Ok((memory, share))
    }
}

fn log_memory(memory: &MemoryAccount, share: &FixedShare) {
    let mib = |bytes: u64| bytes >> 20;
    info!(
        limit_mib = mib(memory.limit_bytes()),
        fixed_mib = mib(memory.fixed_bytes()),
        ingest_mib = mib(memory.ingest().limit_bytes()),
        query_mib = mib(memory.query().limit_bytes()),
        "memory"
    );
    if share.is_reduced() {
        warn!(
            "caches and the memory of the store are smaller than their settings: together they get at most \
             half of --memory-limit-mib"
        );
    }
}

/// Connections with gRPC clients.
#[derive(Clone, Debug, Args, PartialEq, Eq)]
#[command(next_help_heading = "Connections")]
pub struct GrpcSettings {
    /// Connections on a gRPC port at a time. At the limit the one that has been idle the longest is
    /// closed; if all have calls in progress, new ones are rejected
    #[arg(long, env = "OXTSDB_GRPC_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = Self::default().grpc_max_connections)]
    pub grpc_max_connections: usize,

    /// Calls in progress on one gRPC connection; further ones wait in the client
    #[arg(long, env = "OXTSDB_GRPC_MAX_STREAMS", value_name = "COUNT", default_value_t = Self::default().grpc_max_streams)]
    pub grpc_max_streams: u32,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        let options = GrpcOptions::default();
        Self {
            grpc_max_connections: options.max_connections,
            grpc_max_streams: options.max_concurrent_streams,
        }
    }
}

impl GrpcSettings {
    /// Checks ranges.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        in_range("--grpc-max-connections", self.grpc_max_connections, 1, 1 << 20)?;
        in_range("--grpc-max-streams", self.grpc_max_streams, 1, 1 << 16)
    }

    /// The options of gRPC servers whose connections are among those of the process.
    pub(crate) fn options(&self, connections: Connections) -> GrpcOptions {
        GrpcOptions {
            connections,
            max_connections: self.grpc_max_connections,
            max_concurrent_streams: self.grpc_max_streams,
            ..GrpcOptions::default()
        }
    }
}
