//! HBase fails below a server: callers get an error in time, and nothing acknowledged is lost.

use std::num::NonZeroU32;

use anyhow::ensure;
use futures::future::try_join_all;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::health::{DATA_SERVICE, UID_SERVICE, check};
use oxtsdb_tests::proxy::{Direction, Flow, Proxy};
use oxtsdb_tests::rig::{Rig, hbase_flags};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::tables::Tables;
use oxtsdb_tests::traffic::{self, Traffic};
use oxtsdb_tests::{Options, Tsdb, read_back, until};
use tokio::sync::Mutex;
use tonic_health::pb::health_check_response::ServingStatus;

/// A test that stops HBase stops it for all tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

const METRIC: &str = "outage";
const WRITERS: usize = 8;
/// Memory limit of a mostly idle server during an outage, bytes.
const MEMORY: u64 = 512 << 20;

async fn until_health(tsdb: &Tsdb, expected: ServingStatus) -> anyhow::Result<()> {
    until("both services report the expected health", || async {
        let data = check(tsdb.data_channel(), DATA_SERVICE).await?;
        let uids = check(tsdb.uid_channel(), UID_SERVICE).await?;
        ensure!(
            data == expected && uids == expected,
            "data is {data:?}, UIDs are {uids:?}"
        );
        Ok(())
    })
    .await
}

async fn until_writes_succeed(traffic: &Traffic) -> anyhow::Result<()> {
    let before = traffic.acknowledged();
    until("points are acknowledged", || async {
        traffic.check_goes_on(before)
    })
    .await
}

/// Writes continuously while HBase fails and recovers; then checks that every acknowledged point is stored.
async fn outage(
    tables: &Tables,
    gateways: Vec<String>,
    breaks: impl AsyncFnOnce(&Traffic) -> anyhow::Result<()>,
    mends: impl AsyncFnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let options = Options::default()
        .flags(gateways)
        .flags(tables.flags())
        .flag("--hbase-request-timeout-ms", "5000");
    let mut tsdb = Tsdb::start_with(options).await?;
    let traffic = Traffic::start(tsdb.data_address(), METRIC, WRITERS);
    until_writes_succeed(&traffic).await?;

    breaks(&traffic).await?;
    until("a call fails", || async {
        ensure!(traffic.failures() > 0, "none");
        Ok(())
    })
    .await?;
    until_health(&tsdb, ServingStatus::NotServing).await?;
    let memory = tsdb.process().peak_memory()?;
    assert!(memory < MEMORY, "{memory} bytes of memory");

    mends().await?;
    until_health(&tsdb, ServingStatus::Serving).await?;
    until_writes_succeed(&traffic).await?;
    let failures = traffic.failures();
    let lists = traffic.end().await?;
    tsdb.process().check_running()?;
    let stored = traffic::check_stored(&mut tsdb.data(), METRIC, &lists).await?;
    println!("{stored} points acknowledged and stored, {failures} calls failed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_gateway_is_enough_and_none_is_an_outage() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("gateways").await?;
    let (first, second) = (rig.gateway(&[]).await?, rig.gateway(&[]).await?);
    let gateways = hbase_flags(&[first.address()?, second.address()?]);
    let breaks = async |traffic: &Traffic| {
        first.kill9().await?;
        until_writes_succeed(traffic).await?;
        second.kill9().await
    };
    outage(&tables, gateways, breaks, || first.again()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn hbase_pauses() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("paused").await?;
    let hbase = rig.hbase();
    outage(
        &tables,
        rig.store_flags(),
        async |_: &Traffic| hbase.pause().await,
        || hbase.resume(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hbase_crashes_and_comes_back() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("killed").await?;
    let hbase = rig.hbase();
    outage(
        &tables,
        rig.store_flags(),
        async |_: &Traffic| hbase.kill9().await,
        || hbase.again(),
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_slow() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("slow").await?;
    let proxy = Proxy::start(rig.gateways()[0]).await?;
    let gateways = hbase_flags(&[proxy.address()]);
    let breaks = async |_: &Traffic| {
        let a_few = Flow::Slow(NonZeroU32::MIN);
        proxy.set(Direction::ToServer, a_few);
        proxy.set(Direction::ToClient, a_few);
        Ok(())
    };
    let mends = async || {
        proxy.set(Direction::ToServer, Flow::Pass);
        proxy.set(Direction::ToClient, Flow::Pass);
        Ok(())
    };
    outage(&tables, gateways, breaks, mends).await
}

/// HBase executes requests and its responses are lost: the outcome of a write is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn responses_are_lost_and_connections_are_cut() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("lost").await?;
    let mut proxy = Proxy::start(rig.gateways()[0]).await?;
    let gateways = hbase_flags(&[proxy.address()]);
    let proxy = Mutex::new(&mut proxy);
    let breaks = async |_: &Traffic| {
        let mut proxy = proxy.lock().await;
        proxy.set(Direction::ToClient, Flow::Lose);
        let before = proxy.bytes(Direction::ToClient);
        until("a response is lost", || async {
            ensure!(proxy.bytes(Direction::ToClient) > before, "none");
            Ok(())
        })
        .await?;
        proxy.refuse().await;
        proxy.cut();
        Ok(())
    };
    let mends = async || {
        let mut proxy = proxy.lock().await;
        proxy.set(Direction::ToClient, Flow::Pass);
        proxy.accept().await
    };
    outage(&tables, gateways, breaks, mends).await
}

/// Points of a call, each in a row of its own with a long key, so that calls are large; series that the calls
/// share; calls.
const MANY: i64 = 200;
const SERIES: i64 = 20;
const CALLS: i64 = 120;

/// The points of one call of many.
fn many(call: i64) -> Vec<Sample> {
    let host = format!("host{}", call % SERIES);
    let point = |n| {
        let hour = call / SERIES * MANY + n;
        let instant = 1_500_000_000_000 + hour * 3_600_000;
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
        Sample::int(
            "many",
            &keys.map(|key| (key, host.as_str())),
            instant,
            call * MANY + n,
        )
    };
    (0..MANY).map(point).collect()
}

/// No gateway responds, and few writes may wait.
#[tokio::test(flavor = "multi_thread")]
async fn writes_beyond_the_permits_fail_in_time_while_a_gateway_stalls() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let _alone = ONE_AT_A_TIME.lock().await;
    let tables = rig.create_tables("queues").await?;
    let proxy = Proxy::start(rig.gateways()[0]).await?;
    let options = Options::default()
        .flags(hbase_flags(&[proxy.address()]))
        .flags(tables.flags())
        .flag("--hbase-connections", "2")
        .flag("--hbase-connect-timeout-ms", "2000")
        .flag("--hbase-request-timeout-ms", "4000")
        .flag("--hbase-queue", "4")
        .flag("--max-writes-mib", "1");
    let mut tsdb = Tsdb::start_with(options).await?;
    let client = traffic::client(tsdb.data_address()).await?;
    let send = &|calls: std::ops::Range<i64>, deadline: &'static str| {
        try_join_all(calls.map(|call| {
            let mut client = client.clone();
            async move { traffic::call(&mut client, &many(call), deadline).await }
        }))
    };
    // Sequentially, as a client that retries.
    let store = async |calls: std::ops::Range<i64>| {
        for call in calls {
            until("a call succeeds", || async {
                for response in send(call..call + 1, "30S").await? {
                    response?;
                }
                Ok(())
            })
            .await?;
        }
        anyhow::Ok(())
    };
    // The names have their UIDs before the gateway stalls.
    store(0..SERIES).await?;
    proxy.set(Direction::ToServer, Flow::Stall);
    proxy.set(Direction::ToClient, Flow::Stall);
    let (patient, hasty) = tokio::try_join!(
        send(SERIES..CALLS * 3 / 4, "10S"),
        send(CALLS * 3 / 4..CALLS, "1S")
    )?;
    let mut reasons = Vec::new();
    for response in patient.into_iter().chain(hasty) {
        let Err(status) = response else {
            anyhow::bail!("acknowledged, but not stored: {response:?}");
        };
        traffic::check_failure(&status)?;
        reasons.push(reason_of(&status));
    }
    // Of calls that had a permit, and of calls that waited for one until their own deadline.
    for reason in [ErrorReason::StoreUnavailable, ErrorReason::DeadlineExceeded] {
        ensure!(
            reasons.contains(&Some(reason)),
            "no call ends with {reason:?}: {reasons:?}"
        );
    }
    let memory = tsdb.process().peak_memory()?;
    ensure!(memory < MEMORY, "{memory} bytes of memory");

    proxy.set(Direction::ToServer, Flow::Pass);
    proxy.set(Direction::ToClient, Flow::Pass);
    until_health(&tsdb, ServingStatus::Serving).await?;
    store(SERIES..CALLS).await?;
    let stored = read_back::series_of(&mut tsdb.data(), "many").await?;
    let points: usize = stored.values().map(Vec::len).sum();
    ensure!(points == usize::try_from(CALLS * MANY)?, "{points} points");
    Ok(())
}
