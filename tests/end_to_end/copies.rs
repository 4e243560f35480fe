//! `tsdb export`, `tsdb import --into` and `tsdb compare` on embedded stores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, paths, program_path, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// 2023-11-14.
const START_MS: i64 = 1_700_000_000_000;
const METRIC: &str = "copies.m";

/// Runs a command; returns its status, output and errors.
async fn run(command: &mut Command) -> anyhow::Result<(Option<i32>, String, String)> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().await?;
    Ok((
        status.code(),
        String::from_utf8(stdout)?,
        String::from_utf8(stderr)?,
    ))
}

/// Runs `tsdb`, which must succeed; returns its output.
async fn done(arguments: &[&str]) -> anyhow::Result<String> {
    let output = run(Command::new(program_path("tsdb")?).args(arguments)).await?;
    ensure!(output.0 == Some(0), "{arguments:?}: {output:?}");
    Ok(output.1)
}

/// Runs `tsdb`, which must exit with status 1; returns output and error.
async fn failed(arguments: &[&str]) -> anyhow::Result<String> {
    let output = run(Command::new(program_path("tsdb")?).args(arguments)).await?;
    ensure!(output.0 == Some(1), "{arguments:?}: {output:?}");
    Ok(output.1 + &output.2)
}

/// Folders of a test.
struct Folders(TempDir);

impl Folders {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(TempDir::with_prefix("oxtsdb-copies-")?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, kind: &str, name: &str) -> String {
        format!("{kind}{}", self.path(name).display())
    }
}

/// A data folder with points of three series in 200 hours, written by a server that has ended.
async fn written_store(folder: &Path) -> anyhow::Result<()> {
    let server = Tsdb::start_with(Options::default().data_dir(folder)).await?;
    for hour in 0..200 {
        let samples: Vec<Sample> = ["a", "b", "c"]
            .iter()
            .flat_map(|host| {
                (0..5).map(move |n| {
                    let at = START_MS + hour * 3_600_000 + n * 1000;
                    Sample::int(METRIC, &[("host", host)], at, hour * n)
                })
            })
            .collect();
        let written = server.data().write(write_request(&samples)).await?;
        ensure!(written.into_inner().written == 15);
    }
    Ok(())
}

/// The file of the last segment of points of an export.
fn last_segment(export: &Path) -> anyhow::Result<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(export)?
        .map(|entry| Ok(entry?.path()))
        .collect::<anyhow::Result<_>>()?;
    files.retain(|path| path.to_string_lossy().ends_with("-data.gz"));
    files.sort();
    files.pop().context("no segment of points")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_of_an_export_is_equal_and_serves_the_same_points() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let [a, b] = ["a", "b"].map(|name| folders.text("embedded:", name));
    let export = folders.text("", "export");
    let printed = done(&["export", &a, &export]).await?;
    ensure!(printed.contains("tsdb: 600 rows, 3000 cells"), "{printed}");
    // It is complete: nothing changes.
    ensure!(done(&["export", &a, &export]).await? == printed);
    done(&["import", "--into", &b, &export]).await?;
    let compared = done(&["compare", &a, &b, "--exact"]).await?;
    ensure!(
        compared.contains("data total: equal, 600 rows 3000 cells"),
        "{compared}"
    );
    done(&["compare", &format!("export:{export}"), &b]).await?;
    // Both sides have the same sums.
    let sums = done(&["compare", &a, "--ranges"]).await?;
    ensure!(sums == done(&["compare", &b, "--ranges"]).await?, "{sums}");
    ensure!(sums.contains("data 000001 2023-11-15: "), "{sums}");

    let served = Tsdb::start_with(Options::default().data_dir(&folders.path("b"))).await?;
    let series = series_of(&mut served.data(), METRIC).await?;
    ensure!(series.len() == 3 && series.values().all(|points| points.len() == 1000));
    // The next name gets a UID that no name has.
    let more = [Sample::int("copies.other", &[("host", "d")], START_MS, 1)];
    served.data().write(write_request(&more)).await?;
    drop(served);
    let differing = failed(&["compare", &a, &b]).await?;
    ensure!(
        differing.contains("data row 000002") && differing.contains("only the second has it, with 1 cells"),
        "{differing}"
    );
    // A store with rows is not imported into.
    let other = folders.text("--progress=", "other.jsonl");
    let rejected = failed(&["import", "--into", &b, &export, &other]).await?;
    ensure!(rejected.contains("table `tsdb-uid` has rows"), "{rejected}");
    done(&["import", "--into", &b, &export, &other, "--overwrite"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_in_python_reads_all_cells() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let export = folders.text("", "export");
    done(&["export", &folders.text("embedded:", "a"), &export]).await?;
    let document = fs::read_to_string(paths::workspace().join("docs/export.md"))?;
    let (_, reader) = document.split_once("```python\n").context("no reader")?;
    let (reader, _) = reader.split_once("```").context("no end of the reader")?;
    ensure!(reader.lines().filter(|line| !line.trim().is_empty()).count() <= 30);
    let script = folders.path("reader.py");
    fs::write(&script, reader)?;
    let (status, output, errors) =
        run(Command::new("python3").args([&script, &folders.path("export")])).await?;
    ensure!(status == Some(0), "{errors}");
    let of_points = output.lines().filter(|line| line.starts_with("data\t"));
    ensure!(of_points.count() == 3000);
    let name = hex(METRIC.as_bytes());
    ensure!(
        output
            .lines()
            .any(|line| line.starts_with(&format!("uid\t{name}\tid\t"))),
        "{output}"
    );
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_with_file_table_and_offset() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    written_store(&folders.path("a")).await?;
    let (a, b) = (folders.text("embedded:", "a"), folders.text("embedded:", "b"));
    let export = folders.text("", "export");
    done(&["export", &a, &export]).await?;
    let path = last_segment(&folders.path("export"))?;
    let name = path.display().to_string();
    let healthy = fs::read(&path)?;
    let mut flipped = healthy.clone();
    *flipped.get_mut(healthy.len() / 2).context("an empty segment")? ^= 1;
    let cases = [
        (flipped, "offset "),
        (healthy[..healthy.len() / 2].to_vec(), "truncated: the file has "),
        (b"PK\x03\x04 an archive".to_vec(), "begins with 504b0304"),
        ([&healthy[..], b"x"].concat(), "the manifest "),
    ];
    for (bytes, expected) in cases {
        fs::write(&path, bytes)?;
        let error = failed(&["import", "--into", &b, &export]).await?;
        ensure!(
            error.contains(&name) && error.contains("segment of table data") && error.contains(expected),
            "{expected}: {error}"
        );
        let error = failed(&["compare", &a, &format!("export:{export}")]).await?;
        ensure!(error.contains(expected), "{expected}: {error}");
    }
    // The import resumes with the segment.
    fs::write(&path, healthy)?;
    done(&["import", "--into", &b, &export]).await?;
    done(&["compare", &a, &b]).await?;
    // A store that was made anew is not taken for an imported one.
    fs::remove_dir_all(folders.path("b"))?;
    let error = failed(&["import", "--into", &b, &export]).await?;
    ensure!(error.contains("the store lacks imported rows"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn places_that_cannot_be_copied_are_rejected() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    let missing = folders.text("embedded:", "missing");
    let export = folders.text("", "export");
    let error = failed(&["export", &missing, &export]).await?;
    ensure!(error.contains("no data folder of an embedded store"), "{error}");
    ensure!(!folders.path("missing").exists() && !folders.path("export").exists());

    written_store(&folders.path("a")).await?;
    let a = folders.text("embedded:", "a");
    fs::create_dir(folders.path("full"))?;
    fs::write(folders.path("full").join("x"), "x")?;
    let error = failed(&["export", &a, &folders.text("", "full")]).await?;
    ensure!(error.contains("is not empty and not an export"), "{error}");
    let error = failed(&["import", "--into", &missing, &folders.text("", "full")]).await?;
    ensure!(error.contains("not an export"), "{error}");
    done(&["export", &a, &export]).await?;
    let error = failed(&["import", "--into", &missing, &export, "--salt-width=1"]).await?;
    ensure!(error.contains("0 bytes of salt"), "{error}");
    let error = failed(&["import", &export]).await?;
    ensure!(error.contains("--into"), "{error}");

    let server = Tsdb::start_with(Options::default().data_dir(&folders.path("a"))).await?;
    let error = failed(&["compare", &a, &format!("export:{export}")]).await?;
    ensure!(error.contains("open the store in"), "{error}");
    drop(server);
    Ok(())
}

/// A configuration of rollups of 10 minutes.
fn rollups(table: &str, row_span: &str) -> String {
    let config = json!({
        "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
        "intervals": [
            {"table": "tsdb", "preAggregationTable": format!("{table}-pre"), "interval": "1m", "rowSpan": "1h",
             "defaultInterval": true},
            {"table": table, "preAggregationTable": format!("{table}-pre"), "interval": "10m", "rowSpan": row_span},
        ],
    });
    format!("--rollups-config={config}")
}

/// The results of a query that only rollups may answer.
async fn query_rollups(server: &Tsdb, start: i64, pre_aggregate: bool) -> anyhow::Result<Vec<Value>> {
    let query = json!({"start": start, "end": start + 7200, "queries": [{
        "metric": METRIC, "aggregator": "none", "downsample": "10m-sum", "rollupUsage": "ROLLUP_NOFALLBACK",
        "preAggregate": pre_aggregate}]});
    let response = server.http().post("/api/query", &query).await?;
    ensure!(response.status == 200, "{response:?}");
    Ok(response.json()?.as_array().context("no array")?.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn rollups_are_copied_with_their_configuration() -> anyhow::Result<()> {
    let folders = Folders::new()?;
    let [here, there] = ["here", "there"].map(|table| rollups(table, "6h"));
    // The standing job builds rollups of points of the last hours.
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())?;
    let start = (now - 4 * 3600) / 3600 * 3600;
    let jobs = ["--rollup-jobs", "--rollup-jobs-seconds=1"].map(str::to_owned);
    let options = Options::default().data_dir(&folders.path("a"));
    let mut server = Tsdb::start_with(options.flags(jobs).flags([here.clone()])).await?;
    let samples: Vec<Sample> = (0..60)
        .map(|n| Sample::int(METRIC, &[("host", "a")], (start + n * 60) * 1000, n))
        .collect();
    server.data().write(write_request(&samples)).await?;
    let group = json!({"metric": METRIC, "timestamp": start, "value": 42, "tags": {"host": "a"},
        "interval": "10m", "aggregator": "sum", "groupByAggregator": "sum"});
    let stored = server.http().post("/api/rollup?details", &json!([group])).await?;
    ensure!(stored.status == 200, "{stored:?}");
    let built = until("rollups are built", || async {
        let built = query_rollups(&server, start, false).await?;
        let values = built.first().and_then(|group| group["dps"].as_object());
        ensure!(values.is_some_and(|values| values.len() == 6), "{built:?}");
        Ok(built)
    })
    .await?;
    let grouped = query_rollups(&server, start, true).await?;
    ensure!(grouped.len() == 1, "{grouped:?}");
    // A pass ends after it has noted where.
    let log = server.process().log();
    ensure!(log.contains("built rollups"), "{log}");
    ensure!(server.terminate().await?.success());
    drop(server);

    let [a, b] = ["a", "b"].map(|name| folders.text("embedded:", name));
    let export = folders.text("", "export");
    // Tables that no setting names are reported.
    let left_out = run(Command::new(program_path("tsdb")?).args(["compare", &a])).await?;
    ensure!(left_out.2.lines().count() == 2, "{left_out:?}");
    for table in ["here", "here-pre"] {
        let expected = format!("table `{table}` is left out");
        ensure!(left_out.2.contains(&expected), "{left_out:?}");
    }
    let printed = done(&["export", &a, &export, &here]).await?;
    for expected in [
        "tsdb-rollup-state: 1 rows, 1 cells",
        "\nhere: ",
        "\nhere-pre: 1 rows, 1 cells",
    ] {
        ensure!(printed.contains(expected), "{expected}: {printed}");
    }
    let error = failed(&["export", &a, &export, &there]).await?;
    ensure!(error.contains("with other tables or rollups"), "{error}");
    // Cells of other rows or ids would be read as other times and aggregators.
    for (flags, expected) in [
        (vec![], "the store none: set --rollups-config"),
        (
            vec![rollups("there", "1d")],
            "the export has rollups of 10m with rows of 6h",
        ),
    ] {
        let mut import = vec!["import", "--into", &b, &export];
        import.extend(flags.iter().map(String::as_str));
        let error = failed(&import).await?;
        ensure!(error.contains(expected), "{error}");
    }
    let from = format!("export:{export}");
    ensure!(
        failed(&["compare", &a, &from])
            .await?
            .contains("--rollups-config")
    );
    done(&["import", "--into", &b, &export, &there]).await?;
    let compared = done(&["compare", &from, &b, &there, "--exact", "--ranges"]).await?;
    for expected in [
        "rollup-state total: equal, 1 rows 1 cells",
        "rollup-10m 000001 ",
        "rollup-10m total: equal, ",
        "rollup-1m-pre total: equal, 1 rows 1 cells",
    ] {
        ensure!(compared.contains(expected), "{expected}: {compared}");
    }

    let options = Options::default().data_dir(&folders.path("b"));
    let served = Tsdb::start_with(options.flags([there.clone()])).await?;
    ensure!(query_rollups(&served, start, false).await? == built);
    ensure!(query_rollups(&served, start, true).await? == grouped);
    let other = json!({"metric": METRIC, "timestamp": start, "value": 1, "tags": {"host": "a"},
        "interval": "10m", "aggregator": "sum"});
    let stored = served.http().post("/api/rollup?details", &json!([other])).await?;
    ensure!(stored.status == 200, "{stored:?}");
    drop(served);
    let compared = failed(&["compare", &from, &b, &there]).await?;
    ensure!(compared.contains("\nrollup-10m row 000001"), "{compared}");
    ensure!(compared.contains("data total: equal"), "{compared}");
    Ok(())
}
