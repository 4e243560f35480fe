//! Examples in the docs of crates are compiled and run. rustdoc reads a crate for them, so that most crates say `doctest =
//! false`: they must have none.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use crate::layers::metadata;

/// The lines of `source`, counted from 1, at which an example begins that rustdoc would run.
fn examples(source: &str) -> Vec<usize> {
    let mut lines = Vec::new();
    let mut is_inside = false;
    for (line, text) in (1..).zip(source.lines()) {
        let text = text.trim_start();
        let Some(text) = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")) else {
            is_inside = false;
            continue;
        };
        let Some(language) = text.trim().strip_prefix("```") else {
            continue;
        };
        let is_rust = language
            .split(',')
            .all(|word| matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail"));
        if !is_inside && is_rust {
            lines.push(line);
        }
        is_inside = !is_inside;
    }
    lines
}

/// All files of Rust in a folder.
fn sources(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

#[test]
fn a_crate_without_doc_tests_has_no_examples() -> anyhow::Result<()> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().context("packages")?;
    let targets = packages
        .iter()
        .flat_map(|package| package["targets"].as_array())
        .flatten();
    let libraries: Vec<_> = targets
        .filter(|target| target["kind"] == serde_json::json!(["lib"]))
        .collect();
    let mut with_examples = 0;
    for library in &libraries {
        let root = library["src_path"].as_str().context("src_path")?;
        let folder = Path::new(root).parent().context("a folder")?;
        let has_doc_tests = library["doctest"] == true;
        for file in sources(folder)? {
            let lines = examples(&fs::read_to_string(&file)?);
            with_examples += usize::from(!lines.is_empty());
            ensure!(
                has_doc_tests || lines.is_empty(),
                "{}: examples at lines {lines:?} are not run, as the crate's Cargo.toml says doctest = false",
                file.display()
            );
        }
    }
    ensure!(libraries.len() > 20, "{} libraries", libraries.len());
    ensure!(with_examples > 3, "{with_examples} files with examples");
    Ok(())
}

#[test]
fn examples_are_code_blocks_without_another_language() {
    let source = "/// ```\n/// a();\n/// ```\n/// ```text\n/// b\n/// ```\nfn f() {}\n    //! ```no_run\n    //! ```\n";
    assert_eq!(examples(source), [1, 8]);
}
