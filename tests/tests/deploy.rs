//! The files of `deploy/`: alerts and dashboards use metrics that exist, units and images use options that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::metrics::{Documented, documented};
use oxtsdb_tests::{Options, Tsdb, paths, program_path};
use serde_json::Value;

/// Labels that Prometheus adds, and that of buckets.
const OF_SCRAPES: [&str; 3] = ["instance", "job", "le"];

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(paths::workspace().join(path)).context(path.to_owned())
}

/// The metrics of expressions, each with the labels of its selector.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = ["oxtsdb_", "process_"]
        .iter()
        .filter_map(|start| rest.find(start))
        .min()
    {
        let begins_word = at == 0 || !is_name(rest.as_bytes()[at - 1]);
        let name: String = rest[at..]
            .bytes()
            .take_while(|byte| is_name(*byte))
            .map(char::from)
            .collect();
        rest = &rest[at + name.len()..];
        if !begins_word {
            continue;
        }
        let mut labels = Vec::new();
        if let Some(selector) = rest.strip_prefix('{')
            && let Some(end) = selector.find('}')
        {
            // Values have commas only within quotes: keys are before `=` or `!`.
            let mut is_value = false;
            let mut key = String::new();
            for character in selector[..end].chars() {
                match character {
                    '"' => is_value = !is_value,
                    _ if is_value => {}
                    ',' => key.clear(),
                    '=' | '!' if !key.is_empty() => labels.push(std::mem::take(&mut key)),
                    'a'..='z' | '_' => key.push(character),
                    _ => {}
                }
            }
        }
        found.push((name, labels));
    }
    found
}

/// Checks the metrics of expressions; returns their families.
fn check(
    source: &str,
    text: &str,
    documented: &BTreeMap<String, Documented>,
) -> anyhow::Result<BTreeSet<String>> {
    let mut families = BTreeSet::new();
    for (name, labels) in selectors(text) {
        let (family, metric) = ["", "_total", "_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| {
                let family = name.strip_suffix(suffix)?;
                let metric = documented.get(family)?;
                let is_counter = metric.meaning.starts_with("counter ");
                let is_histogram = metric.meaning.starts_with("histogram ");
                let is_right = match *suffix {
                    "" => !is_counter && !is_histogram,
                    "_total" => is_counter,
                    _ => is_histogram,
                };
                is_right.then_some((family, metric))
            })
            .with_context(|| format!("{source}: `{name}` is no sample of a metric of docs/operate.md"))?;
        for label in labels {
            let is_known = metric.labels.contains(&label) || OF_SCRAPES.contains(&label.as_str());
            ensure!(is_known, "{source}: `{name}` has no label `{label}`");
        }
        families.insert(family.to_owned());
    }
    Ok(families)
}

/// All texts below keys of this name.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn dashboards_and_alerts_use_metrics_that_exist() -> anyhow::Result<()> {
    let documented = documented()?;
    let dashboard: Value = serde_json::from_str(&read("deploy/dashboards/oxtsdb.json")?)?;
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    ensure!(expressions.len() > 20, "{expressions:?}");
    for expression in &expressions {
        let families = check("the dashboard", expression, &documented)?;
        ensure!(!families.is_empty(), "`{expression}` has no metric");
    }
    let mut variables = Vec::new();
    texts(&dashboard, "query", &mut variables);
    check("the dashboard", &variables.join("\n"), &documented)?;

    let alerts = read("deploy/alerts/oxtsdb.yaml")?;
    let families = check("the alerts", &alerts, &documented)?;
    let rules = alerts.matches("- alert: ").count();
    ensure!(
        rules > 5 && families.len() >= rules,
        "{rules} rules of {families:?}"
    );
    Ok(())
}

#[test]
fn names_and_labels_that_do_not_exist_are_found() -> anyhow::Result<()> {
    let documented = documented()?;
    for (wrong, expected) in [
        ("rate(oxtsdb_made_up_total[5m])", "oxtsdb_made_up_total"),
        // A counter without its suffix, and a gauge with one.
        ("oxtsdb_requests", "oxtsdb_requests"),
        ("oxtsdb_store_parts_total", "oxtsdb_store_parts_total"),
        ("oxtsdb_requests_total{verb=\"GET\"}", "`verb`"),
        ("oxtsdb_requests_total{code=~\"a,b=\",verb!=\"x\"}", "`verb`"),
    ] {
        let error = check("a test", wrong, &documented)
            .err()
            .context(wrong)?
            .to_string();
        ensure!(error.contains(expected), "{error}");
    }
    check(
        "a test",
        "oxtsdb_requests_total{code=\"OK\",job=\"a\"} / sum(oxtsdb_request_seconds_bucket)",
        &documented,
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unit_of_systemd_starts_a_server() -> anyhow::Result<()> {
    let unit = read("deploy/systemd/oxtsdb.service")?;
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .context("ExecStart")?;
    let mut words = command.split(' ');
    ensure!(
        words.next() == Some("/usr/local/bin/tsdb") && words.next() == Some("serve"),
        "{command}"
    );
    // The harness sets the folder and the ports.
    let words: Vec<&str> = words.collect();
    ensure!(words == ["--data-dir", "${STATE_DIRECTORY}"], "{command}");
    let help = tokio::process::Command::new(program_path("tsdb")?)
        .args(["serve", "--help"])
        .output()
        .await?;
    let help = String::from_utf8(help.stdout)?;
    ensure!(help.contains("--data-dir"), "{help}");
    // A reload must not end the server, which SIGHUP does by default.
    ensure!(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"));
    let mut tsdb = Tsdb::start_with(Options::default()).await?;
    tsdb.process().signal(rustix::process::Signal::HUP)?;
    let response = tsdb.http().get("/api/version").await?;
    ensure!(response.status == 200, "{response:?}");
    let stop: u64 = unit
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec="))
        .context("TimeoutStopSec")?
        .parse()?;
    ensure!(stop > 5 + 30, "less than the lame duck and the drain");
    Ok(())
}
