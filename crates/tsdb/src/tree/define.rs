//! Definitions and rules.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::DataClient;
use oxtsdb_client::proto::data::v1::Tree;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::definition_file;
use super::output::rule_lines;

/// A tree.
#[derive(Debug, Args)]
pub(super) struct TreeId {
    /// Id of the tree
    #[arg(value_name = "ID")]
    pub(super) tree_id: u32,
}

/// Create a tree, with rules from a file
///
/// The file is JSON, or TOML if its name ends in .toml: name, description, notes, strict_match, enabled,
/// store_failures, and rules, a list of type, level, order, field, custom_field, regex, regex_group_idx, separator,
/// display_format, description, notes. OpenTSDB's names (strictMatch) and its /api/tree?treeid=N are read too.
/// Prints the id.
#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Name; in place of the file's
    #[arg(required_unless_present = "file")]
    name: Option<String>,
    /// Read the definition and the rules from a file; `-`: standard input, JSON
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// One line that describes the tree
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Longer text
    #[arg(long, value_name = "TEXT")]
    notes: Option<String>,
    /// Reject series for which no rule of some level yields a name
    #[arg(long)]
    strict_match: bool,
    /// Place new series as they appear
    #[arg(long)]
    enabled: bool,
    /// Store collisions and series that did not match
    #[arg(long)]
    store_failures: bool,
}

/// Print the rules of a tree, or change them
///
/// Prints a line for each rule: level:order, type, and its fields as NAME=VALUE.
#[derive(Debug, Args)]
pub(super) struct RulesArgs {
    /// Id of the tree
    #[arg(value_name = "ID")]
    tree_id: u32,
    /// Store the rules of a file, as for `tree create`; rules of the same level and order are replaced
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Delete all rules that are not in the file
    #[arg(long, requires = "file")]
    replace: bool,
    /// Delete a rule; may be repeated
    #[arg(long, value_name = "LEVEL:ORDER", value_parser = place, conflicts_with = "file")]
    delete: Vec<(u32, u32)>,
}

/// Delete what was placed in a tree and, on request, its definition
///
/// A deletion that is interrupted can be repeated.
#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// Id of the tree
    #[arg(value_name = "ID")]
    pub(super) tree_id: u32,
    /// Delete the definition and the rules too
    #[arg(long)]
    pub(super) definition: bool,
}

fn place(text: &str) -> anyhow::Result<(u32, u32)> {
    let numbers = text
        .split_once(':')
        .and_then(|(level, order)| Some((level.parse().ok()?, order.parse().ok()?)));
    numbers.with_context(|| format!("`{text}` is not LEVEL:ORDER, for example 0:1"))
}

/// Prints all trees.
pub(super) async fn list(server: &Server<DataClient>) -> anyhow::Result<ExitCode> {
    let trees = server.client.list_trees().await;
    let trees = trees.map_err(|error| server.error("tree list", &error))?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "id",
        "name",
        "enabled",
        "strict",
        "rules",
        "description",
    ]);
    for index in [0, 4] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let yes_no = |flag| if flag { "yes" } else { "no" };
    for tree in &trees {
        table.add_row([
            tree.tree_id.to_string().as_str(),
            &tree.name,
            yes_no(tree.enabled),
            yes_no(tree.strict_match),
            &tree.rules.len().to_string(),
            &tree.description,
        ]);
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates a tree and prints its id.
pub(super) async fn create(server: &Server<DataClient>, args: CreateArgs) -> anyhow::Result<ExitCode> {
    let mut tree = match &args.file {
        Some(path) => definition_file::read(path)?,
        None => Tree::default(),
    };
    for (field, text) in [
        (&mut tree.name, args.name),
        (&mut tree.description, args.description),
        (&mut tree.notes, args.notes),
    ] {
        if let Some(text) = text {
            *field = text;
        }
    }
    tree.strict_match |= args.strict_match;
    tree.enabled |= args.enabled;
    tree.store_failures |= args.store_failures;
    let created = server.client.create_tree(tree).await;
    let created = created.map_err(|error| server.error("tree create", &error))?;
    print(&format!("{}\n", created.tree_id))?;
    Ok(ExitCode::SUCCESS)
}

/// Changes and prints the rules of a tree.
pub(super) async fn rules(server: &Server<DataClient>, args: RulesArgs) -> anyhow::Result<ExitCode> {
    let client = &server.client;
    let tree = match &args.file {
        Some(path) => {
            let rules = definition_file::read(path)?.rules;
            if rules.is_empty() {
                bail!("{} has no rules", path.display());
            }
            client.set_tree_rules(args.tree_id, rules, args.replace).await
        }
        None if !args.delete.is_empty() => client.delete_tree_rules(args.tree_id, &args.delete).await,
        None => client.get_tree(args.tree_id).await,
    };
    let tree = tree.map_err(|error| server.error("tree rules", &error))?;
    print(&rule_lines(&tree.rules))?;
    Ok(ExitCode::SUCCESS)
}

/// Switches a tree on or off.
pub(super) async fn enable(
    server: &Server<DataClient>,
    tree_id: u32,
    enabled: bool,
) -> anyhow::Result<ExitCode> {
    let tree = Tree {
        tree_id,
        enabled,
        ..Tree::default()
    };
    let attempt = if enabled { "tree enable" } else { "tree disable" };
    let updated = server.client.update_tree(tree, &["enabled"]).await;
    updated.map_err(|error| server.error(attempt, &error))?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes a tree and prints what was deleted.
pub(crate) async fn delete(
    server: &Server<DataClient>,
    attempt: &str,
    tree_id: u32,
    definition: bool,
) -> anyhow::Result<ExitCode> {
    let client = server.client.without_deadline();
    let progress = client.delete_tree(tree_id, definition).await;
    let mut progress = progress.map_err(|error| server.error(attempt, &error))?;
    let mut last = None;
    while let Some(report) = progress
        .next()
        .await
        .map_err(|error| server.error(attempt, &error))?
    {
        last = Some(report);
    }
    let last = last.unwrap_or_default();
    let (branches, leaves, problems) = (last.branches, last.leaves, last.problems);
    let definition = if definition { ", the definition" } else { "" };
    print(&format!(
        "deleted {branches} branches, {leaves} leaves, {problems} collisions and series that did not match{definition}\n"
    ))?;
    Ok(ExitCode::SUCCESS)
}
