//! Trees.

use clap::Args;

/// Trees: series sorted into a hierarchy by rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Trees")]
pub struct TreeSettings {
    /// Place new series in the enabled trees as they appear (tsd.core.tree.enable_processing). It needs
    /// --enable-realtime-ts, and on HBase --enable-tsuid-tracking. Series that exist already:
    /// `tsdb uid treesync`
    #[arg(long, env = "OXTSDB_ENABLE_TREE_PROCESSING", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub enable_tree_processing: bool,
}
