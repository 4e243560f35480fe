//! More concurrent queries than there are threads, processors or memory for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::{AggregateFunction, QueryRequest};
use oxtsdb_tests::bystander::{Bystander, Kind};
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{range, sub_query};
use oxtsdb_tests::refusal;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{BESIDE_QUERIES, MOST_BYTES, RESPONSE_TIMEOUT, Target, is_full, together};

/// 200,000 points in thousands of rows, which take several steps of a scan.
fn many() -> Load {
    Load {
        step_ms: 60_000,
        ..Load::new("many.queries", 200, 1000)
    }
}

/// Sends `count` concurrent queries over HTTP; returns the count of each status. Every query gets a
/// whole response or a typed rejection.
async fn concurrently(target: &Target, path: &str, count: usize) -> anyhow::Result<BTreeMap<u16, usize>> {
    let path: Arc<str> = path.into();
    let begun = Instant::now();
    let request = |_| {
        let (path, address) = (Arc::clone(&path), target.tsdb.http_address());
        async move {
            let exchange = async { RawHttp::connect(address).await?.get(&path).await };
            let response = timeout(RESPONSE_TIMEOUT, exchange)
                .await
                .with_context(|| format!("no response within {RESPONSE_TIMEOUT:?}"))??;
            // Not parsed: a debug build takes seconds for it, in which the bystander waits.
            let is_whole = response.body.starts_with(b"[{") && response.body.ends_with(b"}}]");
            ensure!(
                response.status != 200 || is_whole,
                "an empty or broken response: {response:?}"
            );
            Ok(response)
        }
    };
    let statuses = together((0..count).map(request)).await?;
    println!(
        "  {count} at a time: {statuses:?} in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    target.memory.check_below(MOST_BYTES)?;
    Ok(statuses)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn serves_or_rejects_hundreds_of_concurrent_queries() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = many();
    load.write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let statuses = concurrently(&target, &load.path("sum"), 320).await?;
    ensure!(statuses.contains_key(&200), "no query was served");
    target.check_with(bystander).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn serves_or_rejects_hundreds_of_concurrent_grpc_queries() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = many();
    load.write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let (start, end) = load.seconds();
    let mut queries = JoinSet::new();
    for _ in 0..320 {
        let mut client = target.tsdb.data();
        let request = QueryRequest {
            range: Some(range(start * 1000, end * 1000)),
            queries: vec![sub_query(&load.metric, AggregateFunction::Sum)],
            ..QueryRequest::default()
        };
        queries.spawn(async move {
            let query = async {
                let mut frames = client.query(request).await?.into_inner();
                while frames.message().await?.is_some() {}
                Ok::<_, tonic::Status>(())
            };
            match timeout(RESPONSE_TIMEOUT, query).await.context("no response")? {
                Ok(()) => Ok(true),
                Err(status) => refusal::check_status(&status).map(|()| false),
            }
        });
    }
    let (mut served, mut rejected) = (0, 0);
    while let Some(outcome) = queries.join_next().await {
        if outcome?? { served += 1 } else { rejected += 1 }
    }
    println!("  {served} served, {rejected} rejected");
    ensure!(served > 0, "no query was served");
    target.check_with(bystander).await
}

/// While one client has more queries than may run, small queries of another are served.
#[tokio::test(flavor = "multi_thread")]
async fn queries_are_fair_between_clients() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = many();
    load.write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &[Kind::Query]).await?;
    concurrently(&target, &load.path("sum"), 64).await?;
    target.check_with(bystander).await
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_large_queries_stay_within_the_memory_limit() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = Load::new("large.queries", 300, 4000);
    load.write(&target.tsdb).await?;
    println!("  {} points", load.total());
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let alone = target.get(&load.path("sum")).await?;
    ensure!(alone.status == 200, "a query alone: {alone:?}");
    let count = if is_full() { 16 } else { 8 };
    let statuses = concurrently(&target, &load.path("sum"), count).await?;
    ensure!(statuses.contains_key(&200), "no query was served");
    // The whole metric as JSON, for each of them: more than the memory of all queries.
    concurrently(&target, &load.path("none"), count).await?;
    target.check_with(bystander).await
}

/// Sixteen sums of 3 million points each: four hold more than the memory of queries, so they run in time slices. The tests of
/// `oxtsdb-query` have smaller ones.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn concurrent_sums_without_downsampling_wait_their_turn() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let load = Load::new("raw.sums", 300, 10_000);
    load.write(&target.tsdb).await?;
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let statuses = concurrently(&target, &load.path("sum"), 16).await?;
    ensure!(statuses == BTreeMap::from([(200, 16)]), "{statuses:?}");
    target.check_with(bystander).await
}
