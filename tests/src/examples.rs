//! Examples of a Markdown document: scripts, and the output that the document shows for them.
//!
//! A fenced block ```` ```sh run ```` is a script. A ```` ```text ```` block that follows with nothing
//! but blank lines between is its output; without one it prints nothing. `…` stands for any text
//! within a line, for values that differ between runs; blanks at the end of a line do not count.
//!
//! A block ```` ```sh serve ```` has the command that starts the server of the document. A block with a file
//! name after its language, as ```` ```json rollups.json ````, is a file for the server and the scripts.

use anyhow::{Context as _, bail, ensure};

/// A document with examples.
#[derive(Debug, Default)]
pub struct Page {
    /// Scripts with their output, in the document's order.
    pub examples: Vec<Example>,
    /// Flags of the server; none if the document shows no command for it.
    pub flags: Vec<String>,
    /// Files by name, with their content.
    pub files: Vec<(String, String)>,
}

/// A script and its output.
#[derive(Debug)]
pub struct Example {
    /// Line of the document at which the script begins, from 1.
    pub line: usize,
    /// The script.
    pub script: String,
    /// Its output, a pattern for each line.
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

/// Returns the examples of a document, with the files and the flags that they need.
///
/// # Errors
///
/// If a block is not closed, or a block `sh serve` is no single command `tsdb serve`.
pub fn parse(document: &str) -> anyhow::Result<Page> {
    let mut page = Page::default();
    let mut follows_script = false;
    for block in blocks(document)? {
        let words: Vec<&str> = block.info.split_whitespace().collect();
        match words.as_slice() {
            ["sh", "run"] => page.examples.push(Example {
                line: block.line,
                script: block.text.join("\n"),
                output: Vec::new(),
            }),
            ["sh", "serve"] => page.flags = flags(&block)?,
            ["text"] if block.adjoins && follows_script => {
                let example = page.examples.last_mut().context("a script precedes its output")?;
                example.output = block.text;
            }
            [_, name] if name.contains('.') => {
                page.files
                    .push(((*name).to_owned(), block.text.join("\n") + "\n"));
            }
            _ => {}
        }
        follows_script = block.info == "sh run";
    }
    Ok(page)
}

/// Returns the flags of the command in a block.
fn flags(block: &Block) -> anyhow::Result<Vec<String>> {
    let [command] = block.text.as_slice() else {
        bail!(
            "the block at line {} has {} lines, expected one",
            block.line,
            block.text.len()
        );
    };
    let flags = command.strip_prefix("tsdb serve ").with_context(|| {
        format!(
            "the block at line {} does not begin with `tsdb serve`",
            block.line
        )
    })?;
    Ok(flags.split_whitespace().map(str::to_owned).collect())
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
        bail!("the block at line {} is not closed", block.line);
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
            matches(line.trim_end(), pattern.trim_end()),
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
        let page = parse(document)?;
        let examples: Vec<_> = page
            .examples
            .iter()
            .map(|example| (example.line, example.script.as_str(), example.output.clone()))
            .collect();
        assert_eq!(
            examples,
            [(2, "echo a", vec!["a".to_owned()]), (13, "true", Vec::new()),]
        );
        assert!(parse("```sh run\n").is_err());
        Ok(())
    }

    #[test]
    fn reads_files_and_flags_of_the_server() -> anyhow::Result<()> {
        let document = "```toml rules.toml\na = 1\n\nb = 2\n```\n```sh serve\ntsdb serve --rules rules.toml --fast\n```\n\
                        ```text layers\ntsdb\n```\n";
        let page = parse(document)?;
        assert_eq!(
            page.files,
            [("rules.toml".to_owned(), "a = 1\n\nb = 2\n".to_owned())]
        );
        assert_eq!(page.flags, ["--rules", "rules.toml", "--fast"]);
        assert!(page.examples.is_empty());
        for wrong in ["```sh serve\n```\n", "```sh serve\ndata-service --fast\n```\n"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        Ok(())
    }

    #[test]
    fn ignores_blanks_at_the_end_of_a_line() {
        assert!(check("| a  |  \n", &["| a  |".to_owned()]).is_ok());
        assert!(check("| a |\n", &["| a  |".to_owned()]).is_err());
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
