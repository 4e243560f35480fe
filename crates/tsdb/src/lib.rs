//! The commands of `tsdb`: runs both services in one process, and talks to services that run.
//!
//! A library, which cargo compiles beside the code of its dependencies; a program waits for them.
//!
//! Without arguments it says what it can do; every command's `--help` is its reference.

mod admin;
mod annotate;
mod backup;
mod cli;
mod compact;
mod delete;
mod doctor;
mod fsck;
mod health;
mod queries;
mod repair_plan;
mod rollup;
mod search;
mod serve;
mod settings;
mod store;
mod tables;
mod top;
mod tree;
mod uid;

use std::future::ready;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use futures::future::LocalBoxFuture;
use oxtsdb_command::stdout;
use oxtsdb_server::program;
use oxtsdb_server::settings::with_short_help;
use oxtsdb_server::telemetry::{self, LogFormat};
use oxtsdb_transfer::{copy, import, query, scan};

use cli::{Cli, Command};
use settings::opentsdb_conf::Outcome;

/// Runs the command of the process's arguments, and reports its failure.
pub fn main() -> ExitCode {
    run().unwrap_or_else(|error| program::failed("tsdb", &error))
}

fn run() -> anyhow::Result<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let root = Cli::command().mut_subcommand("serve", with_short_help);
    let (matches, opentsdb_conf) = settings::matches(&root, &arguments)?;
    let Cli { log, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Command::Serve(args) = &command
        && let Some(selection) = args.server.program.print_config
    {
        stdout::print(&settings::file(&root, &matches, selection))?;
        return Ok(ExitCode::SUCCESS);
    }
    let log = log.as_deref();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let entered = runtime.enter();
    let _telemetry = if let Command::Serve(args) = &command {
        let filter = log.unwrap_or(telemetry::DEFAULT_FILTER);
        telemetry::init_service("tsdb", filter, &args.server)?
    } else {
        telemetry::init(log.unwrap_or("warn"), LogFormat::Text)?
    };
    drop(entered);
    runtime.block_on(future_of(command, opentsdb_conf))
}

/// The future that runs a command. Behind a pointer: the runtime polls in three places, and each would have its own copy of all
/// commands' code.
fn future_of(
    command: Command,
    opentsdb_conf: Option<Outcome>,
) -> LocalBoxFuture<'static, anyhow::Result<ExitCode>> {
    match command {
        Command::Serve(args) => Box::pin(serve::run(*args, opentsdb_conf, cli::unknown_variables())),
        Command::Tables(args) => Box::pin(tables::run(args)),
        Command::Import(args) => import::run(*args),
        Command::Export(args) => copy::export::run(*args),
        Command::Compare(args) => copy::compare::run(*args),
        Command::Query(args) => query::run(args),
        Command::Queries(args) => Box::pin(queries::run(args)),
        Command::Top(args) => Box::pin(top::run(args)),
        Command::Rollup(args) => Box::pin(rollup::run(args)),
        Command::Scan(args) => scan::run(args),
        Command::Delete(args) => Box::pin(delete::run(args)),
        Command::Search(args) => Box::pin(search::run(args)),
        Command::Annotate(args) => Box::pin(annotate::run(*args)),
        Command::Tree(args) => Box::pin(tree::run(args)),
        Command::Fsck(args) => Box::pin(fsck::run(*args)),
        Command::Uid(args) => Box::pin(uid::run(args)),
        Command::Mkmetric(args) => Box::pin(uid::make_metrics(args)),
        Command::Snapshot(args) => Box::pin(backup::snapshot(args)),
        Command::Restore(args) => Box::pin(backup::run_restore(args)),
        Command::Store(args) => Box::pin(store::run(args)),
        Command::Compact(args) => Box::pin(compact::run(args)),
        Command::Health(args) => Box::pin(health::run(args)),
        Command::Doctor(args) => Box::pin(doctor::run(*args)),
        Command::Descriptors => Box::pin(async {
            stdout::print_bytes(&oxtsdb_server::descriptor_set()?)?;
            Ok(ExitCode::SUCCESS)
        }),
        Command::Version => {
            println!("tsdb {} (OxTSDB)", env!("CARGO_PKG_VERSION"));
            Box::pin(ready(Ok(ExitCode::SUCCESS)))
        }
    }
}
