//! `tsdb uid delete`.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{Error, UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::line::line;

/// Delete names with their UIDs and metadata
///
/// Points are kept, but no name leads to them any more; a name that is written again gets another
/// UID. Prints each mapping that was deleted. Exit status: 1 if a name was not deleted.
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// metrics, tagk or tagv
    kind: UidKind,
    /// Names
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Runs `tsdb uid delete`.
///
/// # Errors
///
/// If the service cannot be reached.
pub(super) async fn run(server: &Server<UidClient>, args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let DeleteArgs { kind, names } = args;
    let mut code = ExitCode::SUCCESS;
    for name in names {
        match server.client.delete(*kind, name, None).await {
            Ok(deleted) => print(&line(*kind, name, deleted.uid))?,
            Err(Error::Rejected(rejection)) => {
                eprintln!("{kind} {name}: {rejection}");
                code = ExitCode::FAILURE;
            }
            Err(error) => return Err(server.error("uid delete", &error)),
        }
    }
    Ok(code)
}
