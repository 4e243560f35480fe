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
mod copy;
mod delete;
mod doctor;
mod fsck;
mod health;
mod import;
mod queries;
mod query;
mod rejected_repair;
mod rollup;
mod scan;
mod search;
mod serve;
mod settings;
mod stdout;
mod store;
mod table_args;
mod tables;
mod target;
mod time_zone;
mod top;
mod tree;
mod uid;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use oxtsdb_server::program;
use oxtsdb_server::settings::with_short_help;
use oxtsdb_server::telemetry::{self, LogFormat};

use cli::{Cli, Command};

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
    runtime.block_on(async {
        match command {
            Command::Serve(args) => serve::run(*args, opentsdb_conf).await,
            Command::Tables(args) => tables::run(args).await,
            Command::Import(args) => import::run(*args).await,
            Command::Export(args) => copy::export::run(*args).await,
            Command::Compare(args) => copy::compare::run(*args).await,
            Command::Query(args) => query::run(args).await,
            Command::Queries(args) => queries::run(args).await,
            Command::Top(args) => top::run(args).await,
            Command::Rollup(args) => rollup::run(args).await,
            Command::Scan(args) => scan::run(args).await,
            Command::Delete(args) => delete::run(args).await,
            Command::Search(args) => search::run(args).await,
            Command::Annotate(args) => annotate::run(*args).await,
            Command::Tree(args) => tree::run(args).await,
            Command::Fsck(args) => fsck::run(*args).await,
            Command::Uid(args) => uid::run(args).await,
            Command::Mkmetric(args) => uid::make_metrics(args).await,
            Command::Snapshot(args) => backup::snapshot(args).await,
            Command::Restore(args) => backup::run_restore(args).await,
            Command::Store(args) => store::run(args).await,
            Command::Compact(args) => compact::run(args).await,
            Command::Health(args) => health::run(args).await,
            Command::Doctor(args) => doctor::run(*args).await,
            Command::Descriptors => {
                stdout::print_bytes(&oxtsdb_server::descriptor_set()?)?;
                Ok(ExitCode::SUCCESS)
            }
            Command::Version => {
                println!("tsdb {} (OxTSDB)", env!("CARGO_PKG_VERSION"));
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}
