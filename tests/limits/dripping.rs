//! Clients that send a body byte by byte.

use std::time::Duration;

use anyhow::ensure;
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::raw_http::RawHttp;
use tokio::time::{Instant, sleep};

use crate::support::{BOUND, Target, limited};

/// Duration of an attack: longer than the time in which others must be served.
const ATTACK: Duration = Duration::from_secs(8);

/// Heads of requests with bodies that drip.
const CHUNKED: &str = "POST /api/put HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
const GZIP: &str =
    "POST /api/put HTTP/1.1\r\nHost: test\r\nContent-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n";
const ANNOUNCED: &str = "POST /api/query HTTP/1.1\r\nHost: test\r\nContent-Length: 16000000\r\n\r\n";

/// Sends a head from each of `sockets` connections, then a byte of each body a second; others must be served
/// meanwhile.
async fn drip(head: &str, byte: &[u8], sockets: usize) -> anyhow::Result<()> {
    drip_at(Target::start().await?, head, byte, sockets).await
}

async fn drip_at(mut target: Target, head: &str, byte: &[u8], sockets: usize) -> anyhow::Result<()> {
    let mut attackers = Vec::new();
    for _ in 0..sockets {
        let mut socket = RawHttp::connect(target.tsdb.http_address()).await?;
        socket.send(head.as_bytes()).await?;
        attackers.push(socket);
    }
    let bystander = Bystander::start(&target.tsdb).await?;
    let end = Instant::now() + ATTACK;
    let mut sent = 0;
    while Instant::now() < end {
        for socket in &mut attackers {
            // The server may close it.
            if socket.send(byte).await.is_ok() {
                sent += 1;
            } else {
                *socket = RawHttp::connect(target.tsdb.http_address()).await?;
                let _ = socket.send(head.as_bytes()).await;
            }
        }
        sleep(Duration::from_secs(1)).await;
    }
    ensure!(sent >= sockets, "the attackers were disconnected immediately");
    bystander.finish(BOUND).await?;
    drop(attackers);
    target.check_unharmed().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn sixteen_chunked_bodies_delay_no_other_request() -> anyhow::Result<()> {
    drip(CHUNKED, b"1\r\n[\r\n", 16).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn hundreds_of_chunked_bodies_delay_no_other_request() -> anyhow::Result<()> {
    drip(CHUNKED, b"1\r\n[\r\n", 300).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn compressed_bodies_delay_no_other_request() -> anyhow::Result<()> {
    drip(GZIP, &[0x1f], 48).await
}

#[tokio::test(flavor = "multi_thread")]
async fn announced_bodies_delay_no_other_request() -> anyhow::Result<()> {
    drip(ANNOUNCED, b" ", 48).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn an_address_with_all_connections_keeps_no_other_out() -> anyhow::Result<()> {
    let connections = 64;
    let options = limited().flag("--max-connections", &connections.to_string());
    drip_at(
        Target::start_with(options).await?,
        CHUNKED,
        b"1\r\n[\r\n",
        connections,
    )
    .await
}
