//! Histograms on the embedded store survive a kill, and are rows of the table beside the points.

use anyhow::ensure;
use oxtsdb_tests::{Options, Tsdb, read_back};
use serde_json::json;

const CODECS: &str = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_histograms_survive_a_kill() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start_with(Options::default().flag("--histograms-config", CODECS)).await?;
    let histogram = json!({"metric": "m", "timestamp": 1_356_998_405, "tags": {"host": "a"},
        "buckets": {"0,1": 5, "1,2.5": 300}, "underflow": 2, "overflow": 7});
    let response = tsdb.http().post("/api/histogram", &histogram).await?;
    ensure!(response.status == 204, "{}", response.body);
    let point = json!({"metric": "m", "timestamp": 1_356_998_400, "tags": {"host": "a"}, "value": 1});
    ensure!(tsdb.http().post("/api/put", &point).await?.status == 204);
    // A series of histograms only.
    let mut other = histogram.clone();
    other["tags"] = json!({"host": "b"});
    ensure!(tsdb.http().post("/api/histogram", &other).await?.status == 204);
    tsdb.kill9()?;
    tsdb.restart().await?;
    let rows = read_back::rows_of(&mut tsdb.data(), "m").await?;
    let qualifiers =
        |row: usize| -> Vec<&[u8]> { rows[row].cells.iter().map(|cell| &cell.qualifier[..]).collect() };
    ensure!(rows.len() == 2, "{rows:?}");
    ensure!(qualifiers(0) == [&[0, 0][..], &[6, 0, 5]], "{rows:?}");
    ensure!(qualifiers(1) == [&[6, 0, 5][..]], "{rows:?}");
    let query =
        "/api/query?arrays&start=1356998400&end=1356998500&m=sum:percentiles[50]:show-histogram-buckets:m";
    let response = tsdb
        .http()
        .get(&query.replace('[', "%5B").replace(']', "%5D"))
        .await?;
    let counts: Vec<_> = response
        .json()?
        .as_array()
        .into_iter()
        .flatten()
        .map(|group| group["dps"][0][1].clone())
        .collect();
    ensure!(
        counts == [json!(1.75), json!(4), json!(10), json!(600), json!(14)],
        "{}",
        response.body
    );
    let points = tsdb
        .http()
        .get("/api/query?start=1356998400&end=1356998500&m=none:m")
        .await?;
    ensure!(
        points.json()?.as_array().is_some_and(|groups| groups.len() == 1),
        "{}",
        points.body
    );
    Ok(())
}
