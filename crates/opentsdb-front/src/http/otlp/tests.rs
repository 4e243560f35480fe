use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use proptest::prelude::*;
use prost::Message;
use tonic::Request;

use super::decode::Decoder;
use super::point::DataPoint;

const SECOND: u64 = 1_000_000_000;
const T: u64 = 1_700_000_000 * SECOND;

fn some(value: any_value::Value) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

fn attribute(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: some(value),
        ..KeyValue::default()
    }
}

fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, any_value::Value::StringValue(value.to_owned()))
}

fn request(metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![
                    text("service.name", "api"),
                    text("telemetry.sdk.language", "rust"),
                    text("k8s.pod.name", "api-7"),
                ],
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                metrics,
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

fn metric(name: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: "s".to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(value: number_data_point::Value, attributes: Vec<KeyValue>) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        time_unix_nano: T,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

fn gauge(name: &str, points: Vec<NumberDataPoint>) -> Metric {
    metric(name, Data::Gauge(Gauge { data_points: points }))
}

async fn send(service: &Service, path: &str, body: &[u8]) -> HttpResponse {
    let head = format!("POST {path} HTTP/1.1\r\nContent-Type: application/x-protobuf\r\n");
    service.request(head, body).await
}

/// The stored series of some metrics, as `metric{tags}: points`.
async fn stored(service: &Service, metrics: &[&str]) -> BTreeMap<String, String> {
    let mut stored = BTreeMap::new();
    for metric in metrics {
        let results = service
            .get(&format!("/api/query?start=1&ms&m=none:{metric}{{}}"))
            .await;
        for result in results.json().as_array().unwrap() {
            let series = format!("{metric}{}", result["tags"]);
            stored.insert(series, result["dps"].to_string());
        }
    }
    stored
}

fn expected<const N: usize>(series: [(&str, &str); N]) -> BTreeMap<String, String> {
    let owned = |(series, points): (&str, &str)| (series.to_owned(), points.to_owned());
    series.into_iter().map(owned).collect()
}

/// The partial success of a response: points, and the reason.
fn rejected(response: &HttpResponse) -> Option<(i64, String)> {
    assert_eq!(response.header("content-type"), Some("application/x-protobuf"));
    let response = ExportMetricsServiceResponse::decode(&response.body[..]).unwrap();
    let partial = response.partial_success?;
    Some((partial.rejected_data_points, partial.error_message))
}

#[tokio::test]
async fn exports_over_grpc_are_those_over_http() {
    let service = Service::start().await;
    let mut client = MetricsServiceClient::new(service.metrics_service.clone());
    let point = |value: f64| number(number_data_point::Value::AsDouble(value), vec![]);
    let export = request(vec![gauge(
        "load",
        vec![point(0.5), point(f64::INFINITY), point(f64::NAN)],
    )]);
    let response = client.export(export.clone()).await.unwrap().into_inner();
    let partial = response.partial_success.unwrap();
    assert_eq!(partial.rejected_data_points, 1);
    assert!(partial.error_message.contains("dropped=1: 2:"), "{partial:?}");
    let mut export = Request::new(export);
    let keys = "k8s.pod.name,service.name".parse().unwrap();
    export.metadata_mut().insert("oxtsdb-resource", keys);
    client.export(export).await.unwrap();
    assert_eq!(
        stored(&service, &["load"]).await,
        expected([
            (
                r#"load{"k8s.pod.name":"api-7","service.name":"api"}"#,
                r#"{"1700000000000":0.5}"#
            ),
            (r#"load{"service.name":"api"}"#, r#"{"1700000000000":0.5}"#),
        ])
    );
    let all = client
        .export(request(vec![gauge("load", vec![point(1.0)])]))
        .await;
    assert_eq!(all.unwrap().into_inner(), ExportMetricsServiceResponse::default());
}

/// No export request: field 1 of `Broken` is a text, field 1 of an export request a message.
#[derive(Clone, PartialEq, prost::Message)]
struct Broken {
    #[prost(string, tag = "1")]
    text: String,
}

#[tokio::test]
async fn grpc_rejects_what_is_no_export() {
    let service = Service::start().await;
    let mut client = tonic::client::Grpc::new(service.metrics_service.clone());
    for (method, expected) in [
        ("Export", tonic::Code::InvalidArgument),
        ("Import", tonic::Code::Unimplemented),
    ] {
        let path = format!("/opentelemetry.proto.collector.metrics.v1.MetricsService/{method}");
        let codec = tonic_prost::ProstCodec::<Broken, ExportMetricsServiceResponse>::default();
        let broken = Broken {
            text: "\u{7f}".repeat(9),
        };
        client.ready().await.unwrap();
        let answer = client
            .unary(Request::new(broken), path.parse().unwrap(), codec)
            .await;
        let status = answer.unwrap_err();
        assert_eq!(status.code(), expected, "{status:?}");
        let says = status.message().contains("no ExportMetricsServiceRequest");
        assert_eq!(says, method == "Export", "{status:?}");
    }
}

#[tokio::test]
async fn numbers_have_the_attributes_of_their_point_and_resource() {
    let service = Service::start().await;
    let sum = Sum {
        data_points: vec![number(
            number_data_point::Value::AsInt(3),
            vec![
                text("route", "/a b"),
                attribute("status", any_value::Value::IntValue(200)),
                attribute("cached", any_value::Value::BoolValue(true)),
                attribute("list", any_value::Value::ArrayValue(ArrayValue::default())),
            ],
        )],
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
        is_monotonic: true,
    };
    let ended = NumberDataPoint {
        flags: 1,
        ..number(number_data_point::Value::AsDouble(1.0), vec![])
    };
    let own = number(
        number_data_point::Value::AsDouble(0.5),
        vec![text("service.name", "own")],
    );
    let body = request(vec![
        metric("http.requests", Data::Sum(sum)),
        gauge("load", vec![own, ended]),
    ])
    .encode_to_vec();
    for path in ["/v1/metrics", "/v1/metrics?resource=k8s.pod.name"] {
        let response = send(&service, path, &body).await;
        assert_eq!((response.status, rejected(&response)), (200, None));
    }
    assert_eq!(
        stored(&service, &["http.requests", "load"]).await,
        expected([
            (
                r#"http.requests{"cached":"true","k8s.pod.name":"api-7","route":"/a_b","status":"200"}"#,
                r#"{"1700000000000":3}"#
            ),
            (
                r#"http.requests{"cached":"true","route":"/a_b","service.name":"api","status":"200"}"#,
                r#"{"1700000000000":3}"#
            ),
            (
                r#"load{"k8s.pod.name":"api-7","service.name":"own"}"#,
                r#"{"1700000000000":0.5}"#
            ),
            (r#"load{"service.name":"own"}"#, r#"{"1700000000000":0.5}"#),
        ])
    );
}

#[tokio::test]
async fn attributes_of_resources_are_named_by_the_url_or_by_a_header() {
    let point = number(number_data_point::Value::AsInt(1), vec![]);
    let body = request(vec![gauge("load", vec![point])]).encode_to_vec();
    let send = async |service: &Service, query: &str, header: &str| {
        let head = format!(
            "POST /v1/metrics{query} HTTP/1.1\r\nContent-Type: application/x-protobuf\r\nOxtsdb-Resource: {header}\r\n"
        );
        service.request(head, &body).await
    };
    for (query, header, series) in [
        ("", "k8s.pod.name,absent", r#"load{"k8s.pod.name":"api-7"}"#),
        ("", "", r#"load{"source":"otlp"}"#),
        (
            "?resource=service.name",
            "absent",
            r#"load{"service.name":"api"}"#,
        ),
    ] {
        let service = Service::start().await;
        let response = send(&service, query, header).await;
        assert_eq!((response.status, rejected(&response)), (200, None));
        let one = expected([(series, r#"{"1700000000000":1}"#)]);
        assert_eq!(stored(&service, &["load"]).await, one);
    }
    let response = send(&Service::start().await, "", "k8s.pod.n\u{e4}me").await;
    assert_eq!(response.status, 400);
    assert!(response.text().contains("header `oxtsdb-resource` is not ASCII"));
}

#[tokio::test]
async fn points_have_the_metric_and_the_resource_that_they_are_in() {
    let service = Service::start().await;
    let mut all = ExportMetricsServiceRequest::default();
    for resource in ["a", "b"] {
        let metrics = ["x", "y"].map(|name| {
            let points = [1, 2].map(|place| {
                let value = number_data_point::Value::AsInt(place);
                number(value, vec![text("place", &place.to_string())])
            });
            gauge(name, points.to_vec())
        });
        let mut of_one = request(metrics.to_vec()).resource_metrics.remove(0);
        of_one.resource.as_mut().unwrap().attributes = vec![text("host.name", resource)];
        all.resource_metrics.push(of_one);
    }
    let response = send(&service, "/v1/metrics", &all.encode_to_vec()).await;
    assert_eq!((response.status, rejected(&response)), (200, None));
    let mut expected = BTreeMap::new();
    for metric in ["x", "y"] {
        for host in ["a", "b"] {
            for place in [1, 2] {
                let series = format!(r#"{metric}{{"host.name":"{host}","place":"{place}"}}"#);
                expected.insert(series, format!(r#"{{"1700000000000":{place}}}"#));
            }
        }
    }
    assert_eq!(stored(&service, &["x", "y"]).await, expected);
}

#[tokio::test]
async fn histograms_are_series_with_bounds() {
    let service = Service::start().await;
    let histogram = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: T,
            count: 6,
            sum: Some(1.5),
            bucket_counts: vec![1, 0, 5],
            explicit_bounds: vec![0.1, 2.0],
            exemplars: vec![Exemplar::default()],
            max: Some(9.0),
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Delta.into(),
    };
    let exponential = ExponentialHistogram {
        data_points: vec![ExponentialHistogramDataPoint {
            time_unix_nano: T,
            count: 10,
            scale: 0,
            zero_count: 2,
            zero_threshold: 0.125,
            // (2, 4] and (4, 8].
            positive: Some(Buckets {
                offset: 1,
                bucket_counts: vec![3, 1],
            }),
            // [-1, -0.5) and [-2, -1).
            negative: Some(Buckets {
                offset: -1,
                bucket_counts: vec![1, 3],
            }),
            ..ExponentialHistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    };
    let summary = Summary {
        data_points: vec![SummaryDataPoint {
            time_unix_nano: T,
            count: 4,
            sum: 2.0,
            quantile_values: vec![ValueAtQuantile {
                quantile: 0.99,
                value: 0.7,
            }],
            ..SummaryDataPoint::default()
        }],
    };
    let body = request(vec![
        metric("h", Data::Histogram(histogram)),
        metric("e", Data::ExponentialHistogram(exponential)),
        metric("s", Data::Summary(summary)),
    ]);
    let response = send(&service, "/v1/metrics?resource=", &body.encode_to_vec()).await;
    assert_eq!((response.status, rejected(&response)), (200, None));
    let metrics = [
        "h_bucket", "h_count", "h_sum", "h_max", "e_bucket", "e_count", "s", "s_count", "s_sum",
    ];
    let at = |value: &str| format!(r#"{{"1700000000000":{value}}}"#);
    let series = |metric: &str, key: &str, of: &str, value: &str| {
        (format!(r#"{metric}{{"{key}":"{of}"}}"#), at(value))
    };
    let all = [
        series("h_bucket", "le", "0.1", "1"),
        series("h_bucket", "le", "2", "1"),
        series("h_bucket", "le", "_Inf", "6"),
        series("h_count", "source", "otlp", "6"),
        series("h_sum", "source", "otlp", "1.5"),
        series("h_max", "source", "otlp", "9.0"),
        series("e_bucket", "le", "-2", "0"),
        series("e_bucket", "le", "-1", "3"),
        series("e_bucket", "le", "-0.5", "4"),
        series("e_bucket", "le", "-0.125", "4"),
        series("e_bucket", "le", "0.125", "6"),
        series("e_bucket", "le", "2", "6"),
        series("e_bucket", "le", "4", "9"),
        series("e_bucket", "le", "8", "10"),
        series("e_bucket", "le", "_Inf", "10"),
        series("e_count", "source", "otlp", "10"),
        series("s", "quantile", "0.99", "0.7"),
        series("s_count", "source", "otlp", "4"),
        series("s_sum", "source", "otlp", "2.0"),
    ];
    assert_eq!(stored(&service, &metrics).await, BTreeMap::from(all));
}

#[tokio::test]
async fn histograms_are_opentsdbs_if_the_request_says_so() {
    let service = Service::with_histograms().await;
    let histogram = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: T,
            count: 6,
            sum: Some(1.5),
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![0.5, 2.0],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Delta.into(),
    };
    let export = request(vec![metric("h", Data::Histogram(histogram.clone()))]);
    let target = "/v1/metrics?resource=&histograms=opentsdb";
    let response = send(&service, target, &export.encode_to_vec()).await;
    assert_eq!((response.status, rejected(&response)), (200, None));
    let mut export = Request::new(request(vec![metric("g", Data::Histogram(histogram))]));
    for (name, value) in [("oxtsdb-histograms", "opentsdb"), ("oxtsdb-resource", "")] {
        export.metadata_mut().insert(name, value.parse().unwrap());
    }
    let mut client = MetricsServiceClient::new(service.metrics_service.clone());
    let response = client.export(export).await.unwrap().into_inner();
    assert_eq!(response, ExportMetricsServiceResponse::default());
    for metric in ["h", "g"] {
        let query =
            format!("/api/query?start=1&ms&m=sum:percentiles[25,99]:show-histogram-buckets:{metric}{{}}");
        let results = service.get(&query).await.json();
        let shown: BTreeMap<_, _> = results
            .as_array()
            .unwrap()
            .iter()
            .map(|result| {
                let name = result["metric"].as_str().unwrap();
                (
                    name[1..].to_owned(),
                    result["dps"]["1700000000000"].as_f64().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            shown,
            BTreeMap::from(
                [
                    ("_0.0_0.5", 1.0),
                    ("_0.5_2.0", 2.0),
                    ("_OVERFLOW", 3.0),
                    ("_UNDERFLOW", 0.0),
                    ("_pct_25.0", 0.25),
                    ("_pct_99.0", 1.25),
                ]
                .map(|(name, value)| (name.to_owned(), value))
            ),
            "{results}"
        );
    }
    let totals = stored(&service, &["h_count", "h_sum"]).await;
    assert_eq!(totals.len(), 2, "{totals:?}");
    let buckets = service.get("/api/suggest?type=metrics&q=h_b").await;
    assert_eq!(buckets.text(), "[]");
}

#[tokio::test]
async fn good_points_are_stored_and_the_others_counted() {
    let service = Service::start().await;
    let value = || number_data_point::Value::AsDouble(1.0);
    let untimed = NumberDataPoint {
        time_unix_nano: 0,
        ..number(value(), vec![])
    };
    let many = (0..66).map(|key| text(&format!("k{key}"), "v")).collect();
    let unspecified = Sum {
        data_points: vec![number(value(), vec![])],
        ..Sum::default()
    };
    let uneven = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: T,
            bucket_counts: vec![1, 2],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Delta.into(),
    };
    let unordered = Histogram {
        data_points: vec![HistogramDataPoint {
            time_unix_nano: T,
            bucket_counts: vec![1, 2, 3],
            explicit_bounds: vec![2.0, 2.0],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Delta.into(),
    };
    let scaled = ExponentialHistogram {
        data_points: vec![ExponentialHistogramDataPoint {
            time_unix_nano: T,
            scale: i32::MIN,
            ..ExponentialHistogramDataPoint::default()
        }],
        aggregation_temporality: AggregationTemporality::Delta.into(),
    };
    let body = request(vec![
        gauge("", vec![number(value(), vec![])]),
        gauge(
            "g",
            vec![
                number(value(), vec![]),
                untimed,
                number(number_data_point::Value::AsDouble(f64::NEG_INFINITY), vec![]),
                number(value(), many),
            ],
        ),
        metric("s", Data::Sum(unspecified)),
        metric("h", Data::Histogram(uneven)),
        metric("h", Data::Histogram(unordered)),
        metric("e", Data::ExponentialHistogram(scaled)),
    ]);
    let response = send(&service, "/v1/metrics", &body.encode_to_vec()).await;
    assert_eq!(response.status, 200);
    let (count, reason) = rejected(&response).unwrap();
    assert_eq!(count, 8);
    assert!(
        reason.starts_with("partial write: 1 points stored, dropped=8: 1: the metric has no name, 3: "),
        "{reason}"
    );
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn bodies_that_are_no_request_are_rejected_for_good() {
    let service = Service::start().await;
    let valid = request(vec![gauge("g", vec![])]).encode_to_vec();
    for (body, status, reason) in [
        (&valid[..valid.len() - 1], 400, "a field is cut off"),
        (&b"\x0f"[..], 400, "a field has an unknown wire type"),
    ] {
        let response = send(&service, "/v1/metrics", body).await;
        assert_eq!(response.status, status, "{reason}");
        assert_eq!(response.header("content-type"), Some("application/x-protobuf"));
        // google.rpc.Status: 1 code, 2 message.
        assert_eq!(response.body[..2], [0x08, 3], "INVALID_ARGUMENT");
        let text = String::from_utf8_lossy(&response.body);
        assert!(text.contains(reason), "{reason}: {text}");
    }
    let response = send(&service, "/v1/metrics", b"").await;
    assert_eq!((response.status, rejected(&response)), (200, None));
}

async fn send_as(service: &Service, content_type: &str, body: &str) -> HttpResponse {
    let head = format!("POST /v1/metrics HTTP/1.1\r\nContent-Type: {content_type}\r\n");
    service.request(head, body.as_bytes()).await
}

#[tokio::test]
async fn requests_in_json_are_those_in_protobuf() {
    let service = Service::start().await;
    let response = send_as(
        &service,
        "application/json; charset=utf-8",
        r#" {"resourceMetrics": [{
            "schemaUrl": "https://example.com", "resource": {"attributes": [
                {"key": "service.name", "value": {"stringValue": "api"}},
                {"key": "host.name", "value": {"stringValue": "w\u0065b01"}}]},
            "scopeMetrics": [{"scope": {"name": "s", "attributes": []}, "metrics": [
                {"name": "n", "unit": "1", "sum": {"aggregationTemporality": 2, "isMonotonic": true, "dataPoints": [
                    {"timeUnixNano": "1700000000000000000", "startTimeUnixNano": 1, "asInt": "-3", "flags": 0,
                     "exemplars": [{"asInt": 1, "filteredAttributes": [{"key": "deep", "value": {}}]}],
                     "attributes": [{"key": "i", "value": {"intValue": "200"}}, {"key": "b", "value": {"boolValue": true}},
                        {"key": "d", "value": {"doubleValue": 1.5}}, {"key": "l", "value": {"arrayValue": {"values": [{}]}}}]},
                    {"timeUnixNano": 1700000001000000000, "asDouble": 2}]}},
                {"name": "h", "histogram": {"aggregationTemporality": "AGGREGATION_TEMPORALITY_DELTA", "dataPoints": [
                    {"timeUnixNano": "1700000000000000000", "count": 3, "sum": 1.5, "min": null, "max": 1e0,
                     "bucketCounts": ["1", 2], "explicitBounds": [0.5], "attributes": null}]}},
                {"name": "e", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [
                    {"timeUnixNano": "1700000000000000000", "count": "4", "scale": -1, "zeroCount": "1", "zeroThreshold": 0.25,
                     "positive": {"offset": 1, "bucketCounts": [3]}, "negative": {"offset": -1, "bucketCounts": []}}]}},
                {"name": "s", "summary": {"dataPoints": [{"timeUnixNano": "1700000000000000000", "count": "2", "sum": 1,
                    "quantileValues": [{"quantile": 0.5, "value": 0.25}]}]}},
                {"name": "g", "gauge": {"dataPoints": [{"timeUnixNano": "1700000000000000000", "asDouble": "Infinity"}]}}
            ]}]}]}"#,
    )
    .await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let partial = &response.json()["partialSuccess"];
    assert_eq!(partial["rejectedDataPoints"], "1");
    let reason = partial["errorMessage"].as_str().unwrap();
    assert!(
        reason.starts_with("partial write: 15 points stored, dropped=1: 6: "),
        "{reason}"
    );
    let at = |value: &str| format!(r#"{{"1700000000000":{value}}}"#);
    let resource = r#"{"host.name":"web01","service.name":"api"}"#;
    let series = |metric: &str, value: &str| (format!("{metric}{resource}"), at(value));
    let mut all = BTreeMap::from([
        series("h_count", "3"),
        series("h_sum", "1.5"),
        series("h_max", "1.0"),
        series("e_count", "4"),
        series("s_count", "2"),
        series("s_sum", "1.0"),
    ]);
    all.insert(format!("n{resource}"), r#"{"1700000001000":2.0}"#.to_owned());
    for (series, value) in [
        (
            r#"n{"b":"true","d":"1.5","host.name":"web01","i":"200","service.name":"api"}"#,
            "-3",
        ),
        (
            r#"h_bucket{"host.name":"web01","le":"0.5","service.name":"api"}"#,
            "1",
        ),
        (
            r#"h_bucket{"host.name":"web01","le":"_Inf","service.name":"api"}"#,
            "3",
        ),
        // The base is 4 at scale -1.
        (
            r#"e_bucket{"host.name":"web01","le":"0.25","service.name":"api"}"#,
            "1",
        ),
        (
            r#"e_bucket{"host.name":"web01","le":"4","service.name":"api"}"#,
            "1",
        ),
        (
            r#"e_bucket{"host.name":"web01","le":"16","service.name":"api"}"#,
            "4",
        ),
        (
            r#"e_bucket{"host.name":"web01","le":"_Inf","service.name":"api"}"#,
            "4",
        ),
        (
            r#"s{"host.name":"web01","quantile":"0.5","service.name":"api"}"#,
            "0.25",
        ),
    ] {
        all.insert(series.to_owned(), at(value));
    }
    let metrics = [
        "n", "h_bucket", "h_count", "h_sum", "h_max", "e_bucket", "e_count", "s", "s_count", "s_sum",
    ];
    assert_eq!(stored(&service, &metrics).await, all);
    let response = send_as(&service, "Application/JSON", r#"{"resourceMetrics":[]}"#).await;
    assert_eq!((response.status, &response.body[..]), (200, &b"{}"[..]));
}

#[tokio::test]
async fn errors_of_requests_in_json_are_json() {
    let service = Service::start().await;
    let response = send_as(&service, "application/json", r#"{"resourceMetrics":3}"#).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.header("content-type"), Some("application/json"));
    let status = response.json();
    assert_eq!(status["code"], 3, "INVALID_ARGUMENT");
    assert_eq!(
        status["message"],
        "request body is no ExportMetricsServiceRequest: invalid type: integer `3`, expected a list for \
         `resourceMetrics` at line 1 column 20"
    );
    let response = send_as(&service, "text/plain", "{}").await;
    assert_eq!(response.status, 415);
    let text = String::from_utf8_lossy(&response.body);
    assert!(text.contains("`text/plain` is not known, expected application/x-protobuf or application/json"));
}

/// All points of a body that can be decoded: metric, and attributes.
fn decoded(body: &[u8]) -> Option<Vec<(String, usize)>> {
    let mut decoder = Decoder::new(body, Vec::new());
    let mut all = Vec::new();
    while let Some(message) = decoder.next(body).ok()? {
        let point = DataPoint::decode(decoder.kind(), message).ok()?;
        all.push((decoder.name().to_owned(), point.attributes.len()));
    }
    Some(all)
}

proptest! {
    #[test]
    fn every_point_of_a_request_is_read(
        resources in prop::collection::vec(
            prop::collection::vec(("[a-z]{0,3}", prop::collection::vec(0..4_usize, 0..4)), 0..4),
            0..4,
        )
    ) {
        let attributes = |count: usize| (0..count).map(|key| text(&key.to_string(), "v")).collect();
        let all: Vec<_> = resources
            .iter()
            .flatten()
            .flat_map(|(name, points)| points.iter().map(|count| (name.clone(), *count)))
            .collect();
        let resource_metrics = resources.iter().map(|metrics| {
            let metrics = metrics.iter().map(|(name, points)| {
                let points = points.iter().map(|count| number(number_data_point::Value::AsInt(1), attributes(*count)));
                gauge(name, points.collect())
            });
            request(metrics.collect()).resource_metrics.remove(0)
        });
        let body = ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }.encode_to_vec();
        prop_assert_eq!(decoded(&body), Some(all));
    }

    #[test]
    fn no_body_panics(body in prop::collection::vec(any::<u8>(), 0..80)) {
        decoded(&body);
    }
}
