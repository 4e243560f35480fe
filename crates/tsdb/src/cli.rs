//! The arguments: `--help` is the reference.

use clap::{CommandFactory as _, Parser, Subcommand};
use oxtsdb_server::settings;
use oxtsdb_transfer::{copy, import, query, scan};

use crate::{
    annotate, backup, compact, delete, doctor, fsck, health, queries, rollup, search, serve, store, tables,
    top, tree, uid,
};

/// OpenTSDB-compatible time series storage over gRPC: run the services, import points, query them.
///
/// Every command except `serve`, `tables`, `restore`, `store salvage`, `export`, `compare` and `import --into` is a client
/// of running servers. Exit status: 0 done; 1 failed, or something was not found or was rejected; 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "tsdb", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// What to log to standard error, for example `info` or `warn,data_service=debug` [default:
    /// info for serve, warn for all others]
    #[arg(long, global = true, env = "OXTSDB_LOG", value_name = "FILTER")]
    pub(crate) log: Option<String>,

    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(Box<serve::ServeArgs>),
    Tables(tables::TablesArgs),
    Import(Box<import::ImportArgs>),
    Export(Box<copy::export::ExportArgs>),
    Compare(Box<copy::compare::CompareArgs>),
    Query(query::QueryArgs),
    Queries(queries::QueriesArgs),
    Top(top::TopArgs),
    Rollup(rollup::RollupArgs),
    Scan(scan::ScanArgs),
    Delete(delete::DeleteArgs),
    Search(search::SearchArgs),
    Annotate(Box<annotate::AnnotateArgs>),
    Tree(tree::TreeArgs),
    Fsck(Box<fsck::FsckArgs>),
    Uid(uid::UidArgs),
    Mkmetric(uid::MkmetricArgs),
    Snapshot(backup::SnapshotArgs),
    Restore(backup::RestoreArgs),
    Store(store::StoreArgs),
    Compact(compact::CompactArgs),
    Health(health::HealthArgs),
    Doctor(Box<doctor::DoctorArgs>),
    /// Print the contract as a protobuf descriptor set, for proxies that transcode JSON: `tsdb descriptors > oxtsdb.pb`
    Descriptors,
    /// Print the version
    Version,
}

/// Returns a warning for each environment variable that looks like a setting and is none.
pub(crate) fn unknown_variables() -> Vec<String> {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    settings::unknown_variables(&Cli::command(), variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_uid_target_may_follow_the_command() {
        for words in [
            ["tsdb", "uid", "--uid-target", "http://h:1", "usage"],
            ["tsdb", "uid", "usage", "--uid-target", "http://h:1"],
        ] {
            let Command::Uid(uid) = Cli::try_parse_from(words).unwrap().command else {
                panic!("{words:?}");
            };
            assert_eq!(uid.target.url(), "http://h:1", "{words:?}");
        }
    }

    #[test]
    fn every_option_has_a_help_text() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let name = argument.get_id();
                assert!(
                    argument.get_help().is_some(),
                    "{} of {}",
                    name,
                    command.get_name()
                );
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
