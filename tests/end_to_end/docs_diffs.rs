//! The diffs of CONTRIBUTING.md apply: each hunk's context is in its file, and new files do not exist yet.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::paths;

/// A part of a diff.
struct Hunk {
    path: String,
    /// The lines that the file must have, one after the other; none for a new file.
    context: Vec<String>,
}

/// The hunks of all `diff` blocks of a document. A hunk begins with the name of its file or with `@@`.
fn hunks(document: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut is_diff = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_diff = line == "```diff";
        } else if !is_diff || line.starts_with("--- ") {
            continue;
        } else if let Some(path) = line.strip_prefix("+++ b/") {
            hunks.push(Hunk {
                path: path.to_owned(),
                context: Vec::new(),
            });
        } else if let Some(last) = hunks.last_mut() {
            if line.starts_with("@@") {
                let path = last.path.clone();
                hunks.push(Hunk {
                    path,
                    context: Vec::new(),
                });
            } else if !line.starts_with('+') {
                last.context.push(line.get(1..).unwrap_or_default().to_owned());
            }
        }
    }
    hunks
}

fn check(hunk: &Hunk, file: &Path) -> anyhow::Result<()> {
    if hunk.context.is_empty() {
        return Ok(());
    }
    let text = fs::read_to_string(file)?;
    let lines: Vec<&str> = text.lines().collect();
    let applies = lines
        .windows(hunk.context.len())
        .any(|window| window == hunk.context);
    ensure!(applies, "has no such lines:\n{}", hunk.context.join("\n"));
    Ok(())
}

#[test]
fn diffs_of_contributing_apply() -> anyhow::Result<()> {
    let root = paths::workspace();
    let hunks = hunks(&fs::read_to_string(root.join("CONTRIBUTING.md"))?);
    ensure!(hunks.len() > 2, "only {} hunks", hunks.len());
    for hunk in &hunks {
        let file = root.join(&hunk.path);
        check(hunk, &file).with_context(|| format!("CONTRIBUTING.md: {}", hunk.path))?;
        let changes_something = hunks
            .iter()
            .any(|other| other.path == hunk.path && !other.context.is_empty());
        ensure!(
            file.exists() == changes_something,
            "{} is not as the diff expects",
            hunk.path
        );
    }
    Ok(())
}
