//! Large bodies of one client beside small ones of another.

use std::net::SocketAddr;

use anyhow::ensure;
use oxtsdb_tests::bystander::{Bystander, Kind};
use oxtsdb_tests::raw_http::RawHttp;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::{BOUND, Target};

/// Bytes of a body: with all of them [`CLIENTS`] exceed the memory for writes.
const BODY_BYTES: usize = 8 << 20;
const CLIENTS: usize = 32;

/// Sends all of a body but its end, again and again; each is rejected, or waits for its end.
async fn keep_sending(address: SocketAddr) -> anyhow::Result<()> {
    let piece = vec![b' '; 1 << 20];
    loop {
        let mut socket = RawHttp::connect(address).await?;
        let head = format!("POST /api/put HTTP/1.1\r\nHost: test\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
        socket.send(head.as_bytes()).await?;
        for _ in 1..BODY_BYTES / piece.len() {
            // The server may have rejected it.
            if socket.send(&piece).await.is_err() {
                break;
            }
        }
        let _refused = socket.answer().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_of_a_client_leave_memory_for_small_ones_of_others() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let mut senders = JoinSet::new();
    for _ in 0..CLIENTS {
        senders.spawn(keep_sending(target.tsdb.http_address()));
    }
    let bystander = Bystander::start(&target.tsdb).await?;
    sleep(2 * BOUND).await;
    let retries = [Kind::Put, Kind::Write].map(|kind| bystander.retries(kind));
    ensure!(retries == [0, 0], "small writes were refused: {retries:?} times");
    senders.shutdown().await;
    target.check_with(bystander).await
}
