//! Senders of the workload, one for each front end.
//!
//! `http`, `stream`, `telnet` and `write` measure the server: they send messages that were encoded before the
//! clock starts, so that the generator uses as little processor time as possible. `client` measures the client
//! with the server: the same stream by `oxtsdb-client`.

pub(crate) mod client;
pub(crate) mod http;
pub(crate) mod stream;
pub(crate) mod telnet;
pub(crate) mod write;

pub(crate) mod raw_codec;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context as _;
use oxtsdb_proto::data::v1::{TimeUnit, WriteOptions};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::workload::Workload;

/// Concurrent connections.
pub(crate) const CONNECTIONS: usize = 4;

/// Milliseconds; plausible times only, as clients have them.
pub(crate) fn write_options() -> WriteOptions {
    WriteOptions {
        time_unit: TimeUnit::Milliseconds.into(),
        ..WriteOptions::default()
    }
}

pub(crate) async fn channel(server: SocketAddr) -> anyhow::Result<Channel> {
    Endpoint::from_shared(format!("http://{server}"))?
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(16 << 20)
        .tcp_nodelay(true)
        .connect()
        .await
        .with_context(|| format!("connect to {server}"))
}

/// The series of each connection.
fn parts(workload: &Workload) -> impl Iterator<Item = Range<usize>> {
    let series = workload.series.len();
    let part = series.div_ceil(CONNECTIONS);
    (0..series)
        .step_by(part.max(1))
        .map(move |first| first..(first + part).min(series))
}

/// Waits for connections; returns the longest time that an acknowledgement took.
pub(crate) async fn longest(mut connections: JoinSet<anyhow::Result<Duration>>) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    while let Some(connection) = connections.join_next().await {
        longest = longest.max(connection??);
    }
    Ok(longest)
}

/// Distributes messages over the connections, round robin.
fn deal<T>(messages: impl IntoIterator<Item = T>) -> Vec<Vec<T>> {
    let mut hands: Vec<Vec<T>> = (0..CONNECTIONS).map(|_| Vec::new()).collect();
    for (number, message) in messages.into_iter().enumerate() {
        hands[number % CONNECTIONS].push(message);
    }
    hands
}
