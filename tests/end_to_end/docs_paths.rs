//! Paths and links in the documents lead to files and headings of the repository.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::paths;

/// Returns the Markdown files of git's index, without test data and without the changelog: its entries name the files of
/// their time.
fn documents() -> anyhow::Result<Vec<String>> {
    let root = paths::workspace();
    let output = Command::new("git")
        .args(["ls-files", "-z", "*.md"])
        .current_dir(&root)
        .output()
        .context("run git")?;
    ensure!(
        output.status.success(),
        "git ls-files: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let names = String::from_utf8(output.stdout).context("names of documents are UTF-8")?;
    let documents: Vec<String> = names
        .split('\0')
        .filter(|name| !name.is_empty() && *name != "CHANGELOG.md" && !name.contains("testdata/"))
        // Removed, and still in the index.
        .filter(|name| root.join(name).exists())
        .map(str::to_owned)
        .collect();
    ensure!(documents.len() > 20, "git lists only {documents:?}");
    Ok(documents)
}

/// A word is a path if its first segment is a folder beside the document or at the root. Of patterns
/// such as `proto/oxtsdb/**/*.proto` only the part before the first `*` has to exist.
#[test]
fn paths_exist() -> anyhow::Result<()> {
    let root = paths::workspace();
    let mut missing = Vec::new();
    let mut count = 0;
    for document in documents()? {
        let text = fs::read_to_string(root.join(&document))?;
        let beside = root
            .join(&document)
            .parent()
            .context("a document lies in a folder")?
            .to_owned();
        for (number, line) in (1..).zip(text.lines()) {
            for word in line.split(|c: char| c.is_whitespace() || "`\"'()[]{}<>|,;:#=…".contains(c)) {
                let path = word.split('*').next().unwrap_or_default().trim_end_matches('.');
                let Some((folder, _)) = path.split_once('/') else {
                    continue;
                };
                let bases: Vec<_> = [&root, &beside]
                    .into_iter()
                    .filter(|base| !folder.is_empty() && base.join(folder).is_dir())
                    .collect();
                if folder == "target" || folder.starts_with('.') && folder != ".ci" || bases.is_empty() {
                    continue;
                }
                count += 1;
                if !bases.iter().any(|base| base.join(path).exists()) {
                    missing.push(format!("{document}:{number}: {path}"));
                }
            }
        }
    }
    assert!(missing.is_empty(), "no such files:\n{}", missing.join("\n"));
    assert!(count > 20, "only {count} paths recognized");
    Ok(())
}

#[test]
fn links_lead_somewhere() -> anyhow::Result<()> {
    let root = paths::workspace();
    for document in documents()? {
        let text = fs::read_to_string(root.join(&document))?;
        for (_, rest) in text.match_indices("](").map(|(at, _)| text.split_at(at + 2)) {
            let (target, _) = rest.split_once(')').context("a link is closed")?;
            if target.contains("://") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = match file {
                "" => root.join(&document),
                _ => root.join(&document).with_file_name("").join(file),
            };
            ensure!(path.exists(), "{document} links to {target}");
            if !heading.is_empty() {
                let anchors = headings(&fs::read_to_string(&path)?);
                ensure!(
                    anchors.iter().any(|anchor| anchor == heading),
                    "{document} links to {target}"
                );
            }
        }
    }
    Ok(())
}

/// Anchors of the headings, as GitHub forms them.
fn headings(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(|&c| c.is_alphanumeric() || " -_".contains(c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}
