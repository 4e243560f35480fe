use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use prost::Message;
use uid_service::UidSettings;

use super::xor::tests::decoded;
use crate::http::prometheus::tests::{Label, Sample, TimeSeries, snappy};

/// The messages as generated types have them, independent of the reader and the encoder under test.
#[derive(Clone, PartialEq, Message)]
struct ReadRequest {
    #[prost(message, repeated, tag = "1")]
    queries: Vec<Query>,
    #[prost(int32, repeated, tag = "2")]
    accepted_response_types: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Query {
    #[prost(int64, tag = "1")]
    start_timestamp_ms: i64,
    #[prost(int64, tag = "2")]
    end_timestamp_ms: i64,
    #[prost(message, repeated, tag = "3")]
    matchers: Vec<LabelMatcher>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelMatcher {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct ReadResponse {
    #[prost(message, repeated, tag = "1")]
    results: Vec<QueryResult>,
}

#[derive(Clone, PartialEq, Message)]
struct QueryResult {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedReadResponse {
    #[prost(message, repeated, tag = "1")]
    chunked_series: Vec<ChunkedSeries>,
    #[prost(int64, tag = "2")]
    query_index: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ChunkedSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    chunks: Vec<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(int64, tag = "1")]
    min_time_ms: i64,
    #[prost(int64, tag = "2")]
    max_time_ms: i64,
    #[prost(int32, tag = "3")]
    encoding: i32,
    #[prost(bytes = "vec", tag = "4")]
    data: Vec<u8>,
}

const START: i64 = 1_700_000_000_000;

/// A query of ten seconds; matchers in PromQL's form: `name=value`, `!=`, `=~`, `!~`.
fn query(matchers: &[&str]) -> Query {
    let matcher = |matcher: &&str| {
        let at = matcher.find(['=', '!']).unwrap();
        let (name, rest) = matcher.split_at(at);
        // The last one that fits: `=` begins `=~`.
        let kinds = ["=", "!=", "=~", "!~"];
        let number = kinds.iter().rposition(|kind| rest.starts_with(kind)).unwrap();
        LabelMatcher {
            kind: i32::try_from(number).unwrap(),
            name: name.to_owned(),
            value: rest[kinds[number].len()..].to_owned(),
        }
    };
    Query {
        start_timestamp_ms: START,
        end_timestamp_ms: START + 10_000,
        matchers: matchers.iter().map(matcher).collect(),
    }
}

async fn send(service: &Service, request: &ReadRequest, accepted: &str) -> HttpResponse {
    let body = snappy(&request.encode_to_vec());
    let head = format!(
        "POST /api/v1/read HTTP/1.1\r\nContent-Encoding: snappy\r\nAccept-Encoding: {accepted}\r\n\
         Content-Type: application/x-protobuf\r\nX-Prometheus-Remote-Read-Version: 0.1.0\r\n"
    );
    service.request(head, &body).await
}

async fn results(service: &Service, queries: Vec<Query>) -> Vec<QueryResult> {
    let request = ReadRequest {
        queries,
        accepted_response_types: vec![],
    };
    let response = send(service, &request, "snappy, gzip").await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(response.header("content-encoding"), Some("snappy"));
    let message = snap::raw::Decoder::new().decompress_vec(&response.body).unwrap();
    ReadResponse::decode(message.as_slice()).unwrap().results
}

/// Each series as text, in order.
fn shown(result: &QueryResult) -> Vec<String> {
    let series = |series: &TimeSeries| {
        let labels = series
            .labels
            .iter()
            .map(|label| format!("{}={}", label.name, label.value));
        let samples = series
            .samples
            .iter()
            .map(|sample| format!("{}@{}", sample.value, sample.timestamp - START));
        format!(
            "{} {}",
            labels.collect::<Vec<_>>().join(","),
            samples.collect::<Vec<_>>().join(",")
        )
    };
    let mut all: Vec<_> = result.timeseries.iter().map(series).collect();
    all.sort();
    all
}

async fn service() -> Service {
    let service = Service::start().await;
    let lines = [
        "put up 1700000000 1 job=api instance=a_9100",
        "put up 1700000005500 0.5 job=api instance=a_9100",
        "put up 1700000011 7 job=api instance=a_9100",
        "put up 1700000001 2 job=db instance=b_9100 zone=z1",
        "put down 1700000002 3 job=api",
        "put sys.cpu-user 1700000003 4 host.name=web01 9th=x",
        "put h_bucket 1700000004 5 le=_Inf",
    ];
    assert_eq!(service.telnet(format!("{}\n", lines.join("\n"))).await, "");
    service
}

const API: &str = "__name__=up,instance=a_9100,job=api 1@0,0.5@5500";
const DB: &str = "__name__=up,instance=b_9100,job=db,zone=z1 2@1000";
const DOWN: &str = "__name__=down,job=api 3@2000";

#[tokio::test]
async fn matchers_select_series_as_in_prometheus() {
    let service = service().await;
    let cases: &[(&[&str], &[&str])] = &[
        (&["__name__=up"], &[API, DB]),
        (&["__name__=up", "job=api"], &[API]),
        (&["__name__=up", "instance=a:9100"], &[API]),
        (&["__name__=up", "job=~api|db"], &[API, DB]),
        (&["__name__=up", "job=~api|unknown"], &[API]),
        (&["__name__=up", "job=~a.*"], &[API]),
        (&["__name__=up", "job=~a"], &[]),
        (
            &["__name__=h_bucket", "le=+Inf"],
            &["__name__=h_bucket,le=+Inf 5@4000"],
        ),
        (&["__name__=up", "job!=api"], &[DB]),
        (&["__name__=up", "job!~a.+|x"], &[DB]),
        // An absent label is an empty one.
        (&["__name__=up", "zone="], &[API]),
        (&["__name__=up", "zone!="], &[DB]),
        (&["__name__=up", "zone!=z1"], &[API]),
        (&["__name__=up", "zone=~|z1"], &[API, DB]),
        (&["__name__=up", "zone=~.*"], &[API, DB]),
        (&["__name__=up", "rack="], &[API, DB]),
        // Unknown names.
        (&["__name__=other"], &[]),
        (&["__name__=up", "job=other"], &[]),
        (&["__name__=up", "rack=1"], &[]),
        (&["__name__=~up|down|other", "job=api"], &[DOWN, API]),
        (&["__name__=~up|down", "__name__!=up"], &[DOWN]),
    ];
    for (matchers, expected) in cases {
        let results = results(&service, vec![query(matchers)]).await;
        assert_eq!(results.len(), 1, "{matchers:?}");
        assert_eq!(shown(&results[0]), *expected, "{matchers:?}");
    }
}

#[tokio::test]
async fn rows_that_an_expression_excludes_are_not_read() {
    let mut settings = DataSettings::default();
    settings.queries.query_max_points = Some(10);
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut lines = String::from("put up 1700000001 1 job=web-a-1\nput up 1700000002 2 job=web-b-1\n");
    lines.extend((0..20).map(|second| format!("put up {} 1 job=db\n", 1_700_000_000 + second)));
    assert_eq!(service.telnet(lines).await, "");
    let series = |of: &str, point: &str| format!("__name__=up,job={of} {point}");
    let both = vec![series("web-a-1", "1@1000"), series("web-b-1", "2@2000")];
    for (matcher, expected) in [
        ("job=~web.+", &both[..]),
        ("job=~.*-1", &both),
        ("job=~w.*1", &both),
        ("job=~web-[a-z]-.*", &both),
        ("job=~web-b.*", &both[1..]),
        ("job=~web-[b-z]-1", &both[1..]),
        ("job=~eb.*", &[]),
    ] {
        let results = results(&service, vec![query(&["__name__=up", matcher])]).await;
        assert_eq!(shown(&results[0]), expected, "{matcher}");
    }
    // With the points of all series the query exceeds its limit.
    let request = ReadRequest {
        queries: vec![query(&["__name__=up", "job=~(?i)WEB.*"])],
        ..ReadRequest::default()
    };
    let response = send(&service, &request, "snappy").await;
    assert!(
        response.text().contains("--query-max-points"),
        "{}",
        response.text()
    );
}

#[tokio::test]
async fn each_query_of_a_request_has_its_result() {
    let service = service().await;
    let queries = [
        &["__name__=up", "job=db"],
        &["__name__=other", "job=db"],
        &["__name__=down", "job=api"],
    ];
    let results = results(
        &service,
        queries.iter().map(|matchers| query(*matchers)).collect(),
    )
    .await;
    let shown: Vec<_> = results.iter().map(shown).collect();
    assert_eq!(shown, [vec![DB.to_owned()], vec![], vec![DOWN.to_owned()]]);
}

#[tokio::test]
async fn names_are_returned_as_prometheus_2_accepts_them() {
    let service = service().await;
    let results = results(&service, vec![query(&["__name__=sys.cpu-user"])]).await;
    assert_eq!(
        shown(&results[0]),
        ["_9th=x,__name__=sys_cpu_user,host_name=web01 4@3000"]
    );
}

#[tokio::test]
async fn what_is_written_is_read() {
    let service = Service::start().await;
    // More than a part of a body.
    let lines = (0..30_000_i64).map(|number| {
        format!(
            "put many {} {} host=h{}\n",
            START + number / 3,
            number * 3,
            number % 3
        )
    });
    assert_eq!(service.telnet(lines.collect::<String>()).await, "");
    let results = results(&service, vec![query(&["__name__=many"])]).await;
    let series = &results[0].timeseries;
    assert_eq!(series.len(), 3);
    for (host, series) in (0..).zip(series) {
        assert_eq!(series.labels[1].value, format!("h{host}"));
        let expected = (0..10_000_i32).map(|at| (f64::from((at * 3 + host) * 3), START + i64::from(at)));
        let samples = series
            .samples
            .iter()
            .map(|sample| (sample.value, sample.timestamp));
        assert!(samples.eq(expected), "{host}");
    }
}

/// The frames of a streamed response, with the sum of each checked.
fn frames(mut body: &[u8]) -> Vec<ChunkedReadResponse> {
    let mut frames = Vec::new();
    while !body.is_empty() {
        let length = prost::encoding::decode_varint(&mut body).unwrap();
        let length = usize::try_from(length).unwrap();
        let (sum, rest) = body.split_at(4);
        let (message, rest) = rest.split_at(length);
        // One bit at a time.
        let expected = message.iter().fold(u32::MAX, |sum, byte| {
            (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
                (sum >> 1) ^ (0x82f6_3b78 * (sum & 1))
            })
        });
        assert_eq!(sum, (!expected).to_be_bytes());
        frames.push(ChunkedReadResponse::decode(message).unwrap());
        body = rest;
    }
    frames
}

async fn streamed(service: &Service, queries: Vec<Query>, accepted: Vec<i32>) -> Vec<ChunkedReadResponse> {
    let request = ReadRequest {
        queries,
        accepted_response_types: accepted,
    };
    let response = send(service, &request, "snappy").await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(
        response.header("content-type"),
        Some("application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse")
    );
    assert_eq!(response.header("content-encoding"), None);
    frames(&response.body)
}

/// The series of a frame as samples.
fn series_of(frame: &ChunkedReadResponse) -> TimeSeries {
    let [series] = &frame.chunked_series[..] else {
        panic!("a frame has one series: {frame:?}");
    };
    let mut samples = Vec::new();
    for chunk in &series.chunks {
        assert_eq!(chunk.encoding, 1);
        let decoded = decoded(&chunk.data);
        assert!((1..=120).contains(&decoded.len()));
        let times = (decoded[0].0, decoded[decoded.len() - 1].0);
        assert_eq!((chunk.min_time_ms, chunk.max_time_ms), times);
        samples.extend(decoded.iter().map(|(timestamp, value)| Sample {
            value: *value,
            timestamp: *timestamp,
        }));
    }
    TimeSeries {
        labels: series.labels.clone(),
        samples,
        histograms: Vec::new(),
    }
}

#[tokio::test]
async fn chunks_are_streamed_to_senders_that_prefer_them() {
    let service = service().await;
    let queries = vec![
        query(&["__name__=~up|down"]),
        query(&["__name__=other"]),
        query(&["__name__=up", "job=db"]),
    ];
    for accepted in [vec![1], vec![1, 0], vec![9, 1, 0]] {
        let frames = streamed(&service, queries.clone(), accepted).await;
        let shown: Vec<_> = frames
            .iter()
            .map(|frame| {
                let timeseries = vec![series_of(frame)];
                (frame.query_index, shown(&QueryResult { timeseries }).remove(0))
            })
            .collect();
        assert_eq!(
            shown,
            [
                (0, DOWN.to_owned()),
                (0, API.to_owned()),
                (0, DB.to_owned()),
                (2, DB.to_owned())
            ]
        );
    }
    // The first type that is known counts.
    let request = ReadRequest {
        queries,
        accepted_response_types: vec![0, 1],
    };
    let response = send(&service, &request, "snappy").await;
    assert_eq!(response.header("content-type"), Some("application/x-protobuf"));
}

#[tokio::test]
async fn streamed_series_ascend_by_their_labels() {
    let service = Service::start().await;
    // UIDs are assigned in another order than the order of the names.
    let hosts = ["web10", "web1", "db", "web1.x", "a-b", "web2", "web1-x"];
    let mut lines: String = hosts
        .iter()
        .map(|host| format!("put many 1700000001 1 host={host} az=z\n"))
        .collect();
    lines.push_str("put many 1700000001 1 host=web1\nput many 1700000001 1 host=web1 rack=r\n");
    lines.push_str("put many 1700000001 1 host=web1 az=y\nput many 1700000001 1 az=z\n");
    // More than a chunk has.
    lines.extend((2000..2500).map(|ms| format!("put many 170000000{ms} {ms}.5 host=db az=z\n")));
    assert_eq!(service.telnet(lines).await, "");
    let frames = streamed(&service, vec![query(&["__name__=many"])], vec![1]).await;
    let labels: Vec<Vec<(String, String)>> = frames
        .iter()
        .map(|frame| {
            let labels = frame.chunked_series[0].labels.iter();
            labels
                .map(|label| (label.name.clone(), label.value.clone()))
                .collect()
        })
        .collect();
    assert_eq!(labels.len(), hosts.len() + 4);
    assert!(labels.is_sorted_by(|one, other| one < other), "{labels:?}");
    let db = frames
        .iter()
        .map(series_of)
        .find(|series| series.samples.len() > 1);
    let db = db.unwrap();
    assert_eq!(db.samples.len(), 501);
    assert!(
        db.samples[1..]
            .iter()
            .zip(2000..)
            .all(|(sample, ms)| { sample.timestamp == START + ms && sample.value == ms as f64 + 0.5 })
    );
}

#[tokio::test]
async fn a_streamed_response_without_series_is_empty() {
    let service = service().await;
    assert_eq!(
        streamed(&service, vec![query(&["__name__=other"])], vec![1]).await,
        []
    );
}

#[tokio::test]
async fn requests_that_cannot_be_answered_are_rejected() {
    let service = service().await;
    let with = |matchers: &[&str]| ReadRequest {
        queries: vec![query(matchers)],
        accepted_response_types: Vec::new(),
    };
    let unknown_type = ReadRequest {
        accepted_response_types: vec![2],
        ..with(&["__name__=up"])
    };
    let many = ReadRequest {
        queries: vec![query(&["__name__=up"]); 17],
        ..ReadRequest::default()
    };
    for (request, reason) in [
        (with(&["job=api"]), "the matchers name no metric"),
        (with(&["__name__=~u.*"]), "the matchers name no metric"),
        (with(&["__name__!=up"]), "the matchers name no metric"),
        (
            with(&["__name__=up", "job=~("]),
            "the expression of the matcher of `job` is not valid",
        ),
        (with(&["__name__=up"; 65]), "more than 64 matchers"),
        (many, "more than 16 queries"),
        (
            unknown_type,
            "accepted_response_types has neither SAMPLES nor STREAMED_XOR_CHUNKS",
        ),
    ] {
        let response = send(&service, &request, "snappy").await;
        assert_eq!(response.status, 400, "{reason}");
        assert!(response.text().contains(reason), "{reason}: {}", response.text());
        assert!(response.header("content-type").unwrap().starts_with("text/plain"));
    }
}
