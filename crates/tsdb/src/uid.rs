//! `tsdb uid`: names and UIDs.

mod lookup;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::UidClient;
use oxtsdb_proto::common::v1::{ItemError, UidKind as ProtoKind};
use oxtsdb_proto::uid::v1::{UidName, get_or_create_uids_response};
use oxtsdb_schema::UidKind;
use regex::RegexBuilder;
use tonic::{Code, Status};

use crate::cli::UidTarget;
use crate::query::print;
use crate::remote::{Target, code_name};

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
    /// Give names UIDs; names that have one keep it
    ///
    /// Prints a line for each name. Exit status: 1 if one of them got none.
    Assign {
        /// metrics, tagk or tagv
        kind: UidKind,
        /// Names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Look up names, or UIDs as hex
    ///
    /// A text that can be both is looked up as both. Without a kind all three are looked at. Prints
    /// a line for each mapping found. Exit status: 1 if a text was not found.
    Lookup {
        /// [KIND], then names or UIDs
        #[arg(required = true, value_name = "[KIND] NAME|UID")]
        words: Vec<String>,
    },
    /// List names that begin with a prefix, in byte order
    ///
    /// Prints a line for each. Exit status: 1 if there is none.
    Suggest {
        /// metrics, tagk or tagv
        kind: UidKind,
        /// What names begin with; all names without it
        #[arg(default_value = "", hide_default_value = true)]
        prefix: String,
        /// So many names at most
        #[arg(long, value_name = "COUNT", default_value_t = 25)]
        max: usize,
    },
    /// List names that match a regular expression anywhere
    ///
    /// All names of the kinds are read. Prints a line for each match. Exit status: 1 if there is
    /// none.
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

/// Give metrics UIDs; the same as `uid assign metrics`
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
    let target = args.target.open()?;
    let client = target.uids();
    match args.command {
        UidCommand::Assign { kind, names } => assign(&target, kind, &names).await,
        UidCommand::Lookup { words } => {
            let (kinds, texts) = kinds_and_rest(&words);
            lookup::lookup(&target, &kinds, texts).await
        }
        UidCommand::Suggest { kind, prefix, max } => {
            let mappings = client.suggest_names(proto_kind(kind), &prefix, max, None).await;
            let mappings = mappings.map_err(|status| target.error("uid suggest", &status))?;
            let lines = mappings
                .iter()
                .map(|mapping| line(kind, &mapping.name, &mapping.uid));
            found(&lines.collect::<String>())
        }
        UidCommand::Grep { words, ignore_case } => {
            let (kinds, texts) = kinds_and_rest(&words);
            grep(&target, &client, &kinds, &texts[0], ignore_case).await
        }
        UidCommand::Usage => usage(&target, &client).await,
    }
}

/// Runs `tsdb mkmetric`.
///
/// # Errors
///
/// If the call fails as a whole.
pub(crate) async fn make_metrics(args: MkmetricArgs) -> anyhow::Result<ExitCode> {
    assign(&args.target.open()?, UidKind::Metric, &args.names).await
}

async fn assign(target: &Target, kind: UidKind, names: &[String]) -> anyhow::Result<ExitCode> {
    let wanted = names.iter().map(|name| uid_name(kind, name)).collect();
    let results = target
        .uids()
        .get_or_create_uids(wanted, true, None)
        .await
        .map_err(|status| target.error("uid assign", &status))?;
    let mut output = String::new();
    let mut code = ExitCode::SUCCESS;
    for (name, result) in names.iter().zip(results) {
        match result.outcome {
            Some(get_or_create_uids_response::result::Outcome::Uid(uid)) => output += &line(kind, name, &uid),
            Some(get_or_create_uids_response::result::Outcome::Error(error)) => {
                eprintln!("{kind} {name}: {}", item_error(&error));
                code = ExitCode::FAILURE;
            }
            None => return Err(target.error("uid assign", &Status::internal("an answer without a result"))),
        }
    }
    print(&output)?;
    Ok(code)
}

async fn grep(
    target: &Target,
    client: &UidClient,
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
        let mut export = client.export_uids(&[proto_kind(*kind)], None);
        while let Some(mappings) = export
            .next_batch()
            .await
            .map_err(|status| target.error("uid grep", &status))?
        {
            let matching = mappings
                .iter()
                .filter(|mapping| expression.is_match(&mapping.name));
            output.extend(matching.map(|mapping| line(*kind, &mapping.name, &mapping.uid)));
        }
    }
    found(&output)
}

async fn usage(target: &Target, client: &UidClient) -> anyhow::Result<ExitCode> {
    let usage = client
        .get_uid_usage(None)
        .await
        .map_err(|status| target.error("uid usage", &status))?;
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["kind", "used", "available"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for kind in UidKind::ALL {
        let of_kind = usage
            .kinds
            .iter()
            .filter(|usage| usage.kind() == proto_kind(kind));
        for usage in of_kind {
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

/// Prints what was found, if anything was.
fn found(lines: &str) -> anyhow::Result<ExitCode> {
    print(lines)?;
    Ok(if lines.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// The kind, if the first of several words is one, else all; and the other words.
fn kinds_and_rest(words: &[String]) -> (Vec<UidKind>, &[String]) {
    if let [first, rest @ ..] = words
        && !rest.is_empty()
        && let Ok(kind) = first.parse()
    {
        return (vec![kind], rest);
    }
    (UidKind::ALL.to_vec(), words)
}

fn line(kind: UidKind, name: &str, uid: &[u8]) -> String {
    format!("{kind} {name}: {}\n", hex::encode_upper(uid))
}

fn item_error(error: &ItemError) -> String {
    format!("{}: {}", code_name(Code::from(error.code)), error.message)
}

fn uid_name(kind: UidKind, name: &str) -> UidName {
    UidName {
        kind: proto_kind(kind) as i32,
        name: name.to_owned(),
    }
}

/// The contract's word for a kind.
pub(crate) fn proto_kind(kind: UidKind) -> ProtoKind {
    match kind {
        UidKind::Metric => ProtoKind::Metric,
        UidKind::Tagk => ProtoKind::TagKey,
        UidKind::Tagv => ProtoKind::TagValue,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_kind_stands_before_other_words() {
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
    fn a_mapping_is_one_line() {
        assert_eq!(
            line(UidKind::Metric, "sys.cpu", &[0, 15, 66]),
            "metrics sys.cpu: 000F42\n"
        );
    }
}
