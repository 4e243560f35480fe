//! `tsdb uid`: names and UIDs.

mod line;
mod lookup;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::{UidClient, UidKind};
use regex::RegexBuilder;

use self::line::line;
use crate::stdout::print;
use crate::target::{Server, UidTarget};

/// Assign, look up and list UIDs
///
/// KIND is metrics, tagk or tagv. UIDs are printed and read as upper-case hex. A mapping is printed
/// as `KIND NAME: UID`, one a line.
#[derive(Debug, Args)]
pub(crate) struct UidArgs {
    #[command(flatten)]
    pub(crate) target: UidTarget,

    #[command(subcommand)]
    command: UidCommand,
}

/// What to do with UIDs.
#[derive(Debug, Subcommand)]
enum UidCommand {
    /// Assign UIDs to names; existing mappings are kept
    ///
    /// Prints a line for each name. Exit status: 1 if a name was rejected.
    Assign {
        /// metrics, tagk or tagv
        kind: UidKind,
        /// Names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Look up names, or UIDs as hex
    ///
    /// A text that can be both is looked up as both. Without a kind, all three are searched. Prints a
    /// line for each mapping found. Exit status: 1 if a text was not found.
    Lookup {
        /// [KIND], then names or UIDs
        #[arg(required = true, value_name = "[KIND] NAME|UID")]
        words: Vec<String>,
    },
    /// List names with a prefix, in byte order
    ///
    /// Prints a line for each. Exit status: 1 if there is none.
    Suggest {
        /// metrics, tagk or tagv
        kind: UidKind,
        /// The prefix; without it, all names
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// Maximum number of names
        #[arg(long, value_name = "COUNT", default_value_t = 25)]
        max: usize,
    },
    /// List names that match a regular expression anywhere
    ///
    /// Reads all names of the kinds. Prints a line for each match. Exit status: 1 if there is none.
    Grep {
        /// [KIND], then a regular expression (of Rust's crate regex)
        #[arg(required = true, num_args = 1..=2, value_name = "[KIND] REGEX")]
        words: Vec<String>,
        /// Ignore case
        #[arg(short = 'i', long)]
        ignore_case: bool,
    },
    /// Print how many UIDs are in use and left, by kind
    Usage,
}

/// Assign UIDs to metrics; same as `uid assign metrics`
#[derive(Debug, Args)]
pub(crate) struct MkmetricArgs {
    #[command(flatten)]
    target: UidTarget,

    /// Names of metrics
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

/// Runs `tsdb uid`.
///
/// # Errors
///
/// If a call fails as a whole.
pub(crate) async fn run(args: UidArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.uid()?;
    match args.command {
        UidCommand::Assign { kind, names } => assign(&server, kind, &names).await,
        UidCommand::Lookup { words } => {
            let (kinds, texts) = kinds_and_rest(&words);
            lookup::lookup(&server, &kinds, texts).await
        }
        UidCommand::Suggest { kind, prefix, max } => {
            let mappings = server.client.suggest_names(kind, &prefix, max).await;
            let mappings = mappings.map_err(|error| server.error("uid suggest", &error))?;
            let lines = mappings
                .iter()
                .map(|mapping| line(kind, &mapping.name, mapping.uid));
            found(&lines.collect::<String>())
        }
        UidCommand::Grep { words, ignore_case } => {
            let (kinds, texts) = kinds_and_rest(&words);
            grep(&server, &kinds, &texts[0], ignore_case).await
        }
        UidCommand::Usage => usage(&server).await,
    }
}

/// Runs `tsdb mkmetric`.
///
/// # Errors
///
/// If the call fails as a whole.
pub(crate) async fn make_metrics(args: MkmetricArgs) -> anyhow::Result<ExitCode> {
    assign(&args.target.uid()?, UidKind::Metric, &args.names).await
}

async fn assign(server: &Server<UidClient>, kind: UidKind, names: &[String]) -> anyhow::Result<ExitCode> {
    let requested: Vec<(UidKind, &String)> = names.iter().map(|name| (kind, name)).collect();
    let results = server.client.get_or_create_uids(&requested, true).await;
    let results = results.map_err(|error| server.error("uid assign", &error))?;
    let mut output = String::new();
    let mut code = ExitCode::SUCCESS;
    for (name, result) in names.iter().zip(results) {
        match result {
            Ok(assigned) => output += &line(kind, name, assigned.uid),
            Err(rejection) => {
                eprintln!("{kind} {name}: {rejection}");
                code = ExitCode::FAILURE;
            }
        }
    }
    print(&output)?;
    Ok(code)
}

async fn grep(
    server: &Server<UidClient>,
    kinds: &[UidKind],
    pattern: &str,
    ignore_case: bool,
) -> anyhow::Result<ExitCode> {
    let expression = RegexBuilder::new(pattern)
        .case_insensitive(ignore_case)
        .build()
        .with_context(|| format!("`{pattern}` is not a regular expression"))?;
    let mut output = String::new();
    for kind in kinds {
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
    found(&output)
}

async fn usage(server: &Server<UidClient>) -> anyhow::Result<ExitCode> {
    let usage = server.client.get_uid_usage().await;
    let usage = usage.map_err(|error| server.error("uid usage", &error))?;
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["kind", "used", "available"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kind in UidKind::ALL {
        for usage in usage.iter().filter(|usage| usage.kind == kind) {
            table.add_row([
                kind.to_string(),
                usage.used.to_string(),
                usage.available.to_string(),
            ]);
        }
    }
    print(&format!("{table}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the mappings found; fails without any.
fn found(lines: &str) -> anyhow::Result<ExitCode> {
    print(lines)?;
    Ok(if lines.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The kind, if the first of several words is one, otherwise all kinds; and the other words.
fn kinds_and_rest(words: &[String]) -> (Vec<UidKind>, &[String]) {
    if let [first, rest @ ..] = words
        && !rest.is_empty()
        && let Ok(kind) = first.parse()
    {
        return (vec![kind], rest);
    }
    (UidKind::ALL.to_vec(), words)
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::Uid;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_kind_precedes_other_words() {
        let tagk = words("tagk host 000001");
        assert_eq!(kinds_and_rest(&tagk), (vec![UidKind::Tagk], &tagk[1..]));
        let names = words("host tagk");
        assert_eq!(kinds_and_rest(&names), (UidKind::ALL.to_vec(), &names[..]));
        let alone = words("metrics");
        assert_eq!(
            kinds_and_rest(&alone),
            (UidKind::ALL.to_vec(), &alone[..]),
            "a name then"
        );
    }

    #[test]
    fn mappings_are_one_line_each() {
        assert_eq!(
            line(UidKind::Metric, "sys.cpu", Uid::from_bytes(&[0, 15, 66]).unwrap()),
            "metrics sys.cpu: 000F42\n"
        );
    }
}
