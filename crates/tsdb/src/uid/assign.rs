//! `tsdb uid assign` and `tsdb mkmetric`.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{Server, UidTarget};

use super::line::line;

/// Assign UIDs to names; existing mappings are kept
///
/// Prints a line for each name. Exit status: 1 if a name was rejected.
#[derive(Debug, Args)]
pub(super) struct AssignArgs {
    /// metrics, tagk or tagv
    kind: UidKind,
    /// Names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Assign UIDs to metrics; same as `uid assign metrics`
#[derive(Debug, Args)]
pub(crate) struct MkmetricArgs {
    #[command(flatten)]
    target: UidTarget,

    /// Names of metrics
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Runs `tsdb uid assign`.
///
/// # Errors
///
/// If the call fails as a whole.
pub(super) async fn run(server: &Server<UidClient>, args: &AssignArgs) -> anyhow::Result<ExitCode> {
    assign(server, args.kind, &args.names).await
}

/// Runs `tsdb mkmetric`.
///
/// # Errors
///
/// If the call fails as a whole.
pub(crate) async fn make_metrics(args: MkmetricArgs) -> anyhow::Result<ExitCode> {
    assign(&args.target.uid()?, UidKind::Metric, &args.names).await
}

async fn assign(server: &Server<UidClient>, kind: UidKind, names: &[String]) -> anyhow::Result<ExitCode> {
    let requested: Vec<(UidKind, &String)> = names.iter().map(|name| (kind, name)).collect();
    let results = server.client.get_or_create_uids(&requested, true).await;
    let results = results.map_err(|error| server.error("uid assign", &error))?;
    let mut output = String::new();
    let mut code = ExitCode::SUCCESS;
    for (name, result) in names.iter().zip(results) {
        match result {
            Ok(assigned) => output += &line(kind, name, assigned.uid),
            Err(rejection) => {
                eprintln!("{kind} {name}: {rejection}");
                code = ExitCode::FAILURE;
            }
        }
    }
    print(&output)?;
    Ok(code)
}
