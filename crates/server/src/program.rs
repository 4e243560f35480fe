//! How a program begins and ends.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser};
use oxtsdb_resources::memory::MIN_LIMIT_BYTES;
use oxtsdb_resources::{FixedShare, MemoryAccount};
use tracing::{info, warn};

use crate::connections::Connections;
use crate::settings::{self, ArgumentsError, SettingError, in_range, one_line};
use crate::telemetry::LogFormat;
use crate::{GrpcOptions, Shutdown, ShutdownTrigger};

/// What all programs that serve can be told.
#[derive(Clone, Debug, Args)]
pub struct ProgramArgs {
    /// TOML file with settings
    #[arg(long, env = "OXTSDB_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How logs are written: text or json
    #[arg(
        long,
        env = "OXTSDB_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text"
    )]
    pub log_format: LogFormat,

    /// When stopping, go on answering for so long after health says NOT_SERVING, so that balancers
    /// notice; seconds
    #[arg(
        long,
        alias = "lame-duck",
        env = "OXTSDB_LAME_DUCK_SECONDS",
        value_name = "SECONDS",
        default_value_t = 0
    )]
    pub lame_duck_seconds: u64,

    /// Memory of the whole process, MiB; 0: half of what the machine or its control group has. Caches and the
    /// store take at most half of it. Of the rest a quarter is for requests that write and are not stored
    /// yet, the other three are for queries and their results
    #[arg(
        long,
        env = "OXTSDB_MEMORY_LIMIT_MIB",
        value_name = "MIB",
        default_value_t = 0
    )]
    pub memory_limit_mib: u64,
}

impl ProgramArgs {
    /// The memory of the program, of which caches and the store want `fixed_bytes`, and what of that they
    /// get. Logs both.
    ///
    /// # Errors
    ///
    /// If the limit is too small.
    pub fn memory(&self, fixed_bytes: u64) -> Result<(MemoryAccount, FixedShare), SettingError> {
        let limit = match self.memory_limit_mib {
            0 => MemoryAccount::default_limit_bytes().max(MIN_LIMIT_BYTES),
            mib => {
                settings::in_range("--memory-limit-mib", mib, MIN_LIMIT_BYTES >> 20, 1 << 30)?;
                mib << 20
            }
        };
        let share = FixedShare::new(fixed_bytes, limit);
        let memory = MemoryAccount::new(limit, share.total_bytes());
        report_memory(&memory, &share);
        Ok((memory, share))
    }

    /// The end of the program, with the lame duck that was asked for.
    pub fn shutdown(&self) -> (Shutdown, ShutdownTrigger) {
        Shutdown::new(Duration::from_secs(self.lame_duck_seconds))
    }
}

/// How programs that serve gRPC treat their connections.
#[derive(Clone, Debug, Args, PartialEq, Eq)]
#[command(next_help_heading = "gRPC")]
pub struct GrpcSettings {
    /// Connections on a gRPC port at a time. At the limit the one that has been idle the longest is
    /// closed; if all have calls in progress, new ones are refused
    #[arg(long, env = "OXTSDB_GRPC_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = Self::default().grpc_max_connections)]
    pub grpc_max_connections: usize,

    /// Calls in progress on one gRPC connection, at most; further ones wait at the client
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
    /// The options of a gRPC server, whose connections are among those of the process.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range, with the rule.
    pub fn options(&self, connections: &Connections) -> Result<GrpcOptions, SettingError> {
        in_range("--grpc-max-connections", self.grpc_max_connections, 1, 1 << 20)?;
        in_range("--grpc-max-streams", self.grpc_max_streams, 1, 1 << 16)?;
        Ok(GrpcOptions {
            connections: connections.clone(),
            max_connections: self.grpc_max_connections,
            max_concurrent_streams: self.grpc_max_streams,
            ..GrpcOptions::default()
        })
    }
}

/// Runs a service's program: reads its settings, then does `run`.
///
/// What goes wrong is told in one line: exit code 2 for a wrong flag or variable, 1 for all else.
pub fn main<P: Parser>(run: impl FnOnce(P) -> anyhow::Result<()>) -> ExitCode {
    let name = P::command().get_name().to_owned();
    let arguments: Vec<_> = std::env::args_os().collect();
    let program = match settings::parse(&arguments) {
        Ok(program) => program,
        // Help or the version.
        Err(ArgumentsError::Usage(error)) if !error.use_stderr() => error.exit(),
        Err(ArgumentsError::Usage(error)) => {
            eprintln!("{name}: {}", usage_line(&error));
            return ExitCode::from(2);
        }
        Err(ArgumentsError::File(error)) => return failed(&name, &error.into()),
    };
    match run(program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&name, &error),
    }
}

/// Logs how the memory of a program is divided.
fn report_memory(memory: &MemoryAccount, share: &FixedShare) {
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
            "caches and the memory of the store are smaller than their settings say: together they take half \
             of --memory-limit-mib at most"
        );
    }
}

/// Tells in one line, whatever its causes say, why a program ends.
pub fn failed(name: &str, error: &anyhow::Error) -> ExitCode {
    eprintln!("{name}: {}", one_line(&format!("{error:#}")));
    ExitCode::FAILURE
}

/// clap explains at length; what is wrong is in the first paragraph.
fn usage_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    one_line(paragraph.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn a_wrong_flag_is_told_in_one_line() {
        let told = |argument| {
            let command =
                Command::new("program").arg(Arg::new("store").long("store").value_parser(["a", "b"]));
            usage_line(&command.try_get_matches_from(["program", argument]).unwrap_err())
        };
        assert_eq!(told("--stores"), "unexpected argument '--stores' found");
        assert_eq!(
            told("--store=c"),
            "invalid value 'c' for '--store <store>' [possible values: a, b]"
        );
    }
}
