//! Sends the points of a fleet, encoded while they are sent.

use std::io::Write as _;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::encode::{Encoder, FrontEnd};
use super::points::{METRICS, Order, Point, Points};
use crate::ingest::http::Connection;
use crate::ingest::longest;

/// How a telnet connection ends, so that its end shows that all points were processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// `version` is answered after all lines before it are stored.
    Version,
    /// The server closes its side after it has processed all lines.
    Close,
}

/// The points to send, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The number of the first host.
    pub(crate) first_host: u32,
    pub(crate) hosts: u32,
    /// Points of each series.
    pub(crate) steps: u32,
    /// The first timestamp, seconds since the epoch.
    pub(crate) start_seconds: u32,
    pub(crate) front_end: FrontEnd,
    pub(crate) order: Order,
    /// At most; each has hosts of its own.
    pub(crate) connections: usize,
}

/// The points of a connection.
#[derive(Debug)]
pub(crate) struct Share {
    points: Points,
    front_end: FrontEnd,
    encoder: Encoder,
    batch: Vec<Point>,
}

impl Load {
    /// Number of series.
    pub(crate) fn series(self) -> u64 {
        u64::from(self.hosts) * u64::from(METRICS)
    }

    /// Number of points.
    pub(crate) fn points(self) -> u64 {
        self.series() * u64::from(self.steps)
    }

    /// A share for each connection.
    pub(crate) fn shares(self) -> Vec<Share> {
        let hosts = (self.hosts as usize).div_ceil(self.connections).max(1);
        let end = self.first_host + self.hosts;
        (self.first_host..end)
            .step_by(hosts)
            .map(|first| {
                let share_end = first.saturating_add(u32::try_from(hosts).unwrap_or(u32::MAX));
                Share::new(self, first..share_end.min(end))
            })
            .collect()
    }
}

impl Share {
    fn new(load: Load, hosts: Range<u32>) -> Self {
        Self {
            points: Points::new(hosts.clone(), load.steps, load.order),
            front_end: load.front_end,
            encoder: Encoder::new(load.front_end, load.start_seconds, hosts),
            batch: Vec::new(),
        }
    }

    /// Encodes the next batch; returns whether it has points.
    fn next_batch(&mut self, out: &mut Vec<u8>) -> anyhow::Result<bool> {
        self.batch.clear();
        self.batch
            .extend(self.points.by_ref().take(self.front_end.batch_points()));
        if self.batch.is_empty() {
            return Ok(false);
        }
        self.encoder.encode(&self.batch, out)?;
        Ok(true)
    }

    async fn send_lines(mut self, server: SocketAddr, end: End) -> anyhow::Result<Duration> {
        let (mut responses, mut stream) = TcpStream::connect(server).await?.into_split();
        // Read all the time: a server that reports many lines must not wait for its reader.
        let reader = tokio::spawn(async move {
            let mut text = String::new();
            responses.read_to_string(&mut text).await.map(|_| text)
        });
        let (mut text, mut longest) = (Vec::new(), Duration::ZERO);
        while self.next_batch(&mut text)? {
            let started = Instant::now();
            stream.write_all(&text).await?;
            longest = longest.max(started.elapsed());
        }
        match end {
            End::Version => stream.write_all(b"version\nexit\n").await?,
            End::Close => stream.shutdown().await?,
        }
        let responses = reader.await??;
        let rejected = responses.lines().find(|line| line.starts_with("put:"));
        ensure!(rejected.is_none(), "a line was rejected: {rejected:?}");
        ensure!(
            end == End::Close || !responses.is_empty(),
            "no response to `version`"
        );
        Ok(longest)
    }

    async fn send_requests(mut self, server: SocketAddr, path: &str) -> anyhow::Result<Duration> {
        let mut connection = Connection::open(server).await?;
        let (mut body, mut request, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
        let headers = self.front_end.headers();
        while self.next_batch(&mut body)? {
            request.clear();
            let length = body.len();
            write!(
                request,
                "POST {path} HTTP/1.1\r\nHost: bench\r\n{headers}Content-Length: {length}\r\n\r\n"
            )?;
            request.extend_from_slice(&body);
            let started = Instant::now();
            let (status, response) = connection.exchange(&request).await?;
            longest = longest.max(started.elapsed());
            let response = String::from_utf8_lossy(&response);
            ensure!((200..300).contains(&status), "status {status}: {response}");
        }
        Ok(longest)
    }
}

/// Where a server takes points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Path and query of requests.
    pub(crate) path: &'static str,
    pub(crate) end: End,
}

impl Target {
    /// OxTSDB's listener of telnet.
    pub(crate) fn telnet(address: SocketAddr) -> Self {
        Self {
            address,
            path: "",
            end: End::Version,
        }
    }
}

/// Sends all points, a share on each connection; returns the longest time of an acknowledgement; over telnet, the
/// longest time that lines were not read.
pub(crate) async fn send(target: Target, shares: Vec<Share>) -> anyhow::Result<Duration> {
    let mut connections = JoinSet::new();
    for share in shares {
        match share.front_end {
            FrontEnd::Telnet => connections.spawn(share.send_lines(target.address, target.end)),
            _ => connections.spawn(share.send_requests(target.address, target.path)),
        };
    }
    longest(connections).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::CONNECTIONS;

    #[test]
    fn shares_have_all_points_as_lines() {
        let load = Load {
            first_host: 3,
            hosts: 7,
            steps: 30,
            start_seconds: 1_767_225_600,
            front_end: FrontEnd::Telnet,
            order: Order::Time,
            connections: CONNECTIONS,
        };
        let (mut lines, mut text) = (Vec::new(), Vec::new());
        for mut share in load.shares() {
            while share.next_batch(&mut text).unwrap() {
                let text = String::from_utf8(text.clone()).unwrap();
                lines.extend(text.lines().map(str::to_owned));
            }
        }
        assert_eq!(lines.len() as u64, load.points());
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len() as u64, load.points());
    }
}
