use oxtsdb_test_stack::service::{HttpResponse, Service};
use proptest::prelude::*;
use prost::Message;

use super::decode::{Decoder, Series};

/// The messages as generated types have them, independent of the reader under test.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(super) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(super) histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Label {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Sample {
    #[prost(double, tag = "1")]
    pub(super) value: f64,
    #[prost(int64, tag = "2")]
    pub(super) timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(super) count_int: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(super) count_float: Option<f64>,
    #[prost(double, tag = "3")]
    pub(super) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(super) schema: i32,
    #[prost(double, tag = "5")]
    pub(super) zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    pub(super) zero_count_int: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub(super) zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(super) negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    pub(super) negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub(super) negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub(super) positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    pub(super) positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub(super) positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub(super) reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub(super) timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub(super) custom_values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Span {
    #[prost(sint32, tag = "1")]
    pub(super) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(super) length: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<TimeSeries2>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    histograms: Vec<Histogram>,
}

fn series(labels: &[(&str, &str)], samples: &[(f64, i64)]) -> TimeSeries {
    let label = |(name, value): &(&str, &str)| Label {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    let sample = |(value, timestamp): &(f64, i64)| Sample {
        value: *value,
        timestamp: *timestamp,
    };
    TimeSeries {
        labels: labels.iter().map(label).collect(),
        samples: samples.iter().map(sample).collect(),
        histograms: Vec::new(),
    }
}

async fn send(service: &Service, message: &impl Message) -> HttpResponse {
    send_bytes(service, &snappy(&message.encode_to_vec())).await
}

pub(super) fn snappy(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

async fn send_bytes(service: &Service, body: &[u8]) -> HttpResponse {
    send_to(service, "/api/v1/write", body).await
}

async fn send_to(service: &Service, target: &str, body: &[u8]) -> HttpResponse {
    let head = format!(
        "POST {target} HTTP/1.1\r\nContent-Encoding: snappy\r\nContent-Type: application/x-protobuf\r\n\
         X-Prometheus-Remote-Write-Version: 0.1.0\r\n"
    );
    service.request(head, body).await
}

#[tokio::test]
async fn samples_of_both_versions_are_stored() {
    let service = Service::start().await;
    let instant = 1_700_000_000_123;
    let first = WriteRequest {
        timeseries: vec![series(
            &[
                ("__name__", "http_requests_total"),
                ("job", "api"),
                ("instance", "a:9100"),
                ("empty", ""),
            ],
            &[(3.0, instant), (4.5, instant + 1000)],
        )],
    };
    let symbols = [
        "",
        "__name__",
        "http_requests_total",
        "job",
        "api",
        "instance",
        "b:9100",
    ];
    let second = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![TimeSeries2 {
            labels_refs: vec![1, 2, 3, 4, 5, 6],
            samples: vec![Sample {
                value: 7.0,
                timestamp: instant,
            }],
            histograms: vec![],
        }],
    };
    let response = send(&service, &first).await;
    assert_eq!((response.status, response.text()), (204, ""));
    assert_eq!(response.header(SAMPLES), Some("2"));
    let response = send(&service, &second).await;
    assert_eq!((response.status, response.header(SAMPLES)), (204, Some("1")));
    let query = "/api/query?start=1&ms&m=none:http_requests_total{}";
    let results = service.get(query).await.json();
    let mut tagged_points: Vec<_> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (result["tags"].to_string(), result["dps"].to_string()))
        .collect();
    tagged_points.sort();
    let tags = |instance| format!(r#"{{"instance":"{instance}_9100","job":"api"}}"#);
    assert_eq!(
        tagged_points,
        [
            (
                tags("a"),
                r#"{"1700000000123":3.0,"1700000001123":4.5}"#.to_owned()
            ),
            (tags("b"), r#"{"1700000000123":7.0}"#.to_owned()),
        ]
    );
}

/// A field of `WriteRequest` with a length below 128.
fn request_field(number: u8, message: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(message.len()).unwrap()], message].concat()
}

#[tokio::test]
async fn series_that_are_known_by_their_labels_get_the_samples_of_later_requests() {
    let service = Service::start().await;
    let instant = 1_700_000_000_000;
    for request in 0..3 {
        let samples = [(f64::from(request), instant + 1000 * i64::from(request))];
        let first = series(&[("__name__", "up"), ("job", "a")], &samples);
        let renamed = series(&[("__name__", "up:all"), ("job", "b")], &samples);
        // Its labels follow its samples.
        let turned = [
            series(&[], &samples).encode_to_vec(),
            series(&[("__name__", "up"), ("job", "c")], &[]).encode_to_vec(),
        ]
        .concat();
        let rejected = series(&[("__name__", "up"), ("job", "a")], &[(f64::INFINITY, instant)]);
        let body = [
            // A series of 2.0, which has no name.
            request_field(5, b""),
            request_field(1, &first.encode_to_vec()),
            request_field(1, &renamed.encode_to_vec()),
            request_field(1, &turned),
            request_field(1, &rejected.encode_to_vec()),
        ]
        .concat();
        let response = send_bytes(&service, &snappy(&body)).await;
        assert_eq!((response.status, response.header(SAMPLES)), (400, Some("3")));
        let text = response.text();
        assert!(text.contains("1: the label `__name__` is missing"), "{text}");
        assert!(text.contains("5: "), "{text}");
    }
    for (metric, job) in [("up", "a"), ("up_all", "b"), ("up", "c")] {
        let query = format!("/api/query?start=1&m=none:{metric}{{job={job}}}");
        let results = service.get(&query).await.json();
        let dps = &results[0]["dps"];
        let expected = serde_json::json!({"1700000000": 0.0, "1700000001": 1.0, "1700000002": 2.0});
        assert_eq!(*dps, expected, "{metric} {job}");
    }
}

const SAMPLES: &str = "x-prometheus-remote-write-samples-written";
const HISTOGRAMS: &str = "x-prometheus-remote-write-histograms-written";

/// 2 values in (1, 2], 1 in (2, 4].
fn histogram(timestamp: i64) -> Histogram {
    Histogram {
        count_int: Some(3),
        sum: 8.5,
        positive_spans: vec![Span { offset: 1, length: 2 }],
        positive_deltas: vec![2, -1],
        reset_hint: 1,
        timestamp,
        ..Histogram::default()
    }
}

/// The stored points of a metric with the suffixes of histograms, as `metric{tag=value} value value`.
async fn stored(service: &Service, metric: &str) -> Vec<String> {
    let mut stored = Vec::new();
    for suffix in ["_bucket", "_count", "_sum"] {
        let results = service
            .get(&format!("/api/query?start=1&ms&m=none:{metric}{suffix}{{}}"))
            .await;
        for result in results.json().as_array().into_iter().flatten() {
            let tags = result["tags"].as_object().unwrap().iter();
            let tags: Vec<_> = tags
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap()))
                .collect();
            let values = result["dps"].as_object().unwrap().values();
            let values: Vec<_> = values.map(ToString::to_string).collect();
            stored.push(format!("{suffix}{{{}}} {}", tags.join(","), values.join(" ")));
        }
    }
    stored.sort();
    stored
}

#[tokio::test]
async fn native_histograms_of_both_versions_are_series_with_bounds() {
    let service = Service::start().await;
    let instant = 1_700_000_000_123;
    let mut first = series(&[("__name__", "h"), ("job", "a:1")], &[]);
    first.histograms = vec![histogram(instant), histogram(instant + 1000)];
    let floats = Histogram {
        count_float: Some(2.5),
        sum: -1.0,
        schema: -53,
        positive_spans: vec![Span { offset: 1, length: 2 }],
        positive_counts: vec![1.0, 1.5],
        custom_values: vec![0.1, 5.0],
        timestamp: instant,
        ..Histogram::default()
    };
    let symbols = ["", "__name__", "custom"];
    let second = Request2 {
        symbols: symbols.map(str::to_owned).to_vec(),
        timeseries: vec![TimeSeries2 {
            labels_refs: vec![1, 2],
            samples: vec![Sample {
                value: 7.0,
                timestamp: instant,
            }],
            histograms: vec![floats],
        }],
    };
    let response = send(
        &service,
        &WriteRequest {
            timeseries: vec![first],
        },
    )
    .await;
    assert_eq!((response.status, response.text()), (204, ""));
    assert_eq!(
        (response.header(SAMPLES), response.header(HISTOGRAMS)),
        (Some("0"), Some("2"))
    );
    let response = send(&service, &second).await;
    assert_eq!((response.status, response.text()), (204, ""));
    assert_eq!(
        (response.header(SAMPLES), response.header(HISTOGRAMS)),
        (Some("1"), Some("1"))
    );
    assert_eq!(
        stored(&service, "h").await,
        [
            "_bucket{job=a_1,le=0} 0 0",
            "_bucket{job=a_1,le=1} 0 0",
            "_bucket{job=a_1,le=2} 2 2",
            "_bucket{job=a_1,le=4} 3 3",
            "_bucket{job=a_1,le=_Inf} 3 3",
            "_count{job=a_1} 3 3",
            "_sum{job=a_1} 8.5 8.5",
        ]
    );
    assert_eq!(
        stored(&service, "custom").await,
        [
            "_bucket{le=0.1} 0.0",
            "_bucket{le=5} 1.0",
            "_bucket{le=_Inf} 2.5",
            "_count{source=prometheus} 2.5",
            "_sum{source=prometheus} -1.0",
        ]
    );
}

#[tokio::test]
async fn histograms_are_opentsdbs_if_the_url_says_so() {
    let service = Service::with_histograms().await;
    let instant = 1_700_000_000_000;
    let mut all = series(&[("__name__", "h"), ("job", "a")], &[]);
    let float = Histogram {
        count_float: Some(1.5),
        positive_counts: vec![0.5, 1.0],
        ..histogram(instant + 1000)
    };
    all.histograms = vec![histogram(instant), float];
    let body = snappy(
        &WriteRequest {
            timeseries: vec![all],
        }
        .encode_to_vec(),
    );
    let response = send_to(&service, "/api/v1/write?histograms=opentsdb", &body).await;
    assert_eq!(response.status, 400);
    assert!(
        response
            .text()
            .contains("the count 0 of a bucket is floating point"),
        "{}",
        response.text()
    );
    assert_eq!(
        (response.header(SAMPLES), response.header(HISTOGRAMS)),
        (Some("0"), Some("1"))
    );
    let query = "/api/query?start=1&ms&m=sum:percentiles[50,99]:h{}";
    let results = service.get(query).await.json();
    let values: std::collections::BTreeMap<_, _> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| {
            let metric = result["metric"].as_str().unwrap().to_owned();
            (metric, result["dps"]["1700000000000"].to_string())
        })
        .collect();
    let expected = [("h_pct_50.0", "1.5"), ("h_pct_99.0", "3.0")];
    for (metric, value) in expected {
        assert_eq!(values.get(metric).map(String::as_str), Some(value), "{values:?}");
    }
    assert_eq!(
        stored(&service, "h").await,
        ["_count{job=a} 3.0 1.5", "_sum{job=a} 8.5 8.5"]
    );
    // Without codecs, as /api/histogram.
    let service = Service::start().await;
    let response = send_to(&service, "/api/v1/write?histograms=opentsdb", &body).await;
    assert_eq!(response.status, 503);
    let response = send_to(&service, "/api/v1/write?histograms=x", &body).await;
    assert_eq!(
        (response.status, response.text()),
        (400, "histograms `x` is not known, expected le or opentsdb")
    );
}

#[tokio::test]
async fn good_histograms_are_stored_and_the_others_named() {
    let service = Service::start().await;
    let instant = 1_700_000_000_000;
    let uneven = Histogram {
        count_int: Some(4),
        ..histogram(instant)
    };
    // It is complete without its sum.
    let of_nan = Histogram {
        sum: f64::NAN,
        ..histogram(instant + 1000)
    };
    let mut all = series(&[("__name__", "h"), ("job", "a")], &[(1.0, instant)]);
    all.histograms = vec![uneven, histogram(instant), of_nan];
    let mut long = series(&[("__name__", "long"), ("job", "a")], &[]);
    let many = Histogram {
        count_int: Some(0),
        positive_spans: vec![Span {
            offset: 0,
            length: 900,
        }],
        positive_deltas: vec![0; 900],
        schema: 8,
        ..Histogram::default()
    };
    let at = |second: i64| Histogram {
        timestamp: instant + second * 1000,
        ..many.clone()
    };
    long.histograms = (0..13).map(at).collect();
    let request = WriteRequest {
        timeseries: vec![all, long],
    };
    let response = send(&service, &request).await;
    assert_eq!(response.status, 400);
    let text = response.text();
    assert!(
        text.contains("1: histogram at 1700000000000: the count is 4, but the buckets have 3 values"),
        "{text}"
    );
    assert!(!text.contains("NaN"), "{text}");
    assert!(
        text.contains(
            "2: histogram at 1700000012000: the histograms of its series have more than 10000 points"
        ),
        "{text}"
    );
    // Each of the others of the long series has 905 points: two bounds, the total, the count and the sum more than buckets.
    assert_eq!(
        (response.header(SAMPLES), response.header(HISTOGRAMS)),
        (Some("1"), Some("14"))
    );
    assert_eq!(
        stored(&service, "h").await,
        [
            "_bucket{job=a,le=0} 0 0",
            "_bucket{job=a,le=1} 0 0",
            "_bucket{job=a,le=2} 2 2",
            "_bucket{job=a,le=4} 3 3",
            "_bucket{job=a,le=_Inf} 3 3",
            "_count{job=a} 3 3",
            "_sum{job=a} 8.5",
        ]
    );
}

#[tokio::test]
async fn samples_without_a_value_are_left_out_and_count_as_written() {
    let service = Service::start().await;
    let stale_value = f64::from_bits(super::STALE);
    let mut stale = series(
        &[("__name__", "up"), ("job", "a")],
        &[(f64::NAN, 1_700_000_000_000), (stale_value, 1_700_000_001_000)],
    );
    stale.histograms = vec![Histogram {
        sum: stale_value,
        timestamp: 1_700_000_000_000,
        ..Histogram::default()
    }];
    let response = send(
        &service,
        &WriteRequest {
            timeseries: vec![stale],
        },
    )
    .await;
    assert_eq!((response.status, response.text()), (204, ""));
    assert_eq!(
        (response.header(SAMPLES), response.header(HISTOGRAMS)),
        (Some("2"), Some("1"))
    );
    assert_eq!(service.cells().await, Vec::<String>::new());
}

#[tokio::test]
async fn good_samples_are_stored_and_the_others_named() {
    let service = Service::start().await;
    let instant = 1_700_000_000_000;
    let request = WriteRequest {
        timeseries: vec![
            series(&[("job", "a")], &[(1.0, instant)]),
            series(
                &[("__name__", "up"), ("job", "a")],
                &[(1.0, instant), (f64::INFINITY, instant + 1), (2.0, -1)],
            ),
            series(&vec![("k", "v"); 66], &[(1.0, instant)]),
        ],
    };
    let response = send(&service, &request).await;
    assert_eq!(response.status, 400);
    let text = response.text();
    assert!(
        text.starts_with(
            "partial write: 1 points stored, dropped=4: 1: the label `__name__` is missing, 2: "
        ),
        "{text}"
    );
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn bodies_that_are_no_request_are_rejected_for_good() {
    let service = Service::start().await;
    let valid = WriteRequest {
        timeseries: vec![series(&[("__name__", "up")], &[(1.0, 1)])],
    }
    .encode_to_vec();
    for (body, reason) in [
        (valid.clone(), "request body is no valid snappy data"),
        (snappy(&valid[..valid.len() - 1]), "a field is cut off"),
        (snappy(b"\x0f"), "a field has an unknown wire type"),
        (
            snappy(
                &Request2 {
                    symbols: vec![String::new()],
                    timeseries: vec![TimeSeries2 {
                        labels_refs: vec![0, 9],
                        ..TimeSeries2::default()
                    }],
                }
                .encode_to_vec(),
            ),
            "a label refers to a symbol that is not there",
        ),
        (
            snappy(
                &Request2 {
                    symbols: vec![String::new()],
                    timeseries: vec![TimeSeries2 {
                        labels_refs: vec![0],
                        ..TimeSeries2::default()
                    }],
                }
                .encode_to_vec(),
            ),
            "a label has no value",
        ),
        // A bomb: the length of Snappy's format says 4 GiB.
        (vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0], "too large"),
    ] {
        let response = send_bytes(&service, &body).await;
        assert!(
            matches!(response.status, 400 | 413),
            "{reason}: {}",
            response.status
        );
        assert!(response.text().contains(reason), "{reason}: {}", response.text());
        assert!(response.header("content-type").unwrap().starts_with("text/plain"));
    }
}

fn decoded(body: &[u8]) -> Option<Vec<TimeSeries>> {
    let mut decoder = Decoder::new(body).ok()?;
    let (mut all, mut one) = (Vec::new(), Series::default());
    while decoder.next(body, &mut one, 0).ok()?.is_some() {
        all.push(series(&one.labels, &one.samples));
    }
    Some(all)
}

proptest! {
    #[test]
    fn requests_are_read_as_generated_types_read_them(
        all in prop::collection::vec(
            (prop::collection::vec(("[a-z]{0,3}", ".{0,3}"), 0..4), prop::collection::vec((-1e9..1e9_f64, any::<i64>()), 0..3)),
            0..4,
        )
    ) {
        let timeseries: Vec<TimeSeries> = all
            .iter()
            .map(|(labels, samples)| {
                let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                series(&labels, samples)
            })
            .collect();
        let body = WriteRequest { timeseries: timeseries.clone() }.encode_to_vec();
        prop_assert_eq!(decoded(&body), Some(timeseries));
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..80)) {
        decoded(&body);
    }
}
