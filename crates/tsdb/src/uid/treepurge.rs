//! `tsdb uid treepurge`: deletes a tree.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_command::target::DataTarget;

use crate::tree::delete;

/// Delete what was placed in a tree; same as `tree delete`
///
/// Calls the data service.
#[derive(Debug, Args)]
pub(crate) struct TreepurgeArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Id of the tree
    #[arg(value_name = "ID")]
    tree_id: u32,

    /// `true`: delete the definition and the rules too
    #[arg(default_value_t = false, action = clap::ArgAction::Set)]
    definition: bool,
}

/// Runs `tsdb uid treepurge`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(args: &TreepurgeArgs) -> anyhow::Result<ExitCode> {
    delete(
        &args.target.data()?,
        "uid treepurge",
        args.tree_id,
        args.definition,
    )
    .await
}
