//! Downsampling into billions of windows.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::{
    AggregateFunction, Downsample, ExplainRequest, FillPolicy, QueryRequest, downsample,
};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::read_back::{always, range, sub_query};
use oxtsdb_tests::refusal;
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::support::{MOST_BYTES, RESPONSE_TIMEOUT, Target, limited};

const KNOWN: &str = "windows.known";
const TWO_DAYS_MS: i64 = 2 * 86_400_000;
const METRICS: [&str; 2] = ["windows.unknown", KNOWN];
const INTERVALS: [&str; 3] = ["1ms", "1s", "1sc"];

/// Each metric with each interval.
fn cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    METRICS
        .into_iter()
        .flat_map(|metric| INTERVALS.map(|interval| (metric, interval)))
}

/// Checks that a call was rejected for its windows, or because its metric is unknown.
fn check_rejected(metric: &str, status: &tonic::Status) -> anyhow::Result<()> {
    if metric != KNOWN && status.code() == tonic::Code::NotFound {
        return Ok(());
    }
    refusal::check_status(status)
}

async fn target() -> anyhow::Result<Target> {
    let target = Target::start().await?;
    Load::new(KNOWN, 3, 100).write(&target.tsdb).await?;
    Ok(target)
}

#[tokio::test(flavor = "multi_thread")]
async fn http_rejects_billions_of_windows() -> anyhow::Result<()> {
    let mut target = target().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    for (metric, interval) in cases() {
        let path = format!("/api/query?start=0&m=sum:{interval}-sum-zero:{metric}");
        let got = target.get(&path).await?;
        let body = json!({"start": 0, "queries": [
            {"aggregator": "sum", "metric": metric, "downsample": format!("{interval}-sum-zero")}
        ]});
        let posted = target.post("/api/query", body.to_string().as_bytes()).await?;
        for response in [got, posted] {
            target.memory.check_below(MOST_BYTES).context(path.clone())?;
            // The unknown metric may be reported first.
            if metric == KNOWN || !response.text().contains("No such name") {
                refusal::check_response(&response).context(path.clone())?;
            } else {
                ensure!(response.status == 400, "{path}: {response:?}");
            }
        }
    }
    target.check_with(bystander).await
}

/// Billions of windows.
fn request(metric: &str, interval: &str) -> QueryRequest {
    let mut query = sub_query(metric, AggregateFunction::Sum);
    let interval = match interval {
        "1ms" => downsample::Interval::Fixed(prost_types::Duration {
            seconds: 0,
            nanos: 1_000_000,
        }),
        "1s" => downsample::Interval::Fixed(prost_types::Duration { seconds: 1, nanos: 0 }),
        _ => downsample::Interval::Calendar(downsample::Calendar {
            count: 1,
            unit: downsample::calendar::Unit::Seconds.into(),
            zone: String::new(),
        }),
    };
    query.downsample = Some(Downsample {
        interval: Some(interval),
        aggregator: Some(AggregateFunction::Sum.into()),
        fill: FillPolicy::Zero.into(),
    });
    QueryRequest {
        range: Some(always()),
        queries: vec![query],
        ..QueryRequest::default()
    }
}

/// A streamed response may be long if it takes little memory: the test reads it for a second.
#[tokio::test(flavor = "multi_thread")]
async fn grpc_rejects_billions_of_windows_or_streams_them() -> anyhow::Result<()> {
    let mut target = target().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    for (metric, interval) in cases() {
        let what = || format!("{metric} {interval}");
        let query = async {
            let mut frames = target
                .tsdb
                .data()
                .query(request(metric, interval))
                .await?
                .into_inner();
            let end = Instant::now() + Duration::from_secs(1);
            while Instant::now() < end && frames.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        };
        match timeout(RESPONSE_TIMEOUT, query).await.with_context(what)? {
            Ok(()) => {}
            Err(status) => check_rejected(metric, &status).with_context(what)?,
        }
        target.memory.check_below(MOST_BYTES).with_context(what)?;
        target.no_query_is_left().await?;
    }
    target.check_with(bystander).await
}

/// Two days of seconds: the windows of 20 series take more memory than the query has. A response that is sent as it is
/// computed has all of them; one that is held whole is rejected.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_many_groups_are_sent_in_batches() -> anyhow::Result<()> {
    const SERIES: usize = 20;
    for (is_held, status) in [("false", 200), ("true", 413)] {
        let options = limited()
            .flag("--query-max-memory-mib", "16")
            .flag("--http-buffer-results", is_held);
        let mut target = Target::start_with(options).await?;
        let bystander = Bystander::start(&target.tsdb).await?;
        let load = Load::new(KNOWN, SERIES, 2);
        load.write(&target.tsdb).await?;
        let response = target.get(&two_days(&load)).await?;
        ensure!(response.status == status, "{}", response.status);
        if status == 200 {
            let windows = response.body.iter().filter(|byte| **byte == b':').count();
            ensure!(windows >= SERIES * 2 * 86_400, "{windows} windows");
        } else {
            refusal::check_response(&response)?;
            ensure!(response.text().contains("--query-max-memory-mib"), "{response:?}");
        }
        target.check_with(bystander).await?;
    }
    Ok(())
}

/// Two days of seconds of three thousand series: 518 million windows, more points than a query may have.
#[tokio::test(flavor = "multi_thread")]
async fn rejects_windows_of_many_groups() -> anyhow::Result<()> {
    const SETTING: &str = "--query-max-points";
    let mut target = Target::start().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    let load = Load::new(KNOWN, 3000, 2);
    load.write(&target.tsdb).await?;
    let response = target.get(&two_days(&load)).await?;
    refusal::check_response(&response)?;
    ensure!(
        response.status == 413 && response.text().contains(SETTING),
        "{response:?}"
    );
    let mut request = request(KNOWN, "1s");
    request.range = Some(range(load.start_ms, load.start_ms + TWO_DAYS_MS));
    let mut client = target.tsdb.data();
    let query = async { client.query(request).await?.into_inner().message().await };
    let rejected = timeout(RESPONSE_TIMEOUT, query).await?;
    let Err(status) = rejected else {
        anyhow::bail!("{rejected:?}")
    };
    refusal::check_status(&status)?;
    ensure!(status.message().contains(SETTING), "{status:?}");
    target.check_with(bystander).await
}

/// The seconds of two days of each series.
fn two_days(load: &Load) -> String {
    format!(
        "/api/query?start={}&end={}&m=none:1s-sum-zero:{KNOWN}",
        load.start_ms,
        load.start_ms + TWO_DAYS_MS
    )
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn explain_counts_billions_of_windows() -> anyhow::Result<()> {
    let mut target = target().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    for (metric, interval) in cases() {
        let what = || format!("{metric} {interval}");
        let request = ExplainRequest {
            query: Some(request(metric, interval)),
        };
        let mut client = target.tsdb.data();
        match timeout(RESPONSE_TIMEOUT, client.explain(request))
            .await
            .with_context(what)?
        {
            Ok(response) => {
                let plan = response
                    .into_inner()
                    .plans
                    .into_iter()
                    .next()
                    .with_context(what)?;
                ensure!(plan.filled_intervals > 4_000_000_000, "{plan:?}");
            }
            Err(status) => check_rejected(metric, &status).with_context(what)?,
        }
        target.memory.check_below(MOST_BYTES).with_context(what)?;
    }
    target.check_with(bystander).await
}
