//! Traces, as a collector receives them: from a caller through the data service, the stages of a query or a write, and
//! the UID service.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_client::AggregateFunction;
use oxtsdb_proto::data::v1::QueryRequest;
use oxtsdb_tests::collector::{Collector, parent, traceparent, with_trace};
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{always, sub_query};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, Options, Tsdb, UidProgram, until};
use tempfile::TempDir;
use tokio::net::TcpListener;

const T: i64 = 1_500_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_traced_through_both_services() -> anyhow::Result<()> {
    let (collector, address) = Collector::start().await?;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    // Requests without a context are not sampled: every span here belongs to a caller.
    let flags = [
        format!("--otlp-endpoint=http://{address}"),
        "--trace-sample-ratio=0".to_owned(),
    ];
    let uid = UidProgram::start_with(folder.path(), None, &flags).await?;
    let data = DataProgram::start_with(folder.path(), uid.address(), &flags).await?;
    let caller = 0x0102_0304_0506_0708;

    let write = 0xa1;
    let sample = Sample::int("traced.m", &[("host", "a")], T, 1);
    let request = with_trace(write_request([&sample]), &traceparent(write, caller, true))?;
    data.client().write(request).await?;
    let assign = "oxtsdb.uid.v1.UidService/GetOrCreateUids";
    let expected = [
        "data-service oxtsdb.data.v1.DataService/Write",
        "data-service resolve",
        "data-service oxtsdb.uid.v1.UidService/GetOrCreateUids",
        "uid-service oxtsdb.uid.v1.UidService/GetOrCreateUids",
        "data-service store",
    ];
    let trace = collector.trace(write, &expected).await?;
    trace.check_connected(caller)?;
    let served = trace.span("uid-service oxtsdb.uid.v1.UidService/GetOrCreateUids")?;
    ensure!(parent(&trace, served) == Some(assign), "{:?}", trace.names());
    let resolve = trace.span("data-service resolve")?;
    ensure!(parent(&trace, resolve) == Some("oxtsdb.data.v1.DataService/Write"));

    let query = 0xa2;
    let message = QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("traced.m", AggregateFunction::Sum)],
        ..QueryRequest::default()
    };
    let request = with_trace(message, &traceparent(query, caller, true))?;
    let mut frames = data.client().query(request).await?.into_inner();
    while frames.message().await?.is_some() {}
    let stages = ["queue", "plan", "scan", "aggregate"].map(|stage| format!("data-service {stage}"));
    let mut expected: Vec<&str> = stages.iter().map(String::as_str).collect();
    expected.push("data-service oxtsdb.data.v1.DataService/Query");
    let trace = collector.trace(query, &expected).await?;
    trace.check_connected(caller)?;

    let over_http = 0xa3;
    let head = format!(
        "GET /api/query?start=1499999000&end=1500001000&m=sum:traced.m HTTP/1.1\r\nHost: a\r\ntraceparent: {}\r\n\
         Connection: close\r\n\r\n",
        traceparent(over_http, caller, true)
    );
    let mut raw = RawHttp::connect(data.http_address()).await?;
    raw.send(head.as_bytes()).await?;
    let response = raw.answer().await?;
    ensure!(response.status == 200, "{response:?}");
    expected.pop();
    expected.push("data-service /api/query");
    let trace = collector.trace(over_http, &expected).await?;
    trace.check_connected(caller)?;

    // The state of the caller's trace is propagated to the next service.
    let state = 0xa5;
    let other = Sample::int("traced.other", &[("host", "a")], T, 1);
    let mut request = with_trace(write_request([&other]), &traceparent(state, caller, true))?;
    request
        .metadata_mut()
        .insert("tracestate", "vendor=of-the-caller".parse()?);
    data.client().write(request).await?;
    let uid_call = "uid-service oxtsdb.uid.v1.UidService/GetOrCreateUids";
    let trace = collector.trace(state, &[uid_call]).await?;
    ensure!(trace.span(uid_call)?.trace_state == "vendor=of-the-caller");

    // A caller that does not sample.
    let request = with_trace(write_request([&sample]), &traceparent(0xa4, caller, false))?;
    data.client().write(request).await?;
    let metrics = Metrics::scrape(&data.admin()).await?;
    ensure!(metrics.value("oxtsdb_trace_spans_total{result=\"exported\"}") > 5.0);
    let received = collector.spans().await;
    let known = [write, query, over_http, state].map(u128::to_be_bytes);
    for (service, span) in &received {
        ensure!(
            known.iter().any(|trace| span.trace_id == trace),
            "{service} {} was not to be sampled",
            span.name
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_holds_up_nothing() -> anyhow::Result<()> {
    // It accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    check_without_collector(silent.local_addr()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_up_nothing() -> anyhow::Result<()> {
    let closed = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    check_without_collector(closed).await
}

/// Writes while the collector takes no spans; the log says so once.
async fn check_without_collector(collector: SocketAddr) -> anyhow::Result<()> {
    let endpoint = format!("http://{collector}");
    let mut tsdb = Tsdb::start_with(Options::default().flag("--otlp-endpoint", &endpoint)).await?;
    for second in 0..200 {
        let sample = Sample::int("traced.m", &[("host", "a")], T + second * 1000, 1);
        let written = tsdb.data().write(write_request([&sample])).await?.into_inner();
        ensure!(written.written == 1);
    }
    let admin = tsdb.admin();
    let failed = async || {
        anyhow::Ok(
            Metrics::scrape(&admin)
                .await?
                .value("oxtsdb_trace_spans_total{result=\"failed\"}"),
        )
    };
    until("spans count as failed", || async {
        ensure!(failed().await? > 0.0);
        Ok(())
    })
    .await?;
    // Another message.
    let before = failed().await?;
    let sample = Sample::int("traced.m", &[("host", "a")], T, 1);
    tsdb.data().write(write_request([&sample])).await?;
    until("another message fails", || async {
        ensure!(failed().await? > before);
        Ok(())
    })
    .await?;
    let begun = Instant::now();
    let status = tsdb.terminate().await?;
    ensure!(status.success(), "{status}");
    ensure!(
        begun.elapsed() < Duration::from_secs(15),
        "the end took {:?}",
        begun.elapsed()
    );
    let log = tsdb.process().log();
    let lines = log.matches("the collector of traces does not take spans").count();
    ensure!(lines == 1 && !log.contains("ExportError"), "{log}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_ids_of_sampled_traces_only() -> anyhow::Result<()> {
    let (_collector, address) = Collector::start().await?;
    let options = Options::default()
        .flag("--otlp-endpoint", &format!("http://{address}"))
        .flag("--access-log", "all")
        .flag("--log-format", "json");
    let mut tsdb = Tsdb::start_with(options).await?;
    let sample = Sample::int("traced.m", &[("host", "a")], T, 1);
    for (trace, is_sampled) in [(0xb1, true), (0xb2, false)] {
        let mut request = with_trace(write_request([&sample]), &traceparent(trace, 7, is_sampled))?;
        let id = format!("request-{trace}");
        request.metadata_mut().insert("x-request-id", id.parse()?);
        tsdb.data().write(request).await?;
        let line = until("the request is logged", || {
            let log = tsdb.process().log();
            let line = log
                .lines()
                .find(|line| line.contains("\"access\"") && line.contains(&id));
            let line = line.map(str::to_owned).with_context(|| log.clone());
            async move { line }
        })
        .await?;
        ensure!(
            line.contains(&format!("\"trace_id\":\"{trace:032x}\"")) == is_sampled,
            "{line}"
        );
        ensure!(line.contains("trace_id") == is_sampled, "{line}");
    }
    Ok(())
}
