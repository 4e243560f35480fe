//! `tsdb doctor`: checks a deployment and says what to change.
//!
//! ```text
//!   admin listeners ─► Server: facts, metrics, readiness ─┬─► agreement   versions, clocks, widths, salt, tables, gateways
//!   gRPC ports      ─► health, UID layout                 ├─► capacity    memory, descriptors, connections, disk, UIDs
//!   HBase           ─► servers, TLS, tables, UIDs, salt  ├─► state       readiness, failures, damage, refusals
//!                                                         └─► exposure    TLS, rights, admin listener
//! ```
//!
//! Everything is read; nothing is changed. Checks are functions from what was read to [`Finding`]s.

mod agreement;
mod capacity;
mod exposure;
mod finding;
mod grpc;
mod hbase;
mod server;
mod state;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use futures::future::join_all;
use oxtsdb_command::stdout::print;
use oxtsdb_command::table_args::TableArgs;
use oxtsdb_command::target::{DataTarget, UidTarget};

use self::finding::{Finding, Findings, Level};
use self::server::Server;
use crate::admin::AdminTargets;

/// Check a deployment, and say what to change
///
/// Reads what the servers at --admin report of themselves (settings, metrics, clocks), calls the gRPC ports at --target
/// and --uid-target, and compares: versions, clocks, UID widths, salt, tables and gateways that have to agree; memory,
/// descriptors, disk and UIDs that run out; failures and damage; ports without protection. It changes nothing.
///
/// With --hbase-quorum, --hbase-masters or --hbase-thrift it also connects with HBase itself, as a start of a server does: each gateway, the tables and
/// their families, and whether stored UIDs and row keys have the widths and the salt of the settings. Servers need not
/// run for that.
///
/// Exit status: 0 if there is no error; 1 if there is one; 2 wrong usage.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    admin: AdminTargets,

    #[command(flatten)]
    data: DataTarget,

    #[command(flatten)]
    uid: UidTarget,

    /// Check HBase only, no servers
    #[arg(long)]
    only_hbase: bool,

    /// Print checks that found nothing, too
    #[arg(long)]
    all: bool,

    /// Form of the findings
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Time-out of each request, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,

    /// TOML file with the settings of a server; names of tables, salt, widths and gateways are used
    #[arg(long, env = "OXTSDB_CONFIG", value_name = "FILE")]
    config: Option<std::path::PathBuf>,

    /// OpenTSDB's configuration file; names of tables, salt and widths are used
    #[arg(long, env = "OXTSDB_OPENTSDB_CONF", value_name = "FILE")]
    opentsdb_conf: Option<std::path::PathBuf>,

    #[command(flatten)]
    tables: TableArgs,
}

/// How findings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines, the worst first
    Text,
    /// A list of objects: level, check, server, found, advice
    Json,
}

/// Checks and prints.
///
/// # Errors
///
/// Standard output fails. Faults of the deployment and of a target are findings.
pub(crate) async fn run(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    let timeout = Duration::from_secs(args.timeout);
    let has_hbase = args.tables.hbase.place().is_some();
    if args.only_hbase && !has_hbase {
        // A file may name the gateways, so that clap cannot know.
        eprintln!("tsdb: --only-hbase needs --hbase-quorum, --hbase-masters or --hbase-thrift");
        return Ok(ExitCode::from(2));
    }
    let (findings, servers) = match args.only_hbase {
        true => (Vec::new(), Vec::new()),
        false => check_servers(&args, timeout).await,
    };
    let mut findings = Findings(findings);
    if has_hbase {
        findings
            .0
            .extend(hbase::check(&args.tables, timeout, &servers).await);
    }
    match args.format {
        Format::Text => print(&findings.to_text(args.all))?,
        Format::Json => print(&format!("{}\n", findings.to_json()?))?,
    }
    Ok(ExitCode::from(u8::from(findings.has_errors())))
}

/// The findings, and the servers that respond.
async fn check_servers(args: &DoctorArgs, timeout: Duration) -> (Vec<Finding>, Vec<Server>) {
    let listeners = args.admin.listeners(timeout);
    let read = join_all(listeners.iter().map(server::read)).await;
    let mut findings = Vec::new();
    let mut servers = Vec::new();
    for (listener, server) in listeners.iter().zip(read) {
        match server {
            Ok(server) => servers.push(server),
            Err(error) => {
                let url = listener.url().to_string();
                let advice = match error.is_away() {
                    true => {
                        "start the server, whose last line says why it ended, or correct --admin; --admin-listen none \
                         has no such port"
                    }
                    false => "correct --admin: the URL of a server's --admin-listen",
                };
                findings.push(Finding::new(Level::Error, "admin", &url, error.reason(), advice));
            }
        }
    }
    // Without those that are away, one or the other service may seem to be missing.
    if findings.is_empty() {
        findings.push(agreement::coverage(&servers));
    }
    findings.extend(agreement::check(&servers));
    for server in &servers {
        findings.extend(state::check(server));
        findings.extend(capacity::check(server));
        findings.extend(exposure::check(server));
    }
    findings.extend(grpc::check(&args.data, &args.uid, timeout, &servers).await);
    (findings, servers)
}
