//! Sends the points of a fleet over telnet or HTTP put, as text that is made while it is sent.
//!
//! The text of a line is put together of three that are made before the clock starts, a timestamp and a value, so that the
//! generator uses little processor time and the same for each server.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::ValueEnum;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::points::{self, METRICS, Order, Point, Points};
use crate::ingest::http::Connection;
use crate::ingest::longest;
use crate::workload::STEP_SECONDS;

/// A protocol of OpenTSDB that both servers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontEnd {
    /// Lines of `put`, 1,000 a write.
    Telnet,
    /// POST /api/put, 500 points a request.
    Http,
}

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

/// The points of a connection and their text.
#[derive(Debug)]
pub(crate) struct Share {
    points: Points,
    front_end: FrontEnd,
    start_seconds: u32,
    first_host: u32,
    /// The text before the timestamp, by metric.
    before: Vec<Vec<u8>>,
    /// The text after the value, by host.
    after: Vec<Vec<u8>>,
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
        (0..self.hosts)
            .step_by(hosts)
            .map(|first| {
                let end = first.saturating_add(u32::try_from(hosts).unwrap_or(u32::MAX));
                Share::new(self, first..end.min(self.hosts))
            })
            .collect()
    }
}

impl Share {
    fn new(load: Load, hosts: Range<u32>) -> Self {
        let metric = |number| match load.front_end {
            FrontEnd::Telnet => format!("put {} ", points::metric(number)),
            FrontEnd::Http => format!(r#"{{"metric":"{}","timestamp":"#, points::metric(number)),
        };
        let tags = |host| {
            let tags = points::tags(host);
            match load.front_end {
                FrontEnd::Telnet => tags.map(|(key, value)| format!(" {key}={value}")).concat() + "\n",
                FrontEnd::Http => {
                    let tags = tags.map(|(key, value)| format!(r#""{key}":"{value}""#));
                    format!(r#","tags":{{{}}}}}"#, tags.join(","))
                }
            }
        };
        Self {
            points: Points::new(hosts.clone(), load.steps, load.order),
            front_end: load.front_end,
            start_seconds: load.start_seconds,
            first_host: hosts.start,
            before: (0..METRICS).map(|number| metric(number).into_bytes()).collect(),
            after: hosts.map(|host| tags(host).into_bytes()).collect(),
        }
    }

    fn push(&self, point: Point, text: &mut Vec<u8>) {
        let between: &[u8] = match self.front_end {
            FrontEnd::Telnet => b" ",
            FrontEnd::Http => br#","value":"#,
        };
        let seconds = self.start_seconds + point.step * STEP_SECONDS;
        text.extend_from_slice(&self.before[point.metric as usize]);
        text.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
        text.extend_from_slice(between);
        point.push_value(text);
        text.extend_from_slice(&self.after[(point.host - self.first_host) as usize]);
    }

    /// Lines of the next points, none after the last.
    fn next_lines(&mut self, text: &mut Vec<u8>) {
        text.clear();
        for _ in 0..1000 {
            let Some(point) = self.points.next() else { break };
            self.push(point, text);
        }
    }

    /// A request with the next points, or an empty text.
    fn next_request(&mut self, body: &mut Vec<u8>, request: &mut Vec<u8>) {
        body.clear();
        request.clear();
        for _ in 0..500 {
            let Some(point) = self.points.next() else { break };
            body.push(if body.is_empty() { b'[' } else { b',' });
            self.push(point, body);
        }
        if body.is_empty() {
            return;
        }
        body.push(b']');
        let head =
            "POST /api/put HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: ";
        request.extend_from_slice(head.as_bytes());
        request.extend_from_slice(format!("{}\r\n\r\n", body.len()).as_bytes());
        request.extend_from_slice(body);
    }

    async fn send_lines(mut self, server: SocketAddr, end: End) -> anyhow::Result<Duration> {
        let (mut responses, mut stream) = TcpStream::connect(server).await?.into_split();
        // Read all the time: a server that reports many lines must not wait for its reader.
        let reader = tokio::spawn(async move {
            let mut text = String::new();
            responses.read_to_string(&mut text).await.map(|_| text)
        });
        let (mut text, mut longest) = (Vec::new(), Duration::ZERO);
        loop {
            self.next_lines(&mut text);
            if text.is_empty() {
                break;
            }
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

    async fn send_requests(mut self, server: SocketAddr) -> anyhow::Result<Duration> {
        let mut connection = Connection::open(server).await?;
        let (mut body, mut request, mut longest) = (Vec::new(), Vec::new(), Duration::ZERO);
        loop {
            self.next_request(&mut body, &mut request);
            if request.is_empty() {
                return Ok(longest);
            }
            let started = Instant::now();
            let (status, response) = connection.exchange(&request).await?;
            longest = longest.max(started.elapsed());
            let response = String::from_utf8_lossy(&response);
            ensure!(status == 200 || status == 204, "status {status}: {response}");
        }
    }
}

/// Sends all points, a share on each connection; returns the longest time of an acknowledgement; over telnet, the
/// longest time that lines were not read.
pub(crate) async fn send(server: SocketAddr, shares: Vec<Share>, end: End) -> anyhow::Result<Duration> {
    let mut connections = JoinSet::new();
    for share in shares {
        match share.front_end {
            FrontEnd::Telnet => connections.spawn(share.send_lines(server, end)),
            FrontEnd::Http => connections.spawn(share.send_requests(server)),
        };
    }
    longest(connections).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::CONNECTIONS;

    fn load(front_end: FrontEnd) -> Load {
        Load {
            hosts: 7,
            steps: 30,
            start_seconds: 1_767_225_600,
            front_end,
            order: Order::Time,
            connections: CONNECTIONS,
        }
    }

    #[test]
    fn shares_have_all_points_as_lines() {
        let mut lines = Vec::new();
        for mut share in load(FrontEnd::Telnet).shares() {
            loop {
                let mut text = Vec::new();
                share.next_lines(&mut text);
                if text.is_empty() {
                    break;
                }
                lines.extend(String::from_utf8(text).unwrap().lines().map(str::to_owned));
            }
        }
        assert_eq!(lines.len() as u64, load(FrontEnd::Telnet).points());
        let first = lines[0].split_once(" 1767225600 ").unwrap();
        assert_eq!(first.0, "put bench.metric00");
        assert!(
            first.1.ends_with(" host=host00000 dc=dc0 rack=rack00"),
            "{first:?}"
        );
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len() as u64, load(FrontEnd::Telnet).points());
    }

    #[test]
    fn requests_are_json() {
        let mut share = load(FrontEnd::Http).shares().remove(0);
        let (mut body, mut request) = (Vec::new(), Vec::new());
        share.next_request(&mut body, &mut request);
        let points: Vec<serde_json::Value> = serde_json::from_slice(&body).unwrap();
        assert_eq!(points.len(), 500);
        assert_eq!(points[0]["tags"]["rack"], "rack00");
        assert!(request.ends_with(&body));
    }
}
