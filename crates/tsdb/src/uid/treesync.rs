//! `tsdb uid treesync`: places all series in trees.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use oxtsdb_client::proto::data::v1::{SyncTreesRequest, SyncTreesResponse};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;

/// Place all series in the enabled trees
///
/// Reads table tsdb-meta. Series that have a place stay there. Prints what became of the series; if it is
/// interrupted, --start-after continues behind the last series that it names. Calls the data service.
#[derive(Debug, Args)]
pub(crate) struct TreesyncArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Only into this tree, even if it is not enabled; may be repeated
    #[arg(long = "tree", value_name = "ID")]
    trees: Vec<u32>,

    /// Also series without a metadata document, which have a counter of points only
    #[arg(long)]
    all_series: bool,

    /// Only series behind this one, as hex
    #[arg(long, value_name = "TSUID")]
    start_after: Option<String>,
}

/// Runs `tsdb uid treesync`.
///
/// # Errors
///
/// If the call fails; the error names the last series that was placed.
pub(super) async fn run(args: &TreesyncArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    let start_after = args.start_after.as_deref().unwrap_or_default();
    let start_after =
        hex::decode(start_after).with_context(|| format!("`{start_after}` is not a TSUID as hex"))?;
    let request = SyncTreesRequest {
        tree_ids: args.trees.clone(),
        start_after_tsuid: start_after.into(),
        all_series: args.all_series,
    };
    let client = server.client.without_deadline();
    let progress = client.sync_trees(request).await;
    let mut progress = progress.map_err(|error| server.error("uid treesync", &error))?;
    let mut last = SyncTreesResponse::default();
    loop {
        match progress.next().await {
            Ok(Some(report)) => last = report,
            Ok(None) => break,
            Err(error) => {
                let error = server.error("uid treesync", &error);
                if last.last_tsuid.is_empty() {
                    return Err(error);
                }
                print(&summary(&last))?;
                let resume = hex::encode_upper(&last.last_tsuid);
                return Err(error.context(format!("interrupted, continue with --start-after {resume}")));
            }
        }
    }
    print(&summary(&last))?;
    if last.series == 0 {
        let trees = match args.trees.is_empty() {
            true => server.client.list_trees().await,
            false => Ok(Vec::new()),
        };
        let trees = trees.map_err(|error| server.error("uid treesync", &error))?;
        let has_tree = !args.trees.is_empty() || trees.iter().any(|tree| tree.enabled);
        if let Some(hint) = hint(has_tree, args.all_series) {
            eprintln!("{hint}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Why no series was placed.
fn hint(has_tree: bool, all_series: bool) -> Option<&'static str> {
    match (has_tree, all_series) {
        (false, _) => Some(
            "no tree is enabled, so that no series was read: `tsdb tree list` shows the trees, `tsdb tree enable ID` \
             enables one, --tree ID places series in one that is not enabled",
        ),
        (true, false) => Some("no series has a metadata document; --all-series places the others"),
        (true, true) => None,
    }
}

fn summary(report: &SyncTreesResponse) -> String {
    let mut out = String::new();
    for (label, count) in [
        ("series", report.series),
        ("placed", report.placed),
        ("already placed", report.existing),
        ("collisions", report.collisions),
        ("not matched", report.not_matched),
        ("without a place", report.without_place),
        ("invalid", report.invalid),
    ] {
        out += &format!("{label}: {count}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_why_no_series_was_placed() {
        assert!(hint(false, false).unwrap().starts_with("no tree is enabled"));
        assert!(hint(false, true).unwrap().starts_with("no tree is enabled"));
        assert!(hint(true, false).unwrap().contains("--all-series"));
        assert_eq!(hint(true, true), None);
    }
}
