//! Rejected points of all front ends are described in one place.

use std::sync::Arc;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::IngestCounts;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{
    TimeSeries, TimeUnit, WriteColumnsRequest, WriteOptions, WriteRequest, columns, time_series,
};
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};

/// Kind, protocol, reason and example of each record; all are of this machine or this process.
fn records(counts: &IngestCounts) -> Vec<Value> {
    let page: Value = serde_json::from_slice(&counts.rejections().to_json()).unwrap();
    page["rejections"].as_array().unwrap().clone()
}

fn has(records: &[Value], (protocol, kind): (&str, &str), reason: &str, point: &str) {
    let is_recorded = records.iter().any(|record| {
        let text = |key: &str| record[key].as_str().unwrap().to_owned();
        record["protocol"] == protocol
            && record["kind"] == kind
            && text("reason").contains(reason)
            && text("point").contains(point)
    });
    assert!(is_recorded, "{protocol} {kind} {reason} {point}: {records:#?}");
}

fn settings() -> DataSettings {
    let mut settings = DataSettings::default();
    let histograms = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;
    settings.histograms.histograms_config = Some(histograms.to_owned());
    settings
}

#[tokio::test]
async fn http_and_telnet_describe_rejected_points() {
    let stack = TestStack::with(settings(), uid_service::UidSettings::default()).await;
    let counts = Arc::clone(stack.service.writer.counts());
    let service = Service::from_stack(stack).await;
    let put = |metric: &str, timestamp: i64| json!({"metric": metric, "timestamp": timestamp, "value": 1, "tags": {"le": "+Inf"}});
    // Without `details` the response has no reason.
    let body = json!([put("zero", 0), put("zero2", 0), put("bucket", 1_356_998_400)]);
    let response = service.post("/api/put", body.to_string()).await;
    assert_eq!(response.status, 400);
    service.post("/api/put", "{nonsense").await;
    let histogram = json!({"metric": "h", "timestamp": 1, "id": 42, "value": "AA==", "tags": {"a": "b"}});
    service.post("/api/histogram", histogram.to_string()).await;
    let rollup = json!({"metric": "r", "timestamp": 1, "value": 1, "interval": "1h", "aggregator": "sum", "tags": {"a": "b"}});
    service.post("/api/rollup", rollup.to_string()).await;
    let replies = service
        .telnet(
            "put m.telegraf 1356998400 1 host=caf\u{e9} unit=\u{b0}C\n\
             put m 1356998400 abc host=a\n\
             histogram h 1 42 AA== a=b\n\
             rollup 1h-sum r 1356998400 1 a=b\n\
             m.graphite 1 1356998400\n",
        )
        .await;
    assert_eq!(replies.lines().count(), 5, "{replies}");
    let all = records(&counts);
    for (of, reason, point) in [
        (("http", "timestamp"), "Invalid timestamp", r#""metric":"zero""#),
        (("http", "name"), "illegal character: +", r#""metric":"bucket""#),
        (
            ("http", "malformed"),
            "Unable to parse the given JSON",
            "{nonsense",
        ),
        (("http", "histogram"), "", r#""metric":"h""#),
        (("http", "rollup"), "", r#""metric":"r""#),
        (
            ("telnet", "name"),
            "illegal character",
            "put m.telegraf 1356998400 1 host=",
        ),
        (
            ("telnet", "value"),
            "invalid value",
            "put m 1356998400 abc host=a",
        ),
        (
            ("telnet", "histogram"),
            "histogram: ",
            "histogram h 1 42 AA== a=b",
        ),
        (
            ("telnet", "rollup"),
            "rollup: ",
            "rollup 1h-sum r 1356998400 1 a=b",
        ),
        (
            ("telnet", "malformed"),
            "unknown command",
            "m.graphite 1 1356998400",
        ),
    ] {
        has(&all, of, reason, point);
    }
    let zero = all.iter().find(|record| record["kind"] == "timestamp").unwrap();
    assert_eq!(
        (&zero["points"], &zero["caller"]),
        (&json!(2), &json!("127.0.0.1"))
    );
    assert!(
        counts
            .for_protocol(oxtsdb_server::metrics::Protocol::Http)
            .rejected()
            >= 5
    );
}

#[tokio::test]
async fn grpc_describes_rejected_points_whose_errors_are_not_requested() {
    let stack = TestStack::start().await;
    let counts = Arc::clone(stack.service.writer.counts());
    let mut client = stack.client();
    let options = WriteOptions {
        time_unit: TimeUnit::Seconds.into(),
        max_errors: Some(0),
        ..WriteOptions::default()
    };
    let name = SeriesName {
        metric: "m.grpc".to_owned(),
        tags: vec![Tag {
            key: "host".to_owned(),
            value: "a".to_owned(),
        }],
    };
    let request = WriteRequest {
        series: vec![TimeSeries {
            series: Some(time_series::Series::Name(name)),
            timestamps: vec![1_356_998_400, 1_356_998_401, 7],
            values: vec![1.0, f64::NAN, 2.0],
            ..TimeSeries::default()
        }],
        options: Some(options),
    };
    assert_eq!(client.write(request).await.unwrap().into_inner().failed, 2);
    let columns = oxtsdb_proto::data::v1::Columns {
        first_symbol: 0,
        new_symbols: ["m.columns", "host", "b c"].map(str::to_owned).to_vec(),
        new_series: vec![columns::SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            ..columns::SeriesDeclaration::default()
        }],
        blocks: vec![columns::Block {
            series: vec![0],
            timestamps: vec![1_356_998_400],
            int_values: vec![42],
            ..columns::Block::default()
        }],
        ..oxtsdb_proto::data::v1::Columns::default()
    };
    let request = WriteColumnsRequest {
        columns: Some(columns),
        options: Some(options),
    };
    assert_eq!(
        client.write_columns(request).await.unwrap().into_inner().failed,
        1
    );
    let all = records(&counts);
    has(&all, ("grpc", "value"), "NaN", "m.grpc host=a 1356998401 NaN");
    has(&all, ("grpc", "timestamp"), "timestamp 7 s", "m.grpc host=a 7 2");
    has(
        &all,
        ("grpc", "name"),
        "illegal character",
        "m.columns host=b c 1356998400 42",
    );
}
