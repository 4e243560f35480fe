//! Ports accept connections once the service is ready, not before.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::health::{DATA_SERVICE, UID_SERVICE, check_serving};
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::{DataProgram, UidProgram};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{BOUND, Target, turn};

/// Time for which the data service waits for its UID service while its ports are probed.
const PROBED: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn ports_are_closed_until_the_uid_service_is_reachable() -> anyhow::Result<()> {
    let _turn = turn().await;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    // A free address.
    let mut uid = UidProgram::start(folder.path(), None).await?;
    let address = uid.address();
    uid.process().kill9()?;
    let mut data = DataProgram::launch(folder.path(), address, &[])?;
    let end = Instant::now() + PROBED;
    while Instant::now() < end {
        for port in [data.data_address(), data.http_address()] {
            ensure!(
                TcpStream::connect(port).await.is_err(),
                "{port} accepts before the service is ready:\n{}",
                data.process().log()
            );
        }
        sleep(Duration::from_millis(20)).await;
    }
    data.process().check_running()?;
    let _uid = UidProgram::start(folder.path(), Some(address)).await?;
    data.wait_until_ready().await
}

/// The first connection that each port accepts after a crash is served immediately.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_connection_is_served() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    // A journal that takes a while to read.
    Load::new("journal", 100, 5000).write(&target.tsdb).await?;
    target.tsdb.kill9()?;
    let (http, data, uid) = (
        target.tsdb.http_address(),
        target.tsdb.data_channel(),
        target.tsdb.uid_channel(),
    );
    let (data_address, uid_address) = (target.tsdb.data_address(), target.tsdb.uid_address());
    let first_version = async {
        let mut connection = loop {
            match RawHttp::connect(http).await {
                Ok(connection) => break connection,
                Err(_refused) => sleep(Duration::from_millis(1)).await,
            }
        };
        let response = timeout(BOUND, connection.get("/api/version")).await;
        let response = response.context("the first HTTP connection is not served")??;
        ensure!(response.status == 200, "{response:?}");
        Ok(())
    };
    let first_health = async |address, channel, service| {
        while TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
        timeout(BOUND, check_serving(channel, service))
            .await
            .context("the first gRPC connection is not served")?
            .context("health of the first gRPC connection")
    };
    let (restarted, ..) = tokio::try_join!(
        async { anyhow::Ok(target.tsdb.restart().await) },
        first_version,
        first_health(data_address, data, DATA_SERVICE),
        first_health(uid_address, uid, UID_SERVICE),
    )?;
    restarted
}
