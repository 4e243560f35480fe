//! `tsdb uid suggest`: names with a prefix.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{UidClient, UidKind};
use oxtsdb_command::target::Server;

use super::line::{line, print_found};

/// List names with a prefix, in byte order
///
/// Prints a line for each. Exit status: 1 if there is none.
#[derive(Debug, Args)]
pub(super) struct SuggestArgs {
    /// metrics, tagk or tagv
    kind: UidKind,
    /// The prefix; without it, all names
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Maximum number of names
    #[arg(long, value_name = "COUNT", default_value_t = 25)]
    max: usize,
}

/// Runs `tsdb uid suggest`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(server: &Server<UidClient>, args: &SuggestArgs) -> anyhow::Result<ExitCode> {
    let SuggestArgs { kind, prefix, max } = args;
    let mappings = server.client.suggest_names(*kind, prefix, *max).await;
    let mappings = mappings.map_err(|error| server.error("uid suggest", &error))?;
    let lines = mappings
        .iter()
        .map(|mapping| line(*kind, &mapping.name, mapping.uid));
    print_found(&lines.collect::<String>())
}
