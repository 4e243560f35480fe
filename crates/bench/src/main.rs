//! Benchmarks of OxTSDB, alone and beside OpenTSDB and VictoriaMetrics.
//!
//! Servers are processes of their own, on the same machine and cores as the generator.

mod answer;
mod assign;
mod beside;
mod concurrent;
mod disk;
mod embedded;
mod hbase;
mod ingest;
mod large;
mod mixed;
mod names;
mod operations;
mod peers;
mod process;
mod queries;
mod report;
mod rig;
mod rollups;
mod workload;

use std::path::PathBuf;

use anyhow::ensure;
use clap::{Parser, Subcommand};

/// Sends workload W1 through each front end of `tsdb serve`, runs queries Q1 to Q4, and prints points/s,
/// processor seconds per million points, bytes per point, peak memory and times.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    /// The program to measure; default: `tsdb` beside this one.
    #[arg(long, global = true)]
    program: Option<PathBuf>,
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    embedded: embedded::Arguments,
}

/// Other measurements.
#[derive(Debug, Subcommand)]
enum Other {
    Hbase(hbase::Arguments),
    Queries(beside::Arguments),
    Large(large::Arguments),
    Mixed(mixed::Arguments),
    Concurrent(concurrent::Arguments),
    Names(names::Arguments),
    Assign(assign::Arguments),
    Peers(peers::Arguments),
    Operations(operations::Arguments),
    Rollups(rollups::Arguments),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Cli::parse();
    let program = match arguments.program {
        Some(program) => program,
        None => std::env::current_exe()?.with_file_name("tsdb"),
    };
    ensure!(
        program.exists(),
        "{} does not exist; build it: cargo build --release -p tsdb",
        program.display()
    );
    match arguments.other {
        None => embedded::run(program, arguments.embedded).await,
        Some(Other::Hbase(arguments)) => hbase::run(program, arguments).await,
        Some(Other::Queries(arguments)) => beside::run(program, arguments).await,
        Some(Other::Large(arguments)) => large::run(program, arguments).await,
        Some(Other::Mixed(arguments)) => mixed::run(program, arguments).await,
        Some(Other::Concurrent(arguments)) => concurrent::run(program, arguments).await,
        Some(Other::Names(arguments)) => names::run(program, arguments).await,
        Some(Other::Assign(arguments)) => assign::run(program, arguments).await,
        Some(Other::Peers(arguments)) => peers::run(program, arguments).await,
        Some(Other::Operations(arguments)) => operations::run(program, arguments).await,
        Some(Other::Rollups(arguments)) => rollups::run(program, arguments).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
