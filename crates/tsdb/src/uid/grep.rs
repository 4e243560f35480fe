//! `tsdb uid grep`: names that match a regular expression.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use oxtsdb_client::UidClient;
use oxtsdb_command::target::Server;
use regex::RegexBuilder;

use super::line::{line, print_found};
use super::words::kinds_and_rest;

/// List names that match a regular expression anywhere
///
/// Reads all names of the kinds. Prints a line for each match. Exit status: 1 if there is none.
#[derive(Debug, Args)]
pub(super) struct GrepArgs {
    /// [KIND], then a regular expression (of Rust's crate regex)
    #[arg(required = true, num_args = 1..=2, value_name = "[KIND] REGEX")]
    words: Vec<String>,
    /// Ignore case
    #[arg(short = 'i', long)]
    ignore_case: bool,
}

/// Runs `tsdb uid grep`.
///
/// # Errors
///
/// The expression is invalid, or a call fails.
pub(super) async fn run(server: &Server<UidClient>, args: &GrepArgs) -> anyhow::Result<ExitCode> {
    let (kinds, texts) = kinds_and_rest(&args.words);
    let pattern = &texts[0];
    let expression = RegexBuilder::new(pattern)
        .case_insensitive(args.ignore_case)
        .build()
        .with_context(|| format!("`{pattern}` is not a regular expression"))?;
    let mut output = String::new();
    for kind in &kinds {
        let mut export = server.client.without_deadline().export_uids(&[*kind]);
        while let Some(mappings) = export
            .next()
            .await
            .map_err(|error| server.error("uid grep", &error))?
        {
            let matching = mappings
                .iter()
                .filter(|mapping| expression.is_match(&mapping.name));
            output.extend(matching.map(|mapping| line(*kind, &mapping.name, mapping.uid)));
        }
    }
    print_found(&output)
}
