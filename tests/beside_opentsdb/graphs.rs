//! `/q` of OpenTSDB, which draws with gnuplot, and of OxTSDB over the same tables: points, figures, sizes, errors.

use anyhow::{Context as _, ensure};
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb};
use serde_json::{Value, json};

const START: i64 = 1_356_998_400;

/// Queries, each with the options of its picture. Without colours, which OpenTSDB passes on in a form that gnuplot 6 rejects.
const QUERIES: [&str; 14] = [
    "m=sum:cpu",
    "m=sum:cpu{host=*}",
    "m=sum:1m-avg:cpu{host=*}&wxh=640x480",
    "m=max:cpu&m=sum:rate:bytes&o=&o=axis%20x1y2&wxh=1500x600",
    "m=sum:cpu{host=*}&yrange=[0:]&ylabel=percent&title=load",
    "m=sum:cpu&yrange=[1:100]&ylog&wxh=100x100",
    "m=sum:cpu{host=a}&key=out%20center%20top%20horiz%20box",
    "m=sum:cpu{host=a|b}&nokey",
    "m=sum:bytes&yformat=%2525.2s%2525c&style=points",
    "m=sum:bytes&smooth=csplines",
    "m=none:cpu",
    "m=sum:10m-count:cpu{host=*,dc=*}&y2range=[1:100]",
    "m=zimsum:cpu&tz=Asia/Tokyo&xformat=%2525H:%2525M",
    "m=sum:cpu&m=sum:cpu{host=b}&o=with%20lines&o=axis%20x1y2",
];

/// Requests that OpenTSDB rejects, in the form of JSON.
const REJECTED: [&str; 7] = [
    "m=sum:cpu&wxh=50x50",
    "m=sum:cpu&wxh=big",
    "m=sum:cpu&yrange=0:1",
    "m=sum:cpu&key=middle",
    "m=sum:cpu&bgcolor=red",
    "m=sum:cpu&style=bars",
    "m=sum:cpu&smooth=much",
];

fn points() -> Vec<Value> {
    let point = |metric: &str, seconds: i64, value: Value, host: &str| {
        let dc = if host == "c" { "fra" } else { "lga" };
        json!({"metric": metric, "timestamp": START + seconds, "value": value, "tags": {"host": host, "dc": dc}})
    };
    (0..120_i64)
        .flat_map(|n| {
            ["a", "b", "c"].map(|host| {
                // Not all hosts at all times, integers and others.
                let value = if n % 7 == 0 {
                    json!(n * 3)
                } else {
                    json!((n % 13) as f64 * 1.5)
                };
                let seconds = n * 60 + i64::from(host.as_bytes()[0] % 3) * 10;
                [
                    point("cpu", seconds, value, host),
                    point("bytes", seconds, json!(n * n * 1000), host),
                ]
            })
        })
        .flatten()
        .collect()
}

/// Width and height of a PNG file.
fn size(response: &RawResponse) -> anyhow::Result<(u32, u32)> {
    ensure!(
        response.header("content-type") == Some("image/png"),
        "{response:?}"
    );
    let number = |at: usize| {
        response
            .body
            .get(at..at + 4)?
            .try_into()
            .ok()
            .map(u32::from_be_bytes)
    };
    number(16).zip(number(20)).context("a PNG file")
}

/// Lines, sorted: OpenTSDB's groups have no order.
fn lines(response: &RawResponse) -> anyhow::Result<Vec<String>> {
    let text = std::str::from_utf8(&response.body)?;
    let mut lines: Vec<String> = text
        .lines()
        .map(|line| {
            let mut words: Vec<&str> = line.split(' ').collect();
            // Tags in the order of a hash table.
            words.get_mut(3..).unwrap_or_default().sort_unstable();
            words.join(" ")
        })
        .collect();
    lines.sort_unstable();
    Ok(lines)
}

/// The figures of a picture, without times and the order of tags.
fn figures(response: &RawResponse) -> anyhow::Result<Value> {
    let mut json: Value = serde_json::from_slice(&response.body)?;
    let members = json.as_object_mut().context("an object")?;
    members.remove("timing");
    for tags in members["etags"].as_array_mut().context("etags")? {
        if let Some(tags) = tags.as_array_mut() {
            tags.sort_by_key(Value::to_string);
        }
    }
    Ok(json)
}

#[tokio::test(flavor = "multi_thread")]
async fn graphs_have_the_points_and_the_form_of_opentsdbs() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let tables = rig.create_tables("graphs").await?;
    let opentsdb: OpenTsdb = rig.opentsdb(&tables, &[]).await?;
    let oxtsdb = Tsdb::start_with(Options::default().flags(rig.flags(&tables))).await?;
    opentsdb.put(&points()).await?;
    let (theirs, ours) = (opentsdb.part().address()?, oxtsdb.http_address());
    let both = async |path: String| -> anyhow::Result<(RawResponse, RawResponse)> {
        let path = path.replace('{', "%7B").replace('}', "%7D").replace('|', "%7C");
        let path = path.replace('[', "%5B").replace(']', "%5D");
        let theirs = RawHttp::connect(theirs).await?.get(&path).await?;
        Ok((theirs, RawHttp::connect(ours).await?.get(&path).await?))
    };
    let ranges = [
        (START, START + 7200),
        (START + 600, START + 1800),
        (START + 86_400, START + 90_000),
    ];
    for query in QUERIES {
        for (start, end) in ranges {
            let path = |form: &str| format!("/q?start={start}&end={end}&{query}&{form}");
            let (theirs, ours) = both(path("ascii")).await?;
            ensure!(
                (theirs.status, ours.status) == (200, 200),
                "{}: {} {}",
                path("ascii"),
                theirs.text(),
                ours.text()
            );
            ensure!(lines(&ours)? == lines(&theirs)?, "{}", path("ascii"));
            let (theirs, ours) = both(path("json")).await?;
            ensure!(
                (theirs.status, ours.status) == (200, 200),
                "{}: {} {}",
                path("json"),
                theirs.text(),
                ours.text()
            );
            let (expected, actual) = (figures(&theirs)?, figures(&ours)?);
            ensure!(
                actual == expected,
                "{}: {actual}, OpenTSDB has {expected}",
                path("json")
            );
            let (theirs, ours) = both(path("png")).await?;
            ensure!(
                (theirs.status, ours.status) == (200, 200),
                "{}: {theirs:?}",
                path("png")
            );
            ensure!(size(&ours)? == size(&theirs)?, "{}", path("png"));
        }
    }
    for query in REJECTED {
        let (theirs, ours) = both(format!("/q?start={START}&end={}&{query}&json", START + 60)).await?;
        ensure!(
            (theirs.status, ours.status) == (400, 400),
            "{query}: {theirs:?} {ours:?}"
        );
        for response in [&theirs, &ours] {
            let json: Value = serde_json::from_slice(&response.body)?;
            ensure!(json["err"].is_string(), "{query}: {json}");
        }
    }
    // To the page with the same query.
    let (theirs, ours) = both(format!("/q?start={START}&m=sum:cpu{{host=*}}&o=&yrange=[0:]")).await?;
    ensure!(theirs.header("location").is_some(), "{theirs:?}");
    ensure!(ours.header("location") == theirs.header("location"), "{ours:?}");
    Ok(())
}
