//! Floods of HTTP/2 frames that cost the client nothing.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::metrics::Metrics;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{RESPONSE_TIMEOUT, Target};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An empty SETTINGS frame.
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];

/// Frames of a connection, of its stream 0 where that is allowed.
const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const PRIORITY: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 1];
const PING_ACKNOWLEDGEMENT: &[u8] = &[0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
const UNKNOWN: &[u8] = &[0, 0, 2, 0xfe, 0, 0, 0, 0, 0, 1, 2];

const CONNECTIONS: usize = 8;

/// Sends a frame again and again until the server closes the connection; returns how often.
async fn flood(address: SocketAddr, frame: &'static [u8]) -> anyhow::Result<usize> {
    let mut socket = TcpStream::connect(address).await?;
    socket.write_all(PREFACE).await?;
    socket.write_all(SETTINGS).await?;
    // The server's own SETTINGS: the connection is open.
    let mut head = [0; 9];
    socket.read_exact(&mut head).await?;
    let frames = frame.repeat(100);
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < RESPONSE_TIMEOUT {
        let written = timeout(Duration::from_secs(10), socket.write_all(&frames)).await?;
        if written.is_err() {
            return Ok(sent);
        }
        sent += 100;
    }
    anyhow::bail!("{sent} frames were received")
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_control_frames_are_cut() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    for address in [target.tsdb.data_address(), target.tsdb.uid_address()] {
        let mut floods = JoinSet::new();
        for frame in [WINDOW_UPDATE, PRIORITY, PING_ACKNOWLEDGEMENT, UNKNOWN] {
            for _ in 0..CONNECTIONS {
                floods.spawn(flood(address, frame));
            }
        }
        while let Some(sent) = floods.join_next().await {
            let sent = sent?.context("the connection was not closed")?;
            // Buffers of the sockets take more than the server reads.
            ensure!(sent < 1_000_000, "{sent} frames were sent");
        }
    }
    let metrics = Metrics::scrape(&target.tsdb.admin()).await?;
    for listener in ["data", "uid"] {
        let sample = format!("oxtsdb_connections_flooded_total{{listener=\"{listener}\"}}");
        let cut = metrics.value(&sample);
        ensure!(cut >= 32.0, "{listener}: {cut}");
    }
    target.check_with(bystander).await
}
