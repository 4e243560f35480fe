//! `tsdb tree show`: prints the branches and leaves of a tree.

use std::process::ExitCode;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use oxtsdb_client::proto::common::v1::ErrorReason;
use oxtsdb_client::proto::data::v1::get_branch_request::Branch as BranchKey;
use oxtsdb_client::proto::data::v1::{GetBranchRequest, TreeBranch, TreeLeaf};
use oxtsdb_client::{DataClient, Error};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::output::{leaf_text, printable};

/// Print the branches and leaves of a tree
///
/// A line for each branch, `NAME/`, and each leaf, NAME and its series. Branches below the depth end with `/…`. Prints
/// nothing if no series is placed in the tree.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// Id of the tree
    #[arg(value_name = "ID")]
    tree_id: u32,
    /// Names of the branches from the root to the one to print
    #[arg(value_name = "BRANCH")]
    path: Vec<String>,
    /// Levels to print
    #[arg(long, default_value_t = 4)]
    depth: usize,
    /// Lines to print at most
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    limit: usize,
}

/// A branch with its parts.
#[derive(Debug)]
struct Branch {
    name: String,
    leaves: Vec<TreeLeaf>,
    children: Vec<TreeBranch>,
}

/// The state of an output of a tree.
struct Printer<'a> {
    server: &'a Server<DataClient>,
    lines: usize,
}

/// Prints a tree.
pub(super) async fn run(server: &Server<DataClient>, args: ShowArgs) -> anyhow::Result<ExitCode> {
    let tree = server.client.get_tree(args.tree_id).await;
    tree.map_err(|error| failed(server, &error))?;
    let root = branch(server, BranchKey::TreeId(args.tree_id)).await;
    if matches!(&root, Err(error) if error.reason() == Some(ErrorReason::BranchNotFound)) {
        eprintln!("no series is placed in tree {}", args.tree_id);
        return Ok(ExitCode::SUCCESS);
    }
    let mut branch = root.map_err(|error| failed(server, &error))?;
    for name in &args.path {
        let child = branch.children.iter().find(|child| child.display_name == *name);
        let child = child.with_context(|| format!("branch `{}` has no branch `{name}`", branch.name))?;
        branch = branch_of(server, child.branch_id.clone()).await?;
    }
    let mut printer = Printer {
        server,
        lines: args.limit,
    };
    if printer.line(&format!("{}/", printable(&branch.name)))? {
        printer.below(branch, String::new(), args.depth).await?;
    }
    if printer.lines == 0 {
        eprintln!("more than {} lines, the rest is left out (--limit)", args.limit);
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a branch, with leaves and children by name.
async fn branch(server: &Server<DataClient>, key: BranchKey) -> Result<Branch, Error> {
    let request = GetBranchRequest { branch: Some(key) };
    let mut parts = server.client.get_branch(request).await?;
    let mut branch = Branch {
        name: String::new(),
        leaves: Vec::new(),
        children: Vec::new(),
    };
    while let Some(part) = parts.next().await? {
        if let Some(first) = part.branch {
            branch.name = first.display_name;
        }
        branch.leaves.extend(part.leaves);
        branch.children.extend(part.children);
    }
    branch.leaves.sort_by(|a, b| a.display_name.cmp(&b.display_name));
    branch
        .children
        .sort_by(|a, b| a.display_name.cmp(&b.display_name));
    Ok(branch)
}

impl Printer<'_> {
    /// Prints a line; `false` once the limit is reached.
    fn line(&mut self, text: &str) -> anyhow::Result<bool> {
        if self.lines == 0 {
            return Ok(false);
        }
        self.lines -= 1;
        print(&format!("{text}\n"))?;
        Ok(self.lines > 0)
    }

    /// Prints what is below a branch.
    fn below(&mut self, branch: Branch, indent: String, depth: usize) -> BoxFuture<'_, anyhow::Result<()>> {
        async move {
            let Branch { leaves, children, .. } = branch;
            let mut left = leaves.len() + children.len();
            let mut bars = || {
                left -= 1;
                if left == 0 {
                    ("└── ", "    ")
                } else {
                    ("├── ", "│   ")
                }
            };
            for child in children {
                let (bar, next) = bars();
                let name = printable(&child.display_name);
                let end = if depth > 1 { "/" } else { "/…" };
                if !self.line(&format!("{indent}{bar}{name}{end}"))? {
                    return Ok(());
                }
                if depth > 1 {
                    let child = branch_of(self.server, child.branch_id).await?;
                    self.below(child, format!("{indent}{next}"), depth - 1).await?;
                }
            }
            for leaf in leaves {
                let (bar, _) = bars();
                if !self.line(&format!("{indent}{bar}{}", leaf_text(&leaf)))? {
                    return Ok(());
                }
            }
            Ok(())
        }
        .boxed()
    }
}

async fn branch_of(server: &Server<DataClient>, id: Bytes) -> anyhow::Result<Branch> {
    let branch = branch(server, BranchKey::BranchId(id)).await;
    branch.map_err(|error| failed(server, &error))
}

fn failed(server: &Server<DataClient>, error: &Error) -> anyhow::Error {
    server.error("tree show", error)
}
