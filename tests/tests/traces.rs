//! Traces, as a collector receives them: from a caller through the data service, the stages of a query or a write, and
//! the UID service.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value;
use opentelemetry_proto::tonic::trace::v1::Span;
use oxtsdb_client::AggregateFunction;
use oxtsdb_proto::data::v1::QueryRequest;
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{always, sub_query};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, Options, Tsdb, UidProgram, until};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_stream::wrappers::TcpListenerStream;

const T: i64 = 1_500_000_000_000;

/// A span, and the service that sent it.
type Received = (String, Span);

/// A collector.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Received>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let mut received = self.0.lock().await;
        for spans in request.into_inner().resource_spans {
            let attributes = spans.resource.unwrap_or_default().attributes;
            let service = attributes.into_iter().find(|key| key.key == "service.name");
            let service = service.and_then(|key| match key.value?.value? {
                any_value::Value::StringValue(text) => Some(text),
                _ => None,
            });
            let service = service.unwrap_or_default();
            let spans = spans.scope_spans.into_iter().flat_map(|scope| scope.spans);
            received.extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> anyhow::Result<(Self, SocketAddr)> {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server =
            tonic::transport::Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok((collector, address))
    }

    /// The spans of a trace, when these are among them, as `SERVICE NAME`.
    async fn trace(&self, trace: u128, expected: &[&str]) -> anyhow::Result<Trace> {
        until("the spans of the trace are received", || async {
            let received = self.0.lock().await;
            let spans = received
                .iter()
                .filter(|(_, span)| span.trace_id == trace.to_be_bytes());
            let trace = Trace(spans.cloned().collect());
            let names = trace.names();
            for name in expected {
                ensure!(names.contains(*name), "no `{name}` in {names:?}");
            }
            Ok(trace)
        })
        .await
    }
}

struct Trace(Vec<Received>);

impl Trace {
    fn names(&self) -> HashSet<String> {
        self.0
            .iter()
            .map(|(service, span)| format!("{service} {}", span.name))
            .collect()
    }

    fn span(&self, name: &str) -> anyhow::Result<&Span> {
        let found = self
            .0
            .iter()
            .find(|(service, span)| format!("{service} {}", span.name) == name);
        Ok(&found.with_context(|| name.to_owned())?.1)
    }

    /// Checks that each span has the caller's, or another one of the trace, above it.
    fn check_connected(&self, caller: u64) -> anyhow::Result<()> {
        let ids: HashMap<&[u8], &str> = self
            .0
            .iter()
            .map(|(_, span)| (span.span_id.as_slice(), span.name.as_str()))
            .collect();
        for (service, span) in &self.0 {
            let parent = span.parent_span_id.as_slice();
            ensure!(
                parent == caller.to_be_bytes() || ids.contains_key(parent),
                "{service} {} has no parent",
                span.name
            );
            ensure!(span.end_time_unix_nano >= span.start_time_unix_nano);
        }
        Ok(())
    }
}

/// The name of the span above another one.
fn parent<'a>(trace: &'a Trace, span: &Span) -> Option<&'a str> {
    let above = trace
        .0
        .iter()
        .find(|(_, other)| other.span_id == span.parent_span_id);
    above.map(|(_, span)| span.name.as_str())
}

fn traceparent(trace: u128, caller: u64, sampled: bool) -> String {
    format!("00-{trace:032x}-{caller:016x}-0{}", u8::from(sampled))
}

fn with_trace<M>(message: M, traceparent: &str) -> anyhow::Result<tonic::Request<M>> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("traceparent", traceparent.parse()?);
    Ok(request)
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_traced_through_both_services() -> anyhow::Result<()> {
    let (collector, address) = Collector::start().await?;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    // What has no context is not sampled: every span here belongs to a caller.
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

    // What the caller says about its trace goes on to the next service.
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
    let received = collector.0.lock().await;
    let known = [write, query, over_http, state].map(u128::to_be_bytes);
    for (service, span) in &*received {
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

/// Calls to HBase are spans. Runs beside an HBase only.
#[tokio::test(flavor = "multi_thread")]
async fn calls_to_hbase_are_traced() -> anyhow::Result<()> {
    let Some(rig) = Rig::find("traces")? else {
        return Ok(());
    };
    let tables = rig.create_tables("traces").await?;
    let (collector, address) = Collector::start().await?;
    let options = Options::default()
        .flags(rig.flags(&tables))
        .flag("--otlp-endpoint", &format!("http://{address}"))
        .flag("--trace-sample-ratio", "0");
    let tsdb = Tsdb::start_with(options).await?;
    let sample = Sample::int("traced.m", &[("host", "a")], T, 1);
    let request = with_trace(write_request([&sample]), &traceparent(0xc1, 7, true))?;
    tsdb.data().write(request).await?;
    let trace = collector
        .trace(0xc1, &["tsdb hbase", "tsdb store", "tsdb resolve"])
        .await?;
    trace.check_connected(7)?;
    let message = QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("traced.m", AggregateFunction::Sum)],
        ..QueryRequest::default()
    };
    let request = with_trace(message, &traceparent(0xc2, 7, true))?;
    let mut frames = tsdb.data().query(request).await?.into_inner();
    while frames.message().await?.is_some() {}
    let trace = collector.trace(0xc2, &["tsdb hbase", "tsdb scan"]).await?;
    trace.check_connected(7)
}
