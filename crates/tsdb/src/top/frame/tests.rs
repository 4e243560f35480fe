use std::time::Instant;

use oxtsdb_server::admin::deployment::Deployment;

use super::*;
use crate::admin::{AdminListener, Metrics, Queries, Rejection, Rejections};
use crate::top::server::Scrape;

/// A server with these metrics, `seconds` after the one with `earlier`.
pub(in crate::top) fn server(url: &str, earlier: Option<&str>, later: &str, seconds: f64) -> Server {
    let url = format!("http://{url}").parse().unwrap();
    let mut server = Server::new(&AdminListener::new(url, std::time::Duration::from_secs(1)));
    let now = Instant::now();
    if let Some(earlier) = earlier {
        server.update(Ok(scrape(earlier, now)));
    }
    server.update(Ok(scrape(
        later,
        now + std::time::Duration::from_secs_f64(seconds),
    )));
    server
}

/// It started at 1000, and its clock is at 1100.
pub(in crate::top) fn scrape(metrics: &str, at: Instant) -> Scrape {
    Scrape {
        at,
        metrics: Metrics::parse(&format!("{metrics}# EOF\n")).unwrap(),
        not_ready: Vec::new(),
        queries: None,
        rejections: Rejections::default(),
        facts: Deployment {
            version: "0.1.0".to_owned(),
            clock_ms: 1_100_000,
            ..Deployment::default()
        },
    }
}

pub(in crate::top) fn frame(servers: &[Server], sort: Sort) -> Frame {
    Frame::new(servers, sort, Timestamp::UNIX_EPOCH)
}

/// Metrics of a data service that has stored `points` over gRPC, and as many requests and syncs.
pub(in crate::top) fn data(started: u32, points: u32, slow: u32) -> String {
    let fast = points - slow;
    format!(
        r#"# TYPE process_start_time_seconds gauge
process_start_time_seconds {started}
# TYPE process_cpu_seconds counter
process_cpu_seconds_total {points}e-2
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 1048576
# TYPE oxtsdb_memory_limit_bytes gauge
oxtsdb_memory_limit_bytes 4194304
# TYPE oxtsdb_points_added counter
oxtsdb_points_added_total{{protocol="grpc"}} {points}
oxtsdb_points_added_total{{protocol="http"}} 0
# TYPE oxtsdb_points_rejected counter
oxtsdb_points_rejected_total{{protocol="grpc"}} 0
oxtsdb_points_rejected_total{{protocol="http"}} 0
# TYPE oxtsdb_requests counter
oxtsdb_requests_total{{protocol="grpc",method="oxtsdb.data.v1.DataService/Write",code="OK"}} {fast}
oxtsdb_requests_total{{protocol="grpc",method="oxtsdb.data.v1.DataService/Write",code="UNAVAILABLE"}} {slow}
oxtsdb_requests_total{{protocol="http",method="/api/put",code="204"}} 3
oxtsdb_requests_total{{protocol="http",method="/api/put",code="400"}} 1
# TYPE oxtsdb_requests_in_flight gauge
oxtsdb_requests_in_flight{{protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} 2
oxtsdb_requests_in_flight{{protocol="http",method="/api/put"}} 0
# TYPE oxtsdb_request_seconds histogram
oxtsdb_request_seconds_bucket{{le="0.01",protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} {fast}
oxtsdb_request_seconds_bucket{{le="1.0",protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} {points}
oxtsdb_request_seconds_bucket{{le="+Inf",protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} {points}
oxtsdb_request_seconds_sum{{protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} 1
oxtsdb_request_seconds_count{{protocol="grpc",method="oxtsdb.data.v1.DataService/Write"}} {points}
# TYPE oxtsdb_memory_pool_limit_bytes gauge
oxtsdb_memory_pool_limit_bytes{{pool="query"}} 100
# TYPE oxtsdb_memory_pool_used_bytes gauge
oxtsdb_memory_pool_used_bytes{{pool="query"}} 40
# TYPE oxtsdb_store_series gauge
oxtsdb_store_series 5
# TYPE oxtsdb_uid_used gauge
oxtsdb_uid_used{{kind="metrics"}} 7
# TYPE oxtsdb_uid_available gauge
oxtsdb_uid_available{{kind="metrics"}} 93
"#
    )
}

#[test]
fn rates_are_over_the_time_between_two_scrapes() {
    let servers = [server(
        "a:1",
        Some(&data(1000, 100, 0)),
        &data(1000, 300, 50),
        4.0,
    )];
    let json = frame(&servers, Sort::Rate).json();
    assert_eq!(json["seconds"], 4.0);
    assert_eq!(json["since_start"], false);
    assert_eq!(json["points"].as_array().unwrap().len(), 1, "http has no points");
    assert_eq!(json["points"][0]["added_per_second"], 50.0);
    assert_eq!(json["points"][0]["added"], 300.0);
    assert_eq!(json["servers"][0]["cpu"], 0.5);
    assert_eq!(json["servers"][0]["uptime_seconds"], 100.0);
    let write = &json["requests"][0];
    assert_eq!(write["method"], "oxtsdb.data.v1.DataService/Write");
    assert_eq!(write["per_second"], 50.0);
    assert_eq!(write["errors_per_second"], 12.5);
    assert_eq!(write["in_flight"], 2.0);
    // 150 of 200 are below 10 ms, the others below a second.
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-9;
    assert!(near(&write["p50_seconds"], 0.01 * 100.0 / 150.0), "{write}");
    assert!(near(&write["p99_seconds"], 0.01 + 0.99 * 48.0 / 50.0), "{write}");
    // Nothing has happened here in the meantime.
    assert_eq!(json["requests"][1]["method"], "/api/put");
    assert_eq!(json["requests"][1]["per_second"], 0.0);
    assert_eq!(json["requests"][1]["p50_seconds"], Value::Null);
    assert!(
        json.get("gateways").is_none() && json.get("errors").is_none(),
        "{json}"
    );
}

#[test]
fn the_first_rates_and_those_after_a_restart_are_since_the_start() {
    let first = [server("a:1", None, &data(1000, 500, 0), 0.0)];
    let json = frame(&first, Sort::Rate).json();
    assert_eq!(json["since_start"], true);
    assert_eq!(json["points"][0]["added_per_second"], 5.0);
    // Started at 1050, so 50 s ago; it has more points than before, which says nothing.
    let restarted = [server("a:1", Some(&data(1000, 100, 0)), &data(1050, 200, 0), 2.0)];
    let json = frame(&restarted, Sort::Rate).json();
    assert_eq!(json["points"][0]["added_per_second"], 4.0);
    assert_eq!(json["requests"][0]["per_second"], 4.0);
}

#[test]
fn servers_are_added_up_and_replicas_share_uids() {
    let two = [
        server("a:1", Some(&data(1000, 0, 0)), &data(1000, 100, 100), 2.0),
        server("b:2", Some(&data(1000, 0, 0)), &data(1000, 300, 0), 4.0),
    ];
    let json = frame(&two, Sort::Rate).json();
    assert_eq!(json["points"][0]["added_per_second"], 50.0 + 75.0);
    assert_eq!(json["requests"][0]["errors_per_second"], 50.0);
    assert_eq!(json["requests"][0]["in_flight"], 4.0);
    // 300 of 400 are fast.
    assert_eq!(json["requests"][0]["p50_seconds"], 0.01 * 200.0 / 300.0);
    assert_eq!(json["uids"][0]["used"], 7.0);
    let named = |section: &str| -> Vec<String> {
        let rows = json[section].as_array().unwrap().iter();
        rows.map(|row| row["server"].as_str().unwrap().to_owned())
            .collect()
    };
    for section in ["servers", "memory", "store"] {
        assert_eq!(named(section), ["a:1", "b:2"], "{section}");
    }
    let one = frame(&two[..1], Sort::Rate).json();
    assert!(one["memory"][0].get("server").is_none());
}

#[test]
fn a_server_that_is_away_has_its_reason_and_the_others_go_on() {
    let mut away = server("b:2", None, &data(1000, 100, 0), 0.0);
    let error = || crate::admin::AdminError::Away {
        url: "http://b:2".parse().unwrap(),
        reason: "connection refused".to_owned(),
    };
    away.update(Err(error()));
    away.update(Err(error()));
    let mut servers = [
        server("a:1", Some(&data(1000, 0, 0)), &data(1000, 8, 0), 2.0),
        away,
    ];
    let shown = frame(&servers, Sort::Rate);
    assert_eq!(shown.ready, (1, 2));
    let json = shown.json();
    assert_eq!(json["servers"][1]["state"], "away");
    assert_eq!(json["servers"][1]["reason"], "connection refused");
    assert_eq!(json["points"][0]["added"], 8.0);
    // It comes back, 10 s after its last scrape.
    let last = servers[1].clone();
    let at = Instant::now() + std::time::Duration::from_secs(10);
    servers[1].update(Ok(scrape(&data(1000, 300, 0), at)));
    let json = frame(&servers[1..], Sort::Rate).json();
    let rate = json["points"][0]["added_per_second"].as_f64().unwrap();
    assert!((19.0..=20.0).contains(&rate), "{rate}, and before: {last:?}");
    assert_eq!(json["servers"][0]["state"], "ready");
}

#[test]
fn sorts_requests() {
    let servers = [server("a:1", None, &data(1000, 100, 0), 0.0)];
    let first = |sort| {
        let json = frame(&servers, sort).json();
        json["requests"][0]["protocol"].as_str().unwrap().to_owned()
    };
    assert_eq!(first(Sort::Rate), "grpc");
    assert_eq!(first(Sort::Errors), "http", "a 400");
    assert_eq!(first(Sort::Latency), "grpc");
    assert_eq!(first(Sort::Name), "grpc");
    let turn = std::iter::successors(Some(Sort::Rate), |sort| Some(sort.next())).take(5);
    assert_eq!(
        turn.map(Sort::name).collect::<Vec<_>>(),
        ["rate", "errors", "latency", "name", "rate"]
    );
}

#[test]
fn running_queries_are_listed_longest_first() {
    let query = |id: u64, ms: u64, text: &str| {
        json!({"id": id, "query": {"start": "1", "end": "2", "queries": [{"index": 0, "m": text}]},
            "queryStartTimestamp": 1, "stats": {"totalTime": ms, "series": 1, "rowsFromStorage": 2,
            "bytesFromStorage": 3, "dpsPreFilter": 4, "memoryBytes": 5}})
    };
    let page = json!({"completed": [], "running": [query(1, 10, "sum:a"), query(2, 2500, "sum:b")]});
    let queries: Queries = serde_json::from_value(page).unwrap();
    let mut server = server("a:1", None, &data(1000, 1, 0), 0.0);
    if let Some(scrape) = &mut server.last {
        scrape.queries = Some(queries);
    }
    let json = frame(&[server], Sort::Rate).json();
    assert_eq!(json["running"][0]["id"], 2);
    assert_eq!(json["running"][0]["seconds"], 2.5);
    assert_eq!(json["running"][0]["query"], "sum:b");
    assert_eq!(json["running"][1]["rows"], 2.0);
}

/// Sections of a real server's metrics that no other test has.
#[test]
fn shows_errors_stages_and_gateways() {
    let metrics = data(1000, 1, 0)
        + r#"# TYPE oxtsdb_errors counter
oxtsdb_errors_total{reason="LIMIT_EXCEEDED",setting="--query-max-rows"} 5
oxtsdb_errors_total{reason="ACCESS_DENIED",setting=""} 9
# TYPE oxtsdb_access_refused counter
oxtsdb_access_refused_total{reason="mode"} 1
oxtsdb_access_refused_total{reason="metric"} 0
# TYPE oxtsdb_hbase_gateway_up gauge
oxtsdb_hbase_gateway_up{gateway="h:9090"} 1
oxtsdb_hbase_gateway_up{gateway="i:9090"} 0
# TYPE oxtsdb_hbase_calls_failed counter
oxtsdb_hbase_calls_failed_total{gateway="h:9090"} 0
oxtsdb_hbase_calls_failed_total{gateway="i:9090"} 20
# TYPE oxtsdb_query_stage_seconds histogram
oxtsdb_query_stage_seconds_bucket{le="0.1",stage="scan"} 1
oxtsdb_query_stage_seconds_bucket{le="+Inf",stage="scan"} 1
oxtsdb_query_stage_seconds_count{stage="scan"} 1
oxtsdb_query_stage_seconds_sum{stage="scan"} 1
oxtsdb_query_stage_seconds_count{stage="plan"} 0
"#;
    let both = [
        server("a:1", None, &metrics, 0.0),
        server("b:2", None, &metrics, 0.0),
    ];
    let json = frame(&both, Sort::Rate).json();
    let reasons: Vec<&Value> = json["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["reason"])
        .collect();
    assert_eq!(reasons, ["ACCESS_DENIED", "LIMIT_EXCEEDED", "mode"]);
    assert_eq!(json["errors"][1]["setting"], "--query-max-rows");
    assert_eq!(json["errors"][2]["setting"], "--mode");
    assert_eq!(json["stages"].as_array().unwrap().len(), 1);
    assert_eq!(json["stages"][0]["p50_seconds"], 0.05);
    assert_eq!(json["gateways"][0]["up"], 2.0);
    assert_eq!(json["gateways"][1]["up"], 0.0);
    assert_eq!(json["gateways"][1]["servers"], 2.0);
    assert_eq!(json["gateways"][1]["failed_per_second"], 0.4);
}

#[test]
fn rejected_points_are_shown_with_an_example_the_latest_first() {
    let scraped = |last_ms, caller: &str| {
        let mut scrape = scrape(&data(1000, 1, 0), Instant::now());
        scrape.rejections.rejections.push(Rejection {
            kind: "timestamp".to_owned(),
            protocol: "http".to_owned(),
            caller: caller.to_owned(),
            points: 42,
            last_ms,
            reason: "Invalid timestamp".to_owned(),
            point: "m 0 1".to_owned(),
        });
        scrape
    };
    let mut servers = ["a:1", "b:1"].map(|url| server(url, None, &data(1000, 1, 0), 0.0));
    assert!(frame(&servers, Sort::Rate).json().get("rejected").is_none());
    servers[0].update(Ok(scraped(1_090_000, "10.0.0.1")));
    servers[1].update(Ok(scraped(1_095_000, "10.0.0.2")));
    let json = frame(&servers, Sort::Rate).json();
    assert_eq!(json["rejected"][0]["caller"], "10.0.0.2");
    assert_eq!(json["rejected"][0]["seconds_ago"], 5.0);
    let last = &json["rejected"][1];
    assert_eq!((&last["points"], &last["server"]), (&json!(42.0), &json!("a:1")));
    assert_eq!(
        (&last["reason"], &last["point"]),
        (&json!("Invalid timestamp"), &json!("m 0 1"))
    );
}
