//! `tsdb tree test`: where series would be placed.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use oxtsdb_client::DataClient;
use oxtsdb_client::proto::common::v1::series_key::Key;
use oxtsdb_client::proto::common::v1::{SeriesKey, SeriesName, Tag};
use oxtsdb_client::proto::data::v1::test_tree_response::result::Outcome;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use super::output::printable;

/// Show where series would be placed in a tree, without storing anything
///
/// Prints a line for each series: the series, and its branches and leaf with slashes between, or why it has no
/// place. Exit status: 1 if one has none.
#[derive(Debug, Args)]
pub(super) struct TestArgs {
    /// Id of the tree
    #[arg(value_name = "ID")]
    tree_id: u32,
    /// METRIC{TAGK=TAGV,...} or a TSUID as hex; at most 100
    #[arg(required = true, value_name = "SERIES", num_args = 1..=100)]
    series: Vec<String>,
    /// Print the steps too, in OpenTSDB's words
    #[arg(long)]
    messages: bool,
}

/// Tests series.
pub(super) async fn run(server: &Server<DataClient>, args: TestArgs) -> anyhow::Result<ExitCode> {
    let keys = args
        .series
        .iter()
        .map(|text| series_key(text))
        .collect::<anyhow::Result<_>>()?;
    let results = server.client.test_tree(args.tree_id, keys).await;
    let results = results.map_err(|error| server.error("tree test", &error))?;
    let mut code = ExitCode::SUCCESS;
    let mut out = String::new();
    for (text, result) in args.series.iter().zip(results) {
        let outcome = match result.outcome {
            Some(Outcome::Place(place)) => {
                let names = place
                    .branches
                    .iter()
                    .chain([&place.leaf])
                    .map(|name| printable(name));
                names.collect::<Vec<_>>().join("/")
            }
            Some(Outcome::NoPlace(reason)) => {
                code = ExitCode::FAILURE;
                format!("no place: {reason}")
            }
            Some(Outcome::Error(error)) => {
                code = ExitCode::FAILURE;
                format!("error: {}", error.message)
            }
            None => "the server sent no result".to_owned(),
        };
        out += &format!("{text}\t{outcome}\n");
        if args.messages {
            out.extend(
                result
                    .messages
                    .iter()
                    .map(|message| format!("  {}\n", printable(message))),
            );
        }
    }
    print(&out)?;
    Ok(code)
}

fn series_key(text: &str) -> anyhow::Result<SeriesKey> {
    let key = match text.split_once('{') {
        None => {
            let tsuid = hex::decode(text).ok();
            Key::Tsuid(tsuid.with_context(|| not_a_series(text))?.into())
        }
        Some((metric, tags)) => {
            let tags = tags.strip_suffix('}').with_context(|| not_a_series(text))?;
            let tag = |tag: &str| {
                let (key, value) = tag.split_once('=').with_context(|| not_a_series(text))?;
                anyhow::Ok(Tag {
                    key: key.trim().to_owned(),
                    value: value.trim().to_owned(),
                })
            };
            Key::Name(SeriesName {
                metric: metric.to_owned(),
                tags: tags.split(',').map(tag).collect::<anyhow::Result<_>>()?,
            })
        }
    };
    Ok(SeriesKey { key: Some(key) })
}

fn not_a_series(text: &str) -> String {
    format!("`{text}` is not a series, expected METRIC{{TAGK=TAGV,...}} or a TSUID as hex")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_names_or_tsuids() {
        let Some(Key::Name(name)) = series_key("sys.cpu{host=web01, dc=lax}").unwrap().key else {
            panic!("a name");
        };
        assert_eq!(
            (&*name.metric, name.tags.len(), &*name.tags[1].key),
            ("sys.cpu", 2, "dc")
        );
        assert!(
            matches!(series_key("000001000001000001").unwrap().key, Some(Key::Tsuid(bytes)) if bytes.len() == 9)
        );
        for wrong in ["sys.cpu", "sys.cpu{host}", "sys.cpu{host=web01", "0001z"] {
            assert!(series_key(wrong).unwrap_err().to_string().contains(wrong));
        }
    }
}
