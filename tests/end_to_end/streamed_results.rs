//! HTTP sends large results of queries while they are computed, or whole with `--http-buffer-results`.

use std::io::Read as _;

use anyhow::{Context as _, ensure};
use flate2::read::GzDecoder;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::{Options, Tsdb};

/// About 20 bytes of JSON a point: a result of 2 MB.
const POINTS: usize = 1000;
const SERIES: usize = 100;

fn buffered() -> Options {
    Options::default().flag("--http-buffer-results", "true")
}

async fn get(tsdb: &Tsdb, path: &str) -> anyhow::Result<RawResponse> {
    RawHttp::connect(tsdb.http_address()).await?.get(path).await
}

async fn get_gzip(tsdb: &Tsdb, path: &str) -> anyhow::Result<RawResponse> {
    let mut connection = RawHttp::connect(tsdb.http_address()).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nAccept-Encoding: gzip\r\n\r\n");
    connection.send(request.as_bytes()).await?;
    connection.answer().await
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_results_are_those_that_are_sent_whole() -> anyhow::Result<()> {
    let load = Load::new("large", SERIES, POINTS);
    let (streaming, whole) = (Tsdb::start().await?, Tsdb::start_with(buffered()).await?);
    load.write(&streaming).await?;
    load.write(&whole).await?;
    for options in [
        "",
        "&arrays",
        "&ms",
        "&show_tsuids&show_query&show_stats",
        "&global_annotations",
        "&jsonp=f",
    ] {
        let path = load.path("none") + options;
        let (one, other) = (get(&streaming, &path).await?, get(&whole, &path).await?);
        ensure!(one.status == 200 && one.body.len() > 1_000_000, "{one:?}");
        ensure!(
            one.header("transfer-encoding") == Some("chunked"),
            "{path}: {one:?}"
        );
        ensure!(other.header("content-length").is_some(), "{path}: {other:?}");
        ensure!(one.body == other.body, "{path}");
        for tsdb in [&streaming, &whole] {
            let compressed = get_gzip(tsdb, &path).await?;
            ensure!(
                compressed.header("content-encoding") == Some("gzip"),
                "{compressed:?}"
            );
            let mut plain = Vec::new();
            GzDecoder::new(compressed.body.as_slice()).read_to_end(&mut plain)?;
            ensure!(
                compressed.body.len() < plain.len() / 2 && plain == one.body,
                "{path}"
            );
        }
    }
    // A small one has a length.
    let small = get(&streaming, &load.path("sum")).await?;
    ensure!(small.header("content-length").is_some() && small.status == 200);
    ensure!(small.body == get(&whole, &load.path("sum")).await?.body);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn long_lookups_are_streamed() -> anyhow::Result<()> {
    const MANY: usize = 5000;
    let load = Load::new("many", MANY, 1);
    let (streaming, whole) = (Tsdb::start().await?, Tsdb::start_with(buffered()).await?);
    load.write(&streaming).await?;
    load.write(&whole).await?;
    let path = "/api/search/lookup?m=many&limit=0";
    let (one, other) = (get(&streaming, path).await?, get(&whole, path).await?);
    ensure!(one.header("transfer-encoding") == Some("chunked"), "{one:?}");
    ensure!(other.header("content-length").is_some(), "{other:?}");
    let (one, other) = (one.json()?, other.json()?);
    ensure!(one["totalResults"] == MANY && one["results"].as_array().map(Vec::len) == Some(MANY));
    ensure!(one["results"] == other["results"]);
    let few = get(&streaming, &path.replace("limit=0", "limit=4999")).await?;
    ensure!(few.json()?["results"].as_array().map(Vec::len) == Some(4999));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_after_the_first_part_ends_the_connection() -> anyhow::Result<()> {
    let load = Load::new("large", SERIES, POINTS);
    let (streaming, whole) = (Tsdb::start().await?, Tsdb::start_with(buffered()).await?);
    for tsdb in [&streaming, &whole] {
        load.write(tsdb).await?;
        let points: Vec<String> = ["a", "b"]
            .map(|host| {
                let (start, _) = load.seconds();
                format!(
                    r#"{{"metric":"infinite","timestamp":{start},"value":1.7e308,"tags":{{"host":"{host}"}}}}"#
                )
            })
            .into();
        let body = format!("[{}]", points.join(","));
        let mut connection = RawHttp::connect(tsdb.http_address()).await?;
        ensure!(connection.post("/api/put", body.as_bytes()).await?.status == 204);
    }
    // The sum of the second sub-query is infinite.
    let path = load.path("none") + "&m=sum:infinite";
    let refused = get(&whole, &path).await?;
    ensure!(
        refused.status == 400 && refused.text().contains("Got Infinity"),
        "{refused:?}"
    );
    let mut connection = RawHttp::connect(streaming.http_address()).await?;
    connection.send_get(&path).await?;
    let cut = connection.answer().await;
    let error = cut.err().context("the result has an end")?.to_string();
    ensure!(error.contains("closed without a (whole) response"), "{error}");
    // An error before the first part has its status.
    let (start, _) = load.seconds();
    let first = format!("/api/query?start={start}&m=sum:infinite&m=none:large");
    ensure!(get(&streaming, &first).await?.status == 400);
    // The server goes on.
    ensure!(get(&streaming, &load.path("sum")).await?.status == 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_result_larger_than_the_memory_of_a_query_is_streamed() -> anyhow::Result<()> {
    // Twice 61 MiB of points, which are 83 MiB of JSON.
    let load = Load::new("larger", SERIES, 40_000);
    let path = load.path("none") + "&ms&arrays&m=none:1s-sum:larger";
    let tight = |options: Options| options.flag("--query-max-memory-mib", "128");
    let streaming = Tsdb::start_with(tight(Options::default())).await?;
    load.write(&streaming).await?;
    let result = get(&streaming, &path).await?;
    ensure!(
        result.status == 200 && result.body.len() > 166 << 20,
        "{result:?}"
    );
    let groups = result.json()?;
    let groups = groups.as_array().context("a list")?;
    let counts = groups
        .iter()
        .map(|group| group["dps"].as_array().map_or(0, Vec::len));
    ensure!(groups.len() == 2 * SERIES && counts.sum::<usize>() == 2 * load.total());
    drop(streaming);
    let whole = Tsdb::start_with(tight(buffered())).await?;
    load.write(&whole).await?;
    let refused = get(&whole, &path).await?;
    ensure!(refused.status == 413, "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_that_exceeds_the_memory_of_a_query_is_cut_into_time_slices() -> anyhow::Result<()> {
    // 11 MiB of points in one hour, which is the last one of the query too.
    let load = Load {
        start_ms: 1_500_001_200_000,
        ..Load::new("hour", 2 * SERIES, 3500)
    };
    let options = Options::default().flag("--query-max-memory-mib", "10");
    let tsdb = Tsdb::start_with(options).await?;
    load.write(&tsdb).await?;
    for aggregator in ["sum", "sum:rate", "p99"] {
        let result = get(&tsdb, &load.path(aggregator)).await?;
        ensure!(result.status == 200, "{aggregator}: {}", result.text());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_query_after_a_start_is_cut_into_time_slices() -> anyhow::Result<()> {
    // 15 MiB of points.
    let load = Load::new("sliced", SERIES, 10_000);
    let options = Options::default().flag("--query-max-memory-mib", "10");
    let tsdb = Tsdb::start_with(options).await?;
    load.write(&tsdb).await?;
    let first = get(&tsdb, &load.path("sum")).await?;
    ensure!(first.status == 200, "{}", first.text());
    Ok(())
}
