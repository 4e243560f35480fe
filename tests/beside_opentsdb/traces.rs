//! Calls to HBase are spans of a trace.

use oxtsdb_client::AggregateFunction;
use oxtsdb_proto::data::v1::QueryRequest;
use oxtsdb_tests::collector::{Collector, traceparent, with_trace};
use oxtsdb_tests::read_back::{always, sub_query};
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb};

const T: i64 = 1_500_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_hbase_are_traced() -> anyhow::Result<()> {
    let rig = Rig::find()?;
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
