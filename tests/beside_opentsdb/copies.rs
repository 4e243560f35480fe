//! A move HBase → embedded → HBase: `tsdb export`, `tsdb import --into` and `tsdb compare`, killed and resumed.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::{Options, Tsdb, program_path, sizes};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

const NAME: &str = "copies";
/// Series of the move.
const SERIES: usize = 50;
/// Kills of a step of the move: two of them write, two read.
const KILLS: [usize; 4] = [3, 2, 3, 2];
/// A row that OpenTSDB compacts while its fsck reads it has each point twice.
const NO_COMPACTION: &str = "tsd.storage.enable_compaction=false";
/// Time between two looks at the progress of a command.
const POLL: Duration = Duration::from_millis(2);
/// 2023-11-14 22:00, the start of an hour.
const START_SECONDS: usize = 1_699_999_200;

async fn output(arguments: &[String]) -> anyhow::Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program_path("tsdb")?)
        .args(arguments)
        .output()
        .await?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(status.success(), "{arguments:?}: {status}: {stderr}");
    Ok(String::from_utf8(stdout)?)
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Runs a command that notes its progress in a file; kills it `kills` times, each after it has got on; then lets it end.
/// Returns how often it was killed.
async fn killed(arguments: &[String], notes: &Path, kills: usize) -> anyhow::Result<usize> {
    let mut killed = 0;
    for _ in 0..kills {
        let before = lines(notes);
        let mut process = Command::new(program_path("tsdb")?)
            .args(arguments)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        // The first line is the head.
        let target = before.max(1) + 1;
        loop {
            if let Some(status) = process.try_wait()? {
                ensure!(status.success(), "{arguments:?}: {status}");
                break;
            }
            if lines(notes) >= target {
                process.kill().await?;
                killed += 1;
                break;
            }
            tokio::time::sleep(POLL).await;
        }
    }
    output(arguments).await?;
    Ok(killed)
}

/// Rollups of 10 minutes in two tables that have the family of points.
fn rollups(points: &str, tables: &Tables) -> String {
    let (table, pre) = (&tables.data, &tables.tree);
    let config = json!({"aggregationIds": {"sum": 0, "count": 1}, "intervals": [
        {"table": points, "preAggregationTable": pre, "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": table, "preAggregationTable": pre, "interval": "10m", "rowSpan": "6h"}]});
    config.to_string()
}

/// A query that only rollups answer.
fn rollup_query() -> Value {
    json!({"start": START_SECONDS, "end": START_SECONDS + 7200, "queries": [{
        "metric": "copies.m", "aggregator": "none", "downsample": "10m-sum", "rollupUsage": "ROLLUP_NOFALLBACK"}]})
}

/// OXTSDB_INTEROP_COPY_CELLS: cells of the move. With 5,000,000 it takes a few minutes.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_to_a_folder_and_back_is_equal_after_ten_kills() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let cells = sizes::from_environment("OXTSDB_INTEROP_COPY_CELLS", 300_000)?;
    let folder = TempDir::with_prefix("oxtsdb-copies-")?;
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    let (from, to) = (rig.create_tables(NAME).await?, rig.create_tables(NAME).await?);
    let (rollups_from, rollups_to) = (
        rollups(&from.data, &rig.create_tables(NAME).await?),
        rollups(&to.data, &rig.create_tables(NAME).await?),
    );
    let flags = |tables: &Tables, rollups: &str| {
        let mut flags = tables.flags();
        flags.push(format!("--rollups-config={rollups}"));
        flags
    };
    let (from_flags, to_flags) = (flags(&from, &rollups_from), flags(&to, &rollups_to));
    let expected_rollups;
    // A cell for each point, some annotations and rollups.
    let mut file = std::io::BufWriter::new(fs::File::create(path("points"))?);
    for number in 0..cells / SERIES {
        for series in 0..SERIES {
            let at = START_SECONDS + number * 10;
            let value = number * 7 + series;
            writeln!(file, "copies.m {at} {value} host=h{series} site=s{}", series % 3)?;
        }
    }
    file.into_inner()?.sync_all()?;
    {
        let options = Options::default().flags(rig.flags(&from));
        let options = options.flag("--rollups-config", &rollups_from);
        let server = Tsdb::start_with(options.flag("--write-form", "cells")).await?;
        let target = format!("--target=http://{}", server.data_address());
        output(&["import".to_owned(), target, text("points")]).await?;
        // Of a series: OpenTSDB's fsck ends at global ones.
        let end = START_SECONDS + 60;
        let query =
            format!("/api/query?start={START_SECONDS}&end={end}&show_tsuids=true&m=sum:copies.m{{host=h0}}");
        let groups = server.http().get(&query).await?.json()?;
        let tsuid = groups.pointer("/0/tsuids/0").context("no TSUID")?;
        for n in 0..20 {
            let at = START_SECONDS + n * 60;
            let annotation = json!({"startTime": at, "tsuid": tsuid, "description": format!("n{n}")});
            let stored = server.http().post("/api/annotation", &annotation).await?;
            ensure!(stored.status == 200, "{stored:?}");
        }
        let rollups = (0..12).map(|n| {
            json!({"metric": "copies.m", "timestamp": START_SECONDS + n * 600, "value": n + 5, "interval": "10m",
                "aggregator": "sum", "tags": {"host": "h0", "site": "s0"}})
        });
        let stored = server
            .http()
            .post("/api/rollup?details", &Value::Array(rollups.collect()))
            .await?;
        ensure!(stored.status == 200, "{stored:?}");
        expected_rollups = server.http().post("/api/query", &rollup_query()).await?.json()?;
        let values = expected_rollups.pointer("/0/dps").and_then(Value::as_object);
        ensure!(
            values.is_some_and(|values| values.len() == 12),
            "{expected_rollups}"
        );
    }
    fs::remove_file(path("points"))?;

    let hbase = rig.place();
    let embedded = format!("embedded:{}", text("data"));
    let command = |words: &[&str], flags: Vec<String>| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain(flags).collect()
    };
    let small = "--segment-mib=1";
    let steps = [
        (
            command(&["export", &hbase, &text("one"), small], from_flags.clone()),
            path("one/manifest.jsonl"),
        ),
        (
            command(&["import", "--into", &embedded, &text("one")], from_flags.clone()),
            path("one/import.jsonl"),
        ),
        (
            command(&["export", &embedded, &text("two"), small], from_flags.clone()),
            path("two/manifest.jsonl"),
        ),
        (
            command(&["import", "--into", &hbase, &text("two")], to_flags.clone()),
            path("two/import.jsonl"),
        ),
    ];
    let mut kills = 0;
    for ((arguments, notes), times) in steps.iter().zip(KILLS) {
        kills += killed(arguments, notes, times).await?;
    }
    ensure!(kills == KILLS.iter().sum::<usize>(), "{kills} kills");

    let compare = |a: &str, b: &str, flags: Vec<String>| command(&["compare", a, b], flags);
    let compared = output(&compare(&hbase, &embedded, from_flags.clone())).await?;
    let points = format!(" {} cells", cells / SERIES * SERIES + 20);
    ensure!(
        compared
            .lines()
            .any(|line| line.starts_with("data total: equal") && line.contains(&points)),
        "{compared}"
    );
    // The first HBase tables, as the export has them, and the last ones.
    let export = format!("export:{}", text("one"));
    let exact = to_flags.into_iter().chain(["--exact".to_owned()]);
    let compared = output(&compare(&export, &hbase, exact.collect())).await?;
    ensure!(
        compared.lines().all(|line| line.contains(": equal, "))
            && compared.contains("rollup-10m total: equal, 1 rows"),
        "{compared}"
    );
    println!("{compared}");

    // OpenTSDB reads the tables.
    let setting = format!("tsd.rollups.config={rollups_to}");
    let opentsdb = rig
        .opentsdb(&to, &[NO_COMPACTION, "tsd.rollups.enable=true", &setting])
        .await?;
    let rollups = opentsdb.http().post("/api/query", &rollup_query()).await?;
    ensure!(
        rollups.json()? == expected_rollups,
        "{rollups:?}\nexpected\n{expected_rollups}"
    );
    let end = START_SECONDS + 600;
    let query = format!("/api/query?start={START_SECONDS}&end={end}&m=sum:copies.m{{host=h1}}");
    let response = opentsdb.http().get(&query).await?;
    ensure!(response.body.contains("copies.m"), "{response:?}");
    let points = u64::try_from(cells / SERIES * SERIES)?;
    rig.data_fsck(&opentsdb).await?.check(points)
}
