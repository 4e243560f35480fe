//! `tsdb uid rename`.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::line::line;

/// Give a UID another name; its points move to the new name
///
/// Prints the new mapping.
#[derive(Debug, Args)]
pub(super) struct RenameArgs {
    /// metrics, tagk or tagv
    kind: UidKind,
    /// The current name
    old: String,
    /// The new name; it must not have a UID
    new: String,
}

/// Runs `tsdb uid rename`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(server: &Server<UidClient>, args: &RenameArgs) -> anyhow::Result<ExitCode> {
    let RenameArgs { kind, old, new } = args;
    let renamed = server.client.rename(*kind, old, new, None).await;
    let renamed = renamed.map_err(|error| server.error("uid rename", &error))?;
    print(&line(*kind, &renamed.name, renamed.uid))?;
    Ok(ExitCode::SUCCESS)
}
