//! `tsdb uid`: names and UIDs. Each subcommand is a module with its arguments.

mod assign;
mod delete;
mod fsck;
mod grep;
mod line;
mod lookup;
mod meta;
mod metapurge;
mod metasync;
mod reclaim;
mod recover;
mod rename;
mod suggest;
pub(crate) mod top;
mod treepurge;
mod treesync;
mod usage;
mod watch;
mod words;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(crate) use self::assign::{MkmetricArgs, make_metrics};
use oxtsdb_command::target::UidTarget;

/// Assign, look up, list, rename and delete UIDs
///
/// KIND is metrics, tagk or tagv. UIDs are printed and read as upper-case hex. A mapping is printed
/// as `KIND NAME: UID`, one a line.
#[derive(Debug, Args)]
pub(crate) struct UidArgs {
    #[command(flatten)]
    pub(crate) target: UidTarget,

    #[command(subcommand)]
    command: UidCommand,
}

/// Subcommands of `tsdb uid`.
#[derive(Debug, Subcommand)]
enum UidCommand {
    Assign(assign::AssignArgs),
    Lookup(lookup::LookupArgs),
    Suggest(suggest::SuggestArgs),
    Grep(grep::GrepArgs),
    Meta(meta::MetaArgs),
    Metasync(metasync::MetasyncArgs),
    Metapurge(metapurge::MetapurgeArgs),
    Top(top::TopArgs),
    Rename(rename::RenameArgs),
    Delete(delete::DeleteArgs),
    Fsck(fsck::FsckArgs),
    Watch(watch::WatchArgs),
    Reclaim(reclaim::ReclaimArgs),
    Recover(recover::RecoverArgs),
    Treesync(treesync::TreesyncArgs),
    Treepurge(treepurge::TreepurgeArgs),
    /// Print how many UIDs are in use and left, until when, and the use of quotas
    Usage(usage::UsageArgs),
}

/// Runs `tsdb uid`.
///
/// # Errors
///
/// If a call fails as a whole.
pub(crate) async fn run(args: UidArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.uid()?;
    match args.command {
        UidCommand::Assign(args) => assign::run(&server, &args).await,
        UidCommand::Lookup(args) => lookup::run(&server, &args).await,
        UidCommand::Suggest(args) => suggest::run(&server, &args).await,
        UidCommand::Grep(args) => grep::run(&server, &args).await,
        UidCommand::Meta(args) => meta::run(&server, &args).await,
        UidCommand::Metasync(args) => metasync::run(&args).await,
        UidCommand::Metapurge(args) => metapurge::run(&server, &args).await,
        UidCommand::Top(args) => top::run(&args).await,
        UidCommand::Rename(args) => rename::run(&server, &args).await,
        UidCommand::Delete(args) => delete::run(&server, &args).await,
        UidCommand::Fsck(args) => fsck::run(&server, args).await,
        UidCommand::Watch(args) => watch::run(&server, &args).await,
        UidCommand::Reclaim(args) => reclaim::run(&server, &args).await,
        UidCommand::Recover(args) => recover::run(&server, &args).await,
        UidCommand::Usage(args) => usage::run(&server, &args).await,
        UidCommand::Treesync(args) => treesync::run(&args).await,
        UidCommand::Treepurge(args) => treepurge::run(&args).await,
    }
}
