//! Pictures of `/q` are those that were looked at: `testdata/pictures` has the references.
//!
//! `OXTSDB_WRITE_REFERENCES=1` replaces them, to be looked at before they are committed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::{Options, Tsdb};
use serde_json::{Value, json};

/// 2026-03-29 00:00 UTC; clocks of Berlin are put forward one hour later.
const DAY: i64 = 1_774_742_400;

const CODECS: &str = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;

/// Name, status, and the query without its range and `png`.
const PICTURES: [(&str, u16, &str); 22] = [
    ("lines", 200, "m=avg:cpu{host=*}&style=line"),
    ("points", 200, "m=avg:1h-avg:cpu{host=*}&style=points"),
    ("lines_and_points", 200, "m=avg:1h-avg:cpu{host=*}"),
    ("steps", 200, "m=avg:2h-max:cpu{host=*}&style=steps"),
    ("stacked", 200, "m=sum:10m-avg:cpu{host=*}&style=stacked"),
    (
        "two_axes",
        200,
        "m=avg:10m-avg:cpu&m=sum:bytes&o=with lines&o=axis x1y2 with points&y2label=bytes&y2format=%.0s%c",
    ),
    ("logarithmic", 200, "m=sum:bytes&ylog&yrange=[1000:]&style=line"),
    (
        "title_and_formats",
        200,
        "m=avg:10m-avg:cpu&title=Load of a day&ylabel=percent&yrange=[0:100]&yformat=%.1f %%",
    ),
    (
        "legend_outside",
        200,
        "m=avg:1h-avg:cpu{host=*}&key=out bottom center horiz box",
    ),
    ("legend_on_the_left", 200, "m=avg:1h-avg:cpu{host=*}&key=left top"),
    ("no_legend", 200, "m=avg:1h-avg:cpu{host=*}&nokey"),
    ("dark", 200, "m=avg:10m-avg:cpu{host=*}&style=line&theme=dark"),
    (
        "own_colors",
        200,
        "m=avg:10m-avg:cpu&style=line&bgcolor=xFFF8DC&fgcolor=x8B4513",
    ),
    (
        "clock_change",
        200,
        "m=avg:10m-avg:cpu&style=line&tz=Europe/Berlin",
    ),
    ("gaps", 200, "m=sum:10m-avg-nan:gaps&style=line"),
    ("heat_map", 200, "m=sum:show-histogram-buckets:latency&ylog"),
    (
        "annotations",
        200,
        "m=avg:10m-avg:notes&style=line&global_annotations",
    ),
    ("many_series", 200, "m=none:many&style=line&key=out right"),
    ("rate", 200, "m=sum:rate{dropcounter}:bytes&style=line"),
    ("spike", 200, "m=sum:spike&style=line&nokey"),
    ("no_data", 200, "m=sum:gaps{host=web02}"),
    ("error", 400, "m=sum:cpu.usr&wxh=480x300"),
];

/// A channel of a pixel may differ by this: floating point functions differ between machines.
const TOLERANCE: u8 = 6;

fn point(metric: &str, second: i64, value: f64, tags: Value) -> Value {
    json!({"metric": metric, "timestamp": DAY + second, "value": value, "tags": tags})
}

fn points() -> Vec<Value> {
    let minutes = || 0..24 * 60_i64;
    let wave = |minute: i64, shift: f64| (minute as f64 / 229.0 + shift).sin();
    let host = |number: i64| json!({"host": format!("web{number:02}")});
    let mut points = Vec::new();
    for number in 1..=3 {
        // A pattern in place of noise.
        points.extend(minutes().map(|minute| {
            let value =
                30.0 + 10.0 * number as f64 + 15.0 * wave(minute, number as f64) + (minute * 7 % 13) as f64;
            point("cpu", 60 * minute, value, host(number))
        }));
        // A counter that starts again at noon.
        points.extend(minutes().map(|minute| {
            let value = (minute % 720 + 1).pow(2) * 100 * number;
            point("bytes", 60 * minute, value as f64, host(number))
        }));
    }
    let with_gaps = minutes().filter(|minute| !(400..500).contains(minute) && !(700..710).contains(minute));
    points.extend(with_gaps.map(|minute| point("gaps", 60 * minute, wave(minute, 0.0), host(1))));
    points.extend(minutes().map(|minute| point("notes", 60 * minute, wave(minute, 2.0), host(1))));
    points.extend((0..30).flat_map(|number| {
        let hours = 0..24_i64;
        hours.map(move |hour| {
            point(
                "many",
                3600 * hour,
                wave(60 * hour, 0.2 * number as f64) + number as f64,
                host(number),
            )
        })
    }));
    points.extend((0..8640).map(|n| {
        point(
            "spike",
            10 * n,
            if n == 5000 { 100.0 } else { (n % 5) as f64 },
            host(1),
        )
    }));
    points
}

fn histograms() -> Vec<Value> {
    let histogram = |n: i64| {
        let center = 9.0 + 3.0 * (n as f64 / 20.0).sin();
        let bucket = |bucket: u32| {
            let distance = (f64::from(bucket) - center) / 2.0;
            #[expect(clippy::cast_possible_truncation, reason = "at most 1,000")]
            let count = (1000.0 * (-distance * distance).exp()).round() as i64;
            let bounds = format!("{},{}", 1 << bucket, 1 << (bucket + 1));
            (bounds, json!(count))
        };
        let buckets: serde_json::Map<String, Value> = (0..18).map(bucket).collect();
        json!({"metric": "latency", "timestamp": DAY + 600 * n, "tags": {"host": "web01"}, "buckets": buckets})
    };
    (0..144).map(histogram).collect()
}

async fn server() -> anyhow::Result<Tsdb> {
    let tsdb = Tsdb::start_with(Options::default().flag("--histograms-config", CODECS)).await?;
    let http = tsdb.http();
    for (path, data) in [("/api/put", points()), ("/api/histogram", histograms())] {
        for part in data.chunks(5000) {
            let response = http.post(path, &json!(part)).await?;
            ensure!(response.status == 204, "{path}: {response:?}");
        }
    }
    let notes = json!([
        {"startTime": DAY + 6 * 3600, "description": "release 2.4"},
        {"startTime": DAY + 18 * 3600, "description": "disk replaced"},
    ]);
    let response = http.post("/api/annotation/bulk", &notes).await?;
    ensure!(response.status == 200, "{response:?}");
    Ok(tsdb)
}

fn path(query: &str) -> String {
    let encoded: String = query
        .chars()
        .map(|character| match character {
            '{' | '}' | '[' | ']' | ' ' => format!("%{:02X}", u32::from(character)),
            // gnuplot's conversions are decoded twice, as OpenTSDB does.
            '%' => "%2525".to_owned(),
            _ => character.to_string(),
        })
        .collect();
    let size = if query.contains("wxh=") {
        ""
    } else {
        "wxh=480x300&"
    };
    format!("/q?start={DAY}&end={}&{size}{encoded}&png", DAY + 86_400)
}

/// Width, height and the channels of the pixels.
fn decode(file: &[u8]) -> anyhow::Result<(u32, u32, Vec<u8>)> {
    let mut decoder = png::Decoder::new(std::io::Cursor::new(file));
    decoder.set_transformations(png::Transformations::EXPAND);
    let mut reader = decoder.read_info()?;
    let mut pixels = vec![0; reader.output_buffer_size().context("a size")?];
    let info = reader.next_frame(&mut pixels)?;
    Ok((info.width, info.height, pixels))
}

fn compare(picture: &[u8], reference: &Path) -> anyhow::Result<()> {
    let (actual, expected) = (decode(picture)?, decode(&std::fs::read(reference)?)?);
    ensure!(
        (actual.0, actual.1) == (expected.0, expected.1),
        "is {}x{}, the reference is {}x{}",
        actual.0,
        actual.1,
        expected.0,
        expected.1
    );
    let pairs = actual.2.iter().zip(&expected.2);
    let differing = pairs
        .filter(|(one, other)| one.abs_diff(**other) > TOLERANCE)
        .count();
    // A shape that moves by a pixel changes more.
    ensure!(
        differing <= actual.2.len() / 2000,
        "{differing} of {} channels differ by more than {TOLERANCE}",
        actual.2.len()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_match_the_references() -> anyhow::Result<()> {
    let tsdb = server().await?;
    let references = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/pictures");
    let writes = std::env::var_os("OXTSDB_WRITE_REFERENCES").is_some_and(|value| value == "1");
    let folder = std::env::temp_dir().join("oxtsdb-pictures");
    let mut differences = Vec::new();
    for (name, status, query) in PICTURES {
        let response: RawResponse = RawHttp::connect(tsdb.http_address())
            .await?
            .get(&path(query))
            .await?;
        ensure!(
            response.status == status,
            "{name}: {} {}",
            response.status,
            response.text()
        );
        ensure!(response.header("content-type") == Some("image/png"), "{name}");
        let reference = references.join(format!("{name}.png"));
        if writes {
            std::fs::write(&reference, &response.body)?;
        } else if let Err(difference) = compare(&response.body, &reference) {
            std::fs::create_dir_all(&folder)?;
            let file = folder.join(format!("{name}.png"));
            std::fs::write(&file, &response.body)?;
            differences.push(format!(
                "{name}: {difference:#}; the picture is {}",
                file.display()
            ));
        }
    }
    if !differences.is_empty() {
        bail!(
            "{}\nLook at the pictures. If they are right, run this test with OXTSDB_WRITE_REFERENCES=1, which writes \
             all references.",
            differences.join("\n")
        );
    }
    Ok(())
}
