//! `tsdb tree`: trees of series. Each group of subcommands is a module.

mod define;
mod definition_file;
mod output;
mod problems;
mod show;
mod test;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use oxtsdb_command::target::DataTarget;

/// Define trees of series, print them, and test their rules
///
/// A tree sorts series into a hierarchy by rules: on each level, the first rule that yields a name counts; the last
/// name is the leaf, the others are branches. New series are placed as they appear if the server has
/// --enable-tree-processing and the tree is enabled; `tsdb uid treesync` places all.
#[derive(Debug, Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    target: DataTarget,

    #[command(subcommand)]
    command: TreeCommand,
}

/// Subcommands of `tsdb tree`.
#[derive(Debug, Subcommand)]
enum TreeCommand {
    /// List all trees
    List,
    Create(define::CreateArgs),
    Rules(define::RulesArgs),
    /// Place new series in a tree as they appear
    Enable(define::TreeId),
    /// Place no new series in a tree
    Disable(define::TreeId),
    Show(show::ShowArgs),
    Test(test::TestArgs),
    /// Print the series with a place in a tree that another series has
    ///
    /// A line for each, TSUID and the TSUID that has the place, with a tab between. The tree must store failures.
    Collisions(problems::ProblemArgs),
    /// Print the series that a strict tree rejected
    ///
    /// A line for each, TSUID and the rules that failed, with a tab between. The tree must store failures.
    NotMatched(problems::ProblemArgs),
    Delete(define::DeleteArgs),
}

/// Runs `tsdb tree`.
///
/// # Errors
///
/// If a call fails, or a file cannot be read.
pub(crate) async fn run(args: TreeArgs) -> anyhow::Result<ExitCode> {
    use oxtsdb_client::proto::data::v1::TreeProblem;

    let server = args.target.data()?;
    match args.command {
        TreeCommand::List => define::list(&server).await,
        TreeCommand::Create(args) => define::create(&server, args).await,
        TreeCommand::Rules(args) => define::rules(&server, args).await,
        TreeCommand::Enable(args) => define::enable(&server, args.tree_id, true).await,
        TreeCommand::Disable(args) => define::enable(&server, args.tree_id, false).await,
        TreeCommand::Show(args) => show::run(&server, args).await,
        TreeCommand::Test(args) => test::run(&server, args).await,
        TreeCommand::Collisions(args) => problems::run(&server, args, TreeProblem::Collision).await,
        TreeCommand::NotMatched(args) => problems::run(&server, args, TreeProblem::NotMatched).await,
        TreeCommand::Delete(args) => {
            define::delete(&server, "tree delete", args.tree_id, args.definition).await
        }
    }
}

pub(crate) use define::delete;
