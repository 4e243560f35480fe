//! `tsdb tree collisions` and `tsdb tree not-matched`.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use oxtsdb_client::DataClient;
use oxtsdb_client::proto::data::v1::{ListTreeProblemsRequest, TreeProblem};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

/// A tree and series.
#[derive(Debug, Args)]
pub(super) struct ProblemArgs {
    /// Id of the tree
    #[arg(value_name = "ID")]
    tree_id: u32,
    /// Only these series, as hex
    #[arg(value_name = "TSUID")]
    tsuids: Vec<String>,
}

/// Prints the problems of a tree.
pub(super) async fn run(
    server: &Server<DataClient>,
    args: ProblemArgs,
    problem: TreeProblem,
) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("tree problems", &error);
    let bytes = |text: &String| hex::decode(text).with_context(|| format!("`{text}` is not a TSUID as hex"));
    let tsuids = args
        .tsuids
        .iter()
        .map(bytes)
        .collect::<anyhow::Result<Vec<_>>>()?;
    let request = ListTreeProblemsRequest {
        tree_id: args.tree_id,
        problem: problem.into(),
        tsuids: tsuids.into_iter().map(Into::into).collect(),
    };
    let client = server.client.without_deadline();
    let mut entries = client.list_tree_problems(request).await.map_err(failed)?;
    while let Some(entry) = entries.next().await.map_err(failed)? {
        let reason = match problem {
            TreeProblem::Collision => hex::encode_upper(&entry.other_tsuid),
            TreeProblem::NotMatched | TreeProblem::Unspecified => entry.message,
        };
        print(&format!("{}\t{reason}\n", hex::encode_upper(&entry.tsuid)))?;
    }
    Ok(ExitCode::SUCCESS)
}
