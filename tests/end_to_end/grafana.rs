//! Grafana's data source OpenTSDB gets the responses that it decodes.
//!
//! `testdata/grafana/requests.jsonl` has the requests that Grafana's code builds, each with the values that Grafana decodes
//! from the response. Prefixes of their names say which part of Grafana sends them:
//!
//! - `server`: Grafana's server, with the data source of Grafana 13, which has a repository of its own.
//! - `browser`: pages of Grafana 12 and before, through the proxy of Grafana's server. The proxy removes `Origin`.
//! - `direct`: the same pages with *Access: Browser*.
//! - no prefix: lists of names, which Grafana's server and pages request alike.
//!
//! Source: grafana/grafana-opentsdb-datasource at 680d47b, `pkg/opentsdb/{opentsdb,utils,callresource,types}.go`;
//! grafana/grafana at 05b6b75, 22956d0 and 03d9862, `public/app/plugins/datasource/opentsdb/datasource.ts` and
//! `public/app/core/utils/fetch.ts`, at 0111696, `pkg/tsdb/opentsdb/opentsdb.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use flate2::read::GzDecoder;
use oxtsdb_tests::http::Http;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::{Options, Tsdb, paths, until};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Seconds since the epoch, a whole number of minutes.
const T: u32 = 1_500_000_000;
const ORIGIN: &str = "http://grafana.example.org:3000";

/// Metric, tags, and points: seconds from [`T`] and values.
type StoredSeries = (
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static [(u32, i64)],
);

const SERIES: &[StoredSeries] = &[
    (
        "sys.cpu.user",
        &[("host", "web01"), ("dc", "lga")],
        &[(0, 1), (30, 3), (60, 5), (90, 7)],
    ),
    (
        "sys.cpu.user",
        &[("host", "web02"), ("dc", "lga")],
        &[(0, 10), (30, 30), (60, 50), (90, 70)],
    ),
    (
        "sys.cpu.user",
        &[("host", "web03"), ("dc", "fra")],
        &[(0, 100), (30, 100), (60, 100), (90, 100)],
    ),
    // A counter that is reset, or exceeds 255.
    (
        "sys.net.bytes",
        &[("host", "web01")],
        &[(0, 10), (10, 40), (20, 100), (30, 20), (40, 50)],
    ),
    ("sys.gap", &[("host", "web01")], &[(0, 1), (120, 3)]),
    ("sys.load", &[("host", "web01")], &[(0, 1)]),
    ("sys.load", &[("host", "web01"), ("dc", "lga")], &[(0, 2)]),
    ("deploys", &[("host", "web01")], &[(0, 1)]),
];

/// Milliseconds from [`T`] and values of `sys.ms`.
const MILLIS: [(u64, i64); 3] = [(0, 1), (500, 2), (1000, 3)];

/// A line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<'a> {
    name: String,
    #[serde(borrow)]
    request: Request<'a>,
    response: Expected,
}

/// A request; its body is sent byte for byte.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request<'a> {
    method: String,
    path: String,
    headers: BTreeMap<String, String>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// The values that Grafana decodes from a response; names are in ascending order.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Expected {
    Names { names: Vec<String> },
    FilterTypes { names: Vec<String> },
    TagNames { names: Vec<String> },
    TagValues { key: String, names: Vec<String> },
    Arrays { series: Vec<Frame> },
    Objects { series: Vec<Frame> },
    Error { status: u16, message: String },
    Preflight,
}

/// A series as Grafana shows it; points are times and values.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Frame {
    metric: String,
    tags: BTreeMap<String, String>,
    aggregate_tags: BTreeSet<String>,
    annotations: Vec<Annotation>,
    global_annotations: Vec<Annotation>,
    /// The index of the sub-query, which pages need with version 2.3.
    query: Option<usize>,
    points: Vec<(f64, f64)>,
}

/// The fields of an annotation that Grafana decodes.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotation {
    description: String,
    start_time: f64,
}

/// A result of `/api/query`, as Grafana decodes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct QueryResult<P> {
    metric: String,
    tags: BTreeMap<String, String>,
    aggregate_tags: BTreeSet<String>,
    #[serde(default)]
    annotations: Vec<Annotation>,
    #[serde(default)]
    global_annotations: Vec<Annotation>,
    query: Option<QueryIndex>,
    dps: P,
}

/// Points of versions up to 2.3; Grafana orders the times as text.
type ObjectPoints = BTreeMap<String, GoFloat>;
/// Points of version 2.4.
type ArrayPoints = Vec<Vec<GoFloat>>;

/// Go's `float64`, which `null` leaves at 0.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "Option<f64>")]
struct GoFloat(f64);

#[derive(Debug, Deserialize)]
struct QueryIndex {
    index: usize,
}

/// The response of `/api/search/lookup`.
#[derive(Debug, Deserialize)]
struct LookupResponse {
    results: Vec<LookupResult>,
}

#[derive(Debug, Deserialize)]
struct LookupResult {
    tags: BTreeMap<String, String>,
}

impl From<Option<f64>> for GoFloat {
    fn from(value: Option<f64>) -> Self {
        Self(value.unwrap_or_default())
    }
}

impl<P> QueryResult<P> {
    fn into_frame(self, points: impl FnOnce(P) -> anyhow::Result<Vec<(f64, f64)>>) -> anyhow::Result<Frame> {
        Ok(Frame {
            metric: self.metric,
            tags: self.tags,
            aggregate_tags: self.aggregate_tags,
            annotations: self.annotations,
            global_annotations: self.global_annotations,
            query: self.query.map(|query| query.index),
            points: points(self.dps)?,
        })
    }
}

fn object_points(points: ObjectPoints) -> anyhow::Result<Vec<(f64, f64)>> {
    let point = |(time, value): (String, GoFloat)| -> anyhow::Result<(f64, f64)> {
        ensure!(time.parse::<i64>().is_ok(), "time `{time}`");
        Ok((time.parse::<f64>()?, value.0))
    };
    points.into_iter().map(point).collect()
}

fn array_points(points: ArrayPoints) -> anyhow::Result<Vec<(f64, f64)>> {
    let point = |point: Vec<GoFloat>| -> anyhow::Result<(f64, f64)> {
        match point.as_slice() {
            [time, value] => Ok((time.0, value.0)),
            _ => bail!("point {point:?}"),
        }
    };
    points.into_iter().map(point).collect()
}

/// Decodes the results of `/api/query`, ordered by metric, tags and sub-query.
fn frames<P: DeserializeOwned>(
    body: &str,
    points: impl Fn(P) -> anyhow::Result<Vec<(f64, f64)>>,
) -> anyhow::Result<Vec<Frame>> {
    let results: Vec<QueryResult<P>> = serde_json::from_str(body)?;
    let frames = results.into_iter().map(|result| result.into_frame(&points));
    let mut frames = frames.collect::<anyhow::Result<Vec<_>>>()?;
    sort(&mut frames);
    Ok(frames)
}

fn sort(frames: &mut [Frame]) {
    frames.sort_by(|a, b| (&a.metric, &a.tags, a.query).cmp(&(&b.metric, &b.tags, b.query)));
}

fn requests() -> anyhow::Result<String> {
    let path = paths::package().join("testdata/grafana/requests.jsonl");
    fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn records(text: &str) -> anyhow::Result<Vec<Record<'_>>> {
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate() {
        records.push(serde_json::from_str(line).with_context(|| format!("line {}", number + 1))?);
    }
    Ok(records)
}

/// Sends a request on a connection of its own, and decompresses the response as Go's client does.
async fn send(tsdb: &Tsdb, request: &Request<'_>) -> anyhow::Result<RawResponse> {
    let mut head = format!(
        "{} {} HTTP/1.1\r\nHost: oxtsdb:4242\r\n",
        request.method, request.path
    );
    for (name, value) in &request.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = request.body.map_or("", RawValue::get);
    if request.body.is_some() {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let mut http = RawHttp::connect(tsdb.http_address()).await?;
    http.send(format!("{head}\r\n{body}").as_bytes()).await?;
    let mut response = http.answer().await?;
    if response.header("content-encoding") == Some("gzip") {
        let mut plain = Vec::new();
        GzDecoder::new(response.body.as_slice()).read_to_end(&mut plain)?;
        response.body = plain;
    }
    Ok(response)
}

/// Compares a response with the values that Grafana needs.
fn check(record: &mut Record<'_>, response: &RawResponse) -> anyhow::Result<()> {
    let body = response.text();
    let status = match &record.response {
        Expected::Error { status, .. } => *status,
        _ => 200,
    };
    ensure!(response.status == status, "status {}", response.status);
    if let Some(origin) = record.request.headers.get("Origin") {
        let allowed = response.header("access-control-allow-origin");
        ensure!(
            allowed == Some(origin.as_str()),
            "the allowed origin is {allowed:?}"
        );
    }
    match &mut record.response {
        Expected::Names { names } => same(serde_json::from_str(&body)?, names),
        Expected::FilterTypes { names } => {
            let types: BTreeMap<String, Value> = serde_json::from_str(&body)?;
            same(types.into_keys().collect(), names)
        }
        Expected::TagNames { names } => {
            let response: LookupResponse = serde_json::from_str(&body)?;
            let tags = response.results.into_iter().flat_map(|result| result.tags);
            same(tags.map(|(key, _)| key).collect(), names)
        }
        Expected::TagValues { key, names } => {
            let response: LookupResponse = serde_json::from_str(&body)?;
            let results = response.results.into_iter();
            same(
                results
                    .filter_map(|mut result| result.tags.remove(key.as_str()))
                    .collect(),
                names,
            )
        }
        Expected::Arrays { series } => same_frames(&frames(&body, array_points)?, series),
        Expected::Objects { series } => same_frames(&frames(&body, object_points)?, series),
        Expected::Error { message, .. } => {
            let error: Value = serde_json::from_str(&body)?;
            let actual = &error["error"]["message"];
            ensure!(actual == message.as_str(), "message {actual}");
            Ok(())
        }
        Expected::Preflight => {
            for (header, needed) in [
                ("access-control-allow-methods", "post"),
                ("access-control-allow-headers", "content-type"),
            ] {
                let allowed = response.header(header).unwrap_or_default();
                let mut allowed_values = allowed.split(',').map(str::trim);
                ensure!(allowed_values.any(|value| value == needed), "{header}: {allowed}");
            }
            Ok(())
        }
    }
}

/// Compares names without regard to order and repetition: Grafana sorts them.
fn same(actual: Vec<String>, expected: &[String]) -> anyhow::Result<()> {
    let actual: BTreeSet<String> = actual.into_iter().collect();
    ensure!(
        actual.iter().eq(expected),
        "decoded {actual:?}, expected {expected:?}"
    );
    Ok(())
}

fn same_frames(actual: &[Frame], expected: &mut [Frame]) -> anyhow::Result<()> {
    sort(expected);
    ensure!(
        actual == &*expected,
        "decoded  {actual:#?}\nexpected {expected:#?}"
    );
    Ok(())
}

/// Stores [`SERIES`], `sys.ms`, an annotation of `deploys` and a global one.
async fn store(http: &Http) -> anyhow::Result<()> {
    let mut points = Vec::new();
    for (metric, tags, values) in SERIES {
        let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        let tags: Map<String, Value> = tags.collect();
        for (seconds, value) in *values {
            points.push(json!({"metric": metric, "timestamp": T + seconds, "value": value, "tags": tags}));
        }
    }
    for (millis, value) in MILLIS {
        let tags = json!({"host": "web01"});
        let timestamp = u64::from(T) * 1000 + millis;
        points.push(json!({"metric": "sys.ms", "timestamp": timestamp, "value": value, "tags": tags}));
    }
    let response = http.post("/api/put", &json!(points)).await?;
    ensure!(response.status == 204, "{response:?}");

    let tsuid = until("the series is listed", || async {
        let series = http.get("/api/search/lookup?m=deploys").await?.json()?;
        let tsuid = series["results"][0]["tsuid"].as_str();
        Ok(tsuid.context("no series")?.to_owned())
    })
    .await?;
    for annotation in [
        json!({"tsuid": tsuid, "startTime": T + 20, "description": "release 7"}),
        json!({"startTime": T + 10, "description": "maintenance"}),
    ] {
        let response = http.post("/api/annotation", &annotation).await?;
        ensure!(response.status == 200, "{response:?}");
    }
    Ok(())
}

#[tokio::test]
async fn each_request_gets_the_values_that_grafana_decodes() -> anyhow::Result<()> {
    // As docs/guide/grafana.md starts it.
    let options = Options::default()
        .flags(["--http-omit-nan".to_owned()])
        .flag("--cors-domains", ORIGIN);
    let tsdb = Tsdb::start_with(options).await?;
    store(&tsdb.http()).await?;
    let text = requests()?;
    let mut failures = Vec::new();
    for mut record in records(&text)? {
        let response = send(&tsdb, &record.request).await;
        let response = response.with_context(|| record.name.clone())?;
        if let Err(error) = check(&mut record, &response) {
            failures.push(format!("{}: {error:#}\n{response:?}", record.name));
        }
    }
    ensure!(failures.is_empty(), "{}", failures.join("\n\n"));
    Ok(())
}

#[tokio::test]
async fn without_settings_grafana_rejects_nan_and_is_rejected_by_origin() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    store(&tsdb.http()).await?;
    let text = requests()?;
    let records = records(&text)?;
    let mut count = 0;
    for record in &records {
        let is_direct = record.name.starts_with("direct: ");
        let fill = record.name.strip_prefix("server: fill policy ");
        let fill = fill.and_then(|rest| rest.split(',').next());
        if !is_direct && fill.is_none_or(|fill| fill == "zero") {
            continue;
        }
        count += 1;
        let response = send(&tsdb, &record.request).await?;
        let (name, body) = (&record.name, response.text());
        let decoded = match record.response {
            Expected::Arrays { .. } => frames(&body, array_points),
            _ => frames(&body, object_points),
        };
        match (fill, decoded) {
            (Some("nan"), Err(error)) => {
                let error = error.to_string();
                ensure!(error.contains("string \"NaN\""), "{name}: {error}");
            }
            // The gap becomes the value 0.
            (Some("null"), Ok(frames)) => {
                let frame = frames.first().with_context(|| format!("{name}: {body}"))?;
                let expected = [(0, 1.0), (60, 0.0), (120, 3.0)];
                let expected = expected.map(|(seconds, value)| (f64::from(T + seconds), value));
                ensure!(frame.points == expected, "{name}: {frame:?}");
            }
            (None, _) => {
                ensure!(response.status == 403, "{name}: {response:?}");
                let error: Value = serde_json::from_str(&body)?;
                ensure!(
                    error["error"]["message"] == "CORS domain not allowed",
                    "{name}: {body}"
                );
            }
            (_, decoded) => bail!("{name}: {decoded:?} of {body}"),
        }
    }
    ensure!(count == 7, "{count} records");
    Ok(())
}
