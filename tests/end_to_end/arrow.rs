//! Results in Arrow's format have the points of JSON's, also those that exceed the memory of a query; one that is cut off has no end;
//! `tsdb query --format arrow` prints the same rows.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use flate2::read::GzDecoder;
use oxtsdb_arrow_stream::MEDIA_TYPE;
use oxtsdb_arrow_stream::testing::{TableRow, read_batches};
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::terminal::Terminal;
use oxtsdb_tests::{Options, Tsdb, program_path, until};

/// Timestamp in milliseconds and value of each point, by host.
type Points = BTreeMap<String, Vec<(i64, f64)>>;

async fn get(tsdb: &Tsdb, path: &str, headers: &str) -> anyhow::Result<RawResponse> {
    let mut connection = RawHttp::connect(tsdb.http_address()).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    connection.send(request.as_bytes()).await?;
    connection.answer().await
}

async fn get_arrow(tsdb: &Tsdb, path: &str) -> anyhow::Result<RawResponse> {
    get(tsdb, path, &format!("Accept: {MEDIA_TYPE}\r\n")).await
}

fn rows(stream: &[u8]) -> anyhow::Result<Vec<TableRow>> {
    let batches = read_batches(stream).map_err(anyhow::Error::msg)?;
    ensure!(
        batches.iter().all(|batch| batch.len() <= 8192),
        "batches are bounded"
    );
    Ok(batches.concat())
}

fn points_of_rows(rows: Vec<TableRow>) -> anyhow::Result<Points> {
    let mut points = Points::new();
    for row in rows {
        let [(_, host)] = <[_; 1]>::try_from(row.tags).map_err(|tags| anyhow::anyhow!("{tags:?}"))?;
        let value = row.value.context("a value")?;
        points.entry(host).or_default().push((row.timestamp_ms, value));
    }
    Ok(points)
}

/// The points of a response with `ms` and `arrays`.
fn points_of_json(response: &RawResponse) -> anyhow::Result<Points> {
    let json = response.json()?;
    let groups = json.as_array().context("a list")?.iter();
    let point = |point: &serde_json::Value| Some((point[0].as_i64()?, point[1].as_f64()?));
    let points = groups.map(|group| {
        let host = group["tags"]["host"].as_str().context("a host")?.to_owned();
        let points = group["dps"].as_array().context("points")?.iter();
        Ok((host, points.map(point).collect::<Option<_>>().context("numbers")?))
    });
    points.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_table_has_the_points_of_json() -> anyhow::Result<()> {
    let load = Load::new("large", 100, 1000);
    let tsdb = Tsdb::start().await?;
    load.write(&tsdb).await?;
    let path = load.path("none") + "&ms&arrays";
    let table = get_arrow(&tsdb, &path).await?;
    ensure!(
        table.status == 200 && table.header("content-type") == Some(MEDIA_TYPE),
        "{table:?}"
    );
    ensure!(table.header("transfer-encoding") == Some("chunked"), "{table:?}");
    let expected = points_of_json(&get(&tsdb, &path, "").await?)?;
    ensure!(expected.len() == 100 && points_of_rows(rows(&table.body)?)? == expected);

    let headers = format!("Accept: {MEDIA_TYPE}\r\nAccept-Encoding: gzip\r\n");
    let compressed = get(&tsdb, &path, &headers).await?;
    let mut plain = Vec::new();
    std::io::copy(&mut GzDecoder::new(&*compressed.body), &mut plain)?;
    ensure!(points_of_rows(rows(&plain)?)? == expected);

    let (start, end) = load.seconds();
    let output = tokio::process::Command::new(program_path("tsdb")?)
        .args([
            "query",
            "--target",
            &format!("http://{}", tsdb.data_address()),
            "--format",
            "arrow",
        ])
        .args([&start.to_string(), &end.to_string(), "none:large"])
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output()
        .await?;
    ensure!(output.status.success() && points_of_rows(rows(&output.stdout)?)? == expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_exceed_the_memory_of_a_query() -> anyhow::Result<()> {
    // 11 MiB of points.
    let load = Load::new("larger", 200, 3500);
    let tsdb = Tsdb::start_with(Options::default().flag("--query-max-memory-mib", "10")).await?;
    load.write(&tsdb).await?;
    let table = get_arrow(&tsdb, &load.path("none")).await?;
    ensure!(table.status == 200, "{table:?}");
    let points = points_of_rows(rows(&table.body)?)?;
    ensure!(
        points.len() == 200
            && points
                .values()
                .all(|points| points.len() == 3500 && points.is_sorted())
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_cut_off_has_no_end() -> anyhow::Result<()> {
    let load = Load::new("large", 100, 1000);
    let tsdb = Tsdb::start().await?;
    load.write(&tsdb).await?;
    let (start, _) = load.seconds();
    let point = |host: &str| {
        format!(r#"{{"metric":"infinite","timestamp":{start},"value":1.7e308,"tags":{{"host":"{host}"}}}}"#)
    };
    let body = format!("[{},{}]", point("a"), point("b"));
    let mut connection = RawHttp::connect(tsdb.http_address()).await?;
    ensure!(connection.post("/api/put", body.as_bytes()).await?.status == 204);
    // The sum of the second sub-query is infinite.
    let cut = get_arrow(&tsdb, &(load.path("none") + "&m=sum:infinite")).await;
    let error = cut.err().context("the result has an end")?.to_string();
    ensure!(error.contains("closed without a (whole) response"), "{error}");
    // Before the first batch it decides the status.
    let refused = get_arrow(
        &tsdb,
        &format!("/api/query?start={start}&m=sum:infinite&m=none:large"),
    )
    .await?;
    ensure!(refused.status == 400, "{refused:?}");
    let error = refused.json()?["error"]["message"].to_string();
    ensure!(error.contains("Got Infinity"), "{error}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_prints_no_table_to_a_terminal() -> anyhow::Result<()> {
    let mut command = std::process::Command::new(program_path("tsdb")?);
    command.args(["query", "--format", "arrow", "1h-ago", "sum:large"]);
    let terminal = Terminal::run(command, 200)?;
    until("the command refuses the terminal", || async {
        let shown = terminal.shown();
        ensure!(shown.contains("standard output is a terminal"), "{shown}");
        Ok(())
    })
    .await
}
