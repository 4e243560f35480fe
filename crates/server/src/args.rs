//! Settings that all programs with listeners have.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use oxtsdb_resources::memory::MIN_LIMIT_BYTES;
use oxtsdb_resources::{FixedShare, MemoryAccount};
use tracing::{info, warn};

use crate::access::AccessSettings;
use crate::settings::{PrintConfig, SettingError, in_range};
use crate::store::StoreSettings;
use crate::telemetry::{LogFormat, TelemetrySettings};
use crate::tls::TlsSettings;
use crate::{GrpcSettings, Shutdown, ShutdownTrigger};

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
    /// The access log, and traces.
    #[command(flatten)]
    pub telemetry: TelemetrySettings,
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

    /// Print a file for --config with the settings that people change and those that are set, and exit. `=all`: with
    /// every setting
    #[arg(
        long,
        value_name = "all",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "common",
        hide_possible_values = true
    )]
    pub print_config: Option<PrintConfig>,

    /// Format of logs: text or json
    #[arg(
        long,
        env = "OXTSDB_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// Time after SIGTERM in which the server reports NOT_SERVING and still serves, so that load balancers remove it
    /// first, seconds. SIGINT (Ctrl-C) and a second signal skip it
    #[arg(
        long,
        alias = "lame-duck",
        env = "OXTSDB_LAME_DUCK_SECONDS",
        value_name = "SECONDS",
        default_value_t = 5
    )]
    pub lame_duck_seconds: u64,

    /// Time for requests in progress after that, before they are cut off, seconds
    #[arg(
        long,
        env = "OXTSDB_DRAIN_SECONDS",
        value_name = "SECONDS",
        default_value_t = 30
    )]
    pub drain_seconds: u64,
}

impl ProgramArgs {
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        in_range("--lame-duck-seconds", self.lame_duck_seconds, 0, 3600)?;
        in_range("--drain-seconds", self.drain_seconds, 0, 3600)
    }

    /// How long requests in progress may take after stopping has begun.
    pub(crate) fn drain_limit(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

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
