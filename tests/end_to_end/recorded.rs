//! OpenTSDB's surfaces return what a real OpenTSDB 2.4.1 returned, and store the same cells.
//!
//! Each test sends the requests of a file of `testdata/recorded` and compares the responses. `OXTSDB_RECORDED=SECTION`
//! runs the sections with this text in their names and prints all their differences, also of those below that are not
//! expected to pass.

use std::env;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::recorded::{Difference, Section, replay, sections};

/// How long a response that depends on background work may take to become the recorded one.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same if the response or the cells differ on purpose.
const PATIENCE_IF_INTENDED: Duration = Duration::from_millis(500);

/// Responses that differ on purpose: file, section, record, reason. A record that does not differ has to be removed.
/// `*` as the end of a record's name stands for any characters.
const INTENDED: &[(&str, &str, &str, &str)] = &[
    (
        "uid",
        "assign",
        "POST a null name",
        "an error of the client, not of the server",
    ),
    (
        "uid",
        "assign",
        "POST null",
        "an error of the client, not of the server",
    ),
    (
        "uid",
        "assign_errors",
        "version in letters",
        "the details would repeat the message",
    ),
    (
        "uid",
        "assign_errors",
        "an unknown serializer",
        "the details would repeat the message",
    ),
    ("uid", "assign_errors", "jsonp", SCRIPT),
    ("annotation", "queries", "a row without points", NAMED),
    ("annotation", "queries", "a series that has no points (2)", NAMED),
    ("annotation", "queries", "a metric that has no points*", NAMED),
    ("small", "pages", "serializers", SERIALIZERS),
    ("small", "methods", "HEAD /api/serializers", SERIALIZERS),
    ("small", "methods", "PUT /api/serializers", SERIALIZERS),
    ("small", "methods", "DELETE /api/serializers", SERIALIZERS),
    ("small", "methods", "PATCH /api/serializers", SERIALIZERS),
    ("small", "methods", "TRACE /api/serializers", SERIALIZERS),
    ("annotation", "errors", "jsonp", SCRIPT),
    ("tree", "errors", "jsonp", SCRIPT),
    ("uid", "uidmeta", "an unknown type", CLIENT),
    ("uid", "uidmeta", "a short uid", CLIENT),
    ("uid", "uidmeta", "a long uid", CLIENT),
    ("uid", "uidmeta", "a uid that is not hex", CLIENT),
    ("uid", "tsmeta", "an empty tsuid", CLIENT),
    ("uid", "tsmeta", "a tsuid that is not hex", CLIENT),
    ("uid", "tsmeta", "POST an unknown tsuid", CLIENT),
    ("uid", "tsmeta", "POST an unknown metric", CLIENT),
    ("uid", "tsmeta", "PUT an unknown tsuid", CLIENT),
    ("uid", "tsmeta", "POST m, unknown metric", CLIENT),
    ("uid", "tsmeta", "POST m with a wildcard", CLIENT),
    (
        "uid",
        "uidmeta",
        "POST null notes",
        "null is stored as an empty text",
    ),
    (
        "uid",
        "uidmeta",
        "POST null notes (cells)",
        "null is stored as an empty text",
    ),
    (
        "uid",
        "tsmeta_defaults",
        "POST m with create=true",
        "the embedded store tracks all series",
    ),
    (
        "uid",
        "tsmeta_defaults",
        "GET the created",
        "the embedded store tracks all series",
    ),
    (
        "uid",
        "tsmeta_defaults",
        "POST to the created*",
        "the embedded store tracks all series",
    ),
    (
        "annotation",
        "tracking",
        "TSMeta (cells)",
        "the embedded store lists series that have only annotations",
    ),
    (
        "annotation",
        "time_forms",
        "a large time",
        "a time that no row can hold is rejected, 400; OpenTSDB stores it in another year",
    ),
    (
        "annotation",
        "time_forms",
        "a word",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "time_forms",
        "a word as start",
        "a text that is no time is an error of the client, 400",
    ),
    (
        "annotation",
        "time_forms",
        "end in ms in the query string (cells)",
        "without the annotation of the large time",
    ),
    (
        "annotation",
        "globals_",
        "to now",
        "a range without an end ends now; OpenTSDB's is then empty",
    ),
    (
        "annotation",
        "globals_",
        "end before start",
        "an error of the client, 400",
    ),
    (
        "annotation",
        "globals_",
        "a word",
        "a text that is no time is an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "a tsuid that is not hex",
        "an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "a short tsuid",
        "a TSUID must be of a possible series, else 400: its row would break the scans of table tsdb",
    ),
    (
        "annotation",
        "errors",
        "an uneven tsuid",
        "a TSUID must be of a possible series, else 400: its row would break the scans of table tsdb",
    ),
    (
        "annotation",
        "errors",
        "POST broken JSON",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "POST an array",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "POST a list as custom",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "POST a short tsuid",
        "a TSUID must be of a possible series, else 400: its row would break the scans of table tsdb",
    ),
    (
        "annotation",
        "errors",
        "PUT broken JSON",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "errors",
        "jsonp (cells)",
        "without the annotation of the short TSUID",
    ),
    (
        "annotation",
        "bulk",
        "POST one twice",
        "documents of one annotation are applied in their order; OpenTSDB fails, 500",
    ),
    (
        "annotation",
        "bulk",
        "was the good one stored?",
        "a request with a wrong document stores none of its documents",
    ),
    (
        "annotation",
        "bulk",
        "POST nulls",
        "malformed JSON is an error of the client, 400",
    ),
    (
        "annotation",
        "bulk",
        "GET after DELETE (cells)",
        "without the good document of the wrong request",
    ),
    (
        "annotation",
        "bulk",
        "DELETE globals",
        "without the good document of the wrong request",
    ),
    ("tree", "rules", "a negative level", CLIENT),
    ("tree", "rules", "POST an unknown type", CLIENT),
    ("tree", "rules", "POST a broken regular expression", CLIENT),
    ("tree", "rules", "POST a broken separator", SEPARATOR),
    ("tree", "rules", "POST a group that is not there", SEPARATOR),
    ("tree", "rules", "POST a negative level", CLIENT),
    ("tree", "rules", "POST broken JSON", BAD_JSON),
    ("tree", "rules", "POST an array", BAD_JSON),
    ("tree", "rules", "DELETE nothing (cells)", SEPARATOR),
    ("tree", "rule_sets", "POST an object", CLIENT),
    ("tree", "rule_sets", "POST broken JSON", BAD_JSON),
    ("tree", "rule_sets", "method_override=delete", NO_RULES),
    ("tree", "branches", "test two", OWN_BRANCHES),
    ("tree", "branches", "POST test broken JSON", BAD_JSON),
    ("tree", "forms", "lookahead: *", LINEAR),
    ("tree", "forms", "possessive: *", LINEAR),
    ("tree", "forms", "no rules: test", NO_RULES_TEST),
    ("tree", "failures", "the root (cells)", FAILURES),
    ("tree", "failures", "collisions", FAILURES),
    ("tree", "failures", "collisions of one", FAILURES),
    ("tree", "failures", "not matched*", FAILURES),
    ("tree", "failures", "POST", FAILURES),
    ("tree", "failures", "POST TSUIDs", FAILURES),
    ("tree", "failures", "POST an empty list*", FAILURES),
    ("tree", "failures", "POST broken JSON*", BAD_JSON),
    ("tree", "failures", "PUT*", FAILURES),
    ("tree", "failures", "POST (2)", FAILURES),
    ("tree", "failures", "DELETE (2) (cells)", FAILURES),
    ("search", "lookup", "all tags wildcards", WILDCARDS),
    ("search", "lookup", "POST both wildcards", WILDCARDS),
    ("search", "lookup", "POST a value with an empty key", WILDCARDS),
    ("search", "lookup", "POST useMeta false", ONCE),
    ("search", "lookup", "POST tags as a map", BAD_JSON),
    ("search", "lookup", "POST an array", BAD_JSON),
    ("search", "lookup", "POST broken JSON", BAD_JSON),
    ("search", "untracked", "POST a series with two rows", ONCE),
    ("search", "untracked", "POST a tag without metric", ONCE),
    ("search", "untracked", "from tsdb*", TRACKED),
    ("search", "untracked", "a series with two rows", TRACKED),
    ("search", "untracked", "a tag*", TRACKED),
    ("search", "untracked", "POST from tsdb-meta", TRACKED),
    ("search", "untracked", "POST without useMeta", TRACKED),
    ("search", "others", "POST tsmeta, broken JSON", BAD_JSON),
    ("search", "others", "POST tsmeta_summary, broken JSON", BAD_JSON),
    ("search", "others", "POST tsuids, broken JSON", BAD_JSON),
    ("search", "others", "POST uidmeta, broken JSON", BAD_JSON),
    ("search", "others", "POST annotation, broken JSON", BAD_JSON),
    ("small", "pages", "config", CONFIG),
    ("small", "pages", "below config", CONFIG),
    ("small", "pages", "config filters", FILTERS),
    ("small", "pages", "version", VERSION),
    ("small", "pages", "version without api, json", VERSION),
    ("small", "pages", "logs*", LOGS),
    ("small", "pages", "stats region_clients", REGION_CLIENTS),
    ("small", "pages", "stats query after a query", QUERY_STATS),
    ("small", "pages", "favicon", JSON_TYPE),
    ("small", "pages", "static", JSON_TYPE),
    ("small", "methods", "HEAD /api/histogram", HISTOGRAM),
    ("small", "methods", "PUT /api/histogram", HISTOGRAM),
    ("small", "methods", "DELETE /api/histogram", HISTOGRAM),
    ("small", "methods", "PATCH /api/histogram", HISTOGRAM),
    ("small", "methods", "TRACE /api/histogram", HISTOGRAM),
    ("small", "cors_unset", "GET from h*", FOREIGN),
    ("small", "cors_unset", "GET from H*", FOREIGN),
    ("small", "cors_unset", "GET from null", FOREIGN),
    ("small", "cors_unset", "OPTIONS from h*", FOREIGN),
    ("small", "cors_unset", "OPTIONS from H*", FOREIGN),
    ("small", "cors_unset", "OPTIONS from null", FOREIGN),
    ("small", "cors_unset", "POST from h*", FOREIGN),
    ("small", "cors_unset", "POST from H*", FOREIGN),
    ("small", "cors_unset", "POST from null", FOREIGN),
    ("small", "cors_unset", "preflight*", FOREIGN),
    ("small", "cors_unset", "an error with an origin", FOREIGN),
    ("small", "cors_unset", "an unknown path with an origin", FOREIGN),
    ("small", "cors_unset", "PUT with an origin", FOREIGN),
    ("small", "cors_unset", "GET from nowhere", VERSION),
    ("small", "cors_unset", "GET without an origin", VERSION),
    ("small", "cors_all", "GET from *", VERSION),
    ("small", "cors_all", "GET without an origin", VERSION),
    ("small", "cors_list", "GET from http://c*", FOREIGN),
    ("small", "cors_list", "GET from null", FOREIGN),
    ("small", "cors_list", "OPTIONS from http://c*", FOREIGN),
    ("small", "cors_list", "OPTIONS from null", FOREIGN),
    ("small", "cors_list", "POST from http://c*", FOREIGN),
    ("small", "cors_list", "POST from null", FOREIGN),
    ("small", "cors_list", "GET from http://a*", VERSION),
    ("small", "cors_list", "GET from http://b*", VERSION),
    ("small", "cors_list", "GET from H*", VERSION),
    ("small", "cors_list", "GET from nowhere", VERSION),
    ("small", "cors_list", "GET without an origin", VERSION),
    ("small", "telnet", "help*", HELP),
    ("small", "telnet", "diediedie by POST", VERSION),
    ("small", "telnet", "diediedie", DIE),
    (
        "small",
        "stack_trace",
        "a bad request",
        "a trace is the chain of causes, and this error has none",
    ),
    (
        "small",
        "stack_trace",
        "an exception",
        "a trace is the chain of causes, and this error has none",
    ),
    (
        "small",
        "stack_trace",
        "not found",
        "a trace is the chain of causes, and this error has none",
    ),
    (
        "small",
        "stack_trace",
        "a wrong method",
        "a trace is the chain of causes, and this error has none",
    ),
    (
        "small",
        "stack_trace",
        "broken JSON",
        "a trace is the chain of causes, and this error has none",
    ),
];

// Reasons.
const SERIALIZERS: &str = "OpenTSDB documents the endpoint, but 2.4.1 does not serve it; clients call it";
const NAMED: &str =
    "a group in which no series has points has its metric and tags, without which clients stop";
const SCRIPT: &str = "JSONP is a script, which browsers execute although types are not guessed (nosniff)";
const CLIENT: &str = "an error of the client, not of the server";
const SEPARATOR: &str = "a separator that is no expression is rejected, and is then not part of the rule";
const NO_RULES: &str = "deleting the rules of a tree without rules succeeds";
const OWN_BRANCHES: &str =
    "each series of a test has its own branches; OpenTSDB adds them to those of the series before";
const LINEAR: &str =
    "look-ahead and possessive quantifiers are rejected: expressions are matched in linear time";
const NO_RULES_TEST: &str = "a tree without rules places no series; OpenTSDB's test of it fails";
const FAILURES: &str =
    "collisions of new series and series that did not match are stored; OpenTSDB loses them";
const WILDCARDS: &str = "wildcards for key and value match any tag; OpenTSDB fails";
const ONCE: &str = "a series of table tsdb is listed once, not once for each of its rows";
const BAD_JSON: &str = "a body that is not the expected JSON is an error of the client";
const TRACKED: &str = "the embedded store always tracks series, and use_meta=false counts for GET too";
const CONFIG: &str = "the settings are those of this server";
const FILTERS: &str = "the examples and descriptions are our own";
const VERSION: &str = "the response also has the implementation and its version";
const LOGS: &str = "the log is on standard error, without logback";
const REGION_CLIENTS: &str = "there are no region clients";
const QUERY_STATS: &str = "sub-queries are texts, and there are no headers of requests";
const JSON_TYPE: &str = "an error in JSON has the content type of JSON";
const HISTOGRAM: &str = "methods are checked before the setting of histograms";
const FOREIGN: &str = "pages of another origin are rejected unless --cors-domains allows them";
const HELP: &str = "there are no rollup, histogram and diediedie";
const DIE: &str = "refused, as with tsd.no_diediedie";

#[tokio::test]
async fn uid() -> anyhow::Result<()> {
    file("uid").await
}

#[tokio::test]
async fn annotation() -> anyhow::Result<()> {
    file("annotation").await
}

#[tokio::test]
async fn tree() -> anyhow::Result<()> {
    file("tree").await
}

#[tokio::test]
async fn search() -> anyhow::Result<()> {
    file("search").await
}

#[tokio::test]
async fn small() -> anyhow::Result<()> {
    file("small").await
}

async fn file(file: &str) -> anyhow::Result<()> {
    let filter = env::var("OXTSDB_RECORDED").ok();
    let mut failures = Vec::new();
    for section in sections(file)? {
        if filter
            .as_ref()
            .is_some_and(|filter| !section.name.contains(filter))
        {
            continue;
        }
        failures.extend(check(&section).await?);
    }
    ensure!(failures.is_empty(), "\n{}", failures.join("\n"));
    Ok(())
}

/// Returns what is wrong with a section.
async fn check(section: &Section) -> anyhow::Result<Vec<String>> {
    let place = format!("{}/{}", section.file, section.name);
    let patience = |name: &str| match intended(section, name) {
        Some(_) => PATIENCE_IF_INTENDED,
        None => PATIENCE,
    };
    let differences = replay(section, patience).await.with_context(|| place.clone())?;
    let mut failures: Vec<String> = differences
        .iter()
        .filter(|difference| intended(section, &difference.name).is_none())
        .map(|Difference { name, how }| format!("{place}: {name}: {how}"))
        .collect();
    for known in INTENDED
        .iter()
        .filter(|known| (known.0, known.1) == (&section.file, &section.name))
    {
        if !differences
            .iter()
            .any(|difference| is_named(known.2, &difference.name))
        {
            failures.push(format!(
                "{place}: {}: does not differ, remove it from INTENDED",
                known.2
            ));
        }
    }
    Ok(failures)
}

/// The reason for which a record differs.
fn intended(section: &Section, name: &str) -> Option<&'static str> {
    INTENDED
        .iter()
        .find(|known| (known.0, known.1) == (&section.file, &section.name) && is_named(known.2, name))
        .map(|known| known.3)
}

fn is_named(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}
