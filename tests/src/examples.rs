//! Examples of a Markdown document: scripts, and the output that the document shows for them.
//!
//! A fenced block ```` ```sh run ```` is a script. A ```` ```text ```` block that follows with nothing
//! but blank lines between is what it prints; without one it prints nothing. `…` stands for any text
//! within a line, for values that differ between runs.

use anyhow::{Context as _, ensure};

/// A script and its output.
#[derive(Debug)]
pub struct Example {
    /// Line of the document at which the script begins, from 1.
    pub line: usize,
    /// The script.
    pub script: String,
    /// What it prints, a pattern for each line.
    pub output: Vec<String>,
}

/// A fenced block.
struct Block {
    line: usize,
    info: String,
    text: Vec<String>,
    /// Only blank lines separate it from the block before.
    adjoins: bool,
}

/// Returns the examples of a document, in its order.
///
/// # Errors
///
/// If a block is not closed.
pub fn parse(document: &str) -> anyhow::Result<Vec<Example>> {
    let mut examples: Vec<Example> = Vec::new();
    let mut follows_script = false;
    for block in blocks(document)? {
        if block.info == "sh run" {
            examples.push(Example {
                line: block.line,
                script: block.text.join("\n"),
                output: Vec::new(),
            });
        } else if block.info == "text" && block.adjoins && follows_script {
            let example = examples.last_mut().context("a script precedes its output")?;
            example.output = block.text;
        }
        follows_script = block.info == "sh run";
    }
    Ok(examples)
}

fn blocks(document: &str) -> anyhow::Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut adjoins = false;
    for (number, line) in (1..).zip(document.lines()) {
        match (open.take(), line.strip_prefix("```")) {
            (None, Some(info)) => {
                open = Some(Block {
                    line: number + 1,
                    info: info.trim().to_owned(),
                    text: Vec::new(),
                    adjoins,
                });
            }
            (None, None) => adjoins &= line.trim().is_empty(),
            (Some(block), Some("")) => {
                blocks.push(block);
                adjoins = true;
            }
            (Some(mut block), _) => {
                block.text.push(line.to_owned());
                open = Some(block);
            }
        }
    }
    if let Some(block) = open {
        anyhow::bail!("the block at line {} is not closed", block.line);
    }
    Ok(blocks)
}

/// Checks the output of a script against its patterns.
///
/// # Errors
///
/// If a line differs, or there are more or fewer lines.
pub fn check(printed: &str, patterns: &[String]) -> anyhow::Result<()> {
    let lines: Vec<&str> = printed.lines().collect();
    for (line, pattern) in lines.iter().zip(patterns) {
        ensure!(
            matches(line, pattern),
            "expected `{pattern}`, printed `{line}`; in all:\n{printed}"
        );
    }
    ensure!(
        lines.len() == patterns.len(),
        "expected {} lines, printed {}:\n{printed}",
        patterns.len(),
        lines.len()
    );
    Ok(())
}

/// True if the line has all parts of the pattern, in order, with any text where the pattern has `…`.
fn matches(line: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else {
        return line == pattern;
    };
    let Some(line) = line.strip_prefix(first) else {
        return false;
    };
    line.char_indices()
        .map(|(at, _)| at)
        .chain([line.len()])
        .any(|at| line.get(at..).is_some_and(|tail| matches(tail, rest)))
}

#[cfg(test)]
mod tests {
    use super::{check, parse};

    #[test]
    fn pairs_a_script_with_the_text_that_follows_it() -> anyhow::Result<()> {
        let document = "```sh run\necho a\n```\n\n```text\na\n```\n\n```text\nb\n```\n\
                        ```sh run\ntrue\n```\nProse.\n```text\nc\n```\n```sh\nfalse\n```\n";
        let examples = parse(document)?;
        let found: Vec<_> = examples
            .iter()
            .map(|example| (example.line, example.script.as_str(), example.output.clone()))
            .collect();
        assert_eq!(
            found,
            [(2, "echo a", vec!["a".to_owned()]), (13, "true", Vec::new()),]
        );
        assert!(parse("```sh run\n").is_err());
        Ok(())
    }

    #[test]
    fn an_ellipsis_matches_any_text_of_a_line() {
        let patterns = ["4 points in … s (… points/s)".to_owned()];
        assert!(check("4 points in 0.08 s (49 points/s)\n", &patterns).is_ok());
        for other in [
            "4 points in 0.08 s",
            "5 points in 1 s (5 points/s)",
            "",
            "4 points in 1 s (4 points/s)\n\n",
        ] {
            assert!(check(other, &patterns).is_err(), "{other}");
        }
    }
}
