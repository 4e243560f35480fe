//! HTTP `POST /api/put`: a JSON array of points, one request at a time on each connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::workload::{Batch, Order, Value, Workload};

/// Requests with their heads, ready to be sent.
#[derive(Debug)]
pub(crate) struct Requests(Vec<Vec<Vec<u8>>>);

/// Encodes the workload, a batch in a request.
pub(crate) fn encode(workload: &Workload, order: Order) -> Requests {
    let batches = workload.all_batches(order);
    Requests(super::deal(batches.iter().map(|batch| request(workload, batch))))
}

fn request(workload: &Workload, batch: &Batch) -> Vec<u8> {
    let mut body = String::from("[");
    for (step, number) in batch.points() {
        if body.len() > 1 {
            body.push(',');
        }
        let series = &workload.series[number];
        body.push_str(&format!(
            r#"{{"metric":"{}","timestamp":{}"#,
            series.metric,
            workload.shape.seconds(step)
        ));
        body.push_str(r#","value":"#);
        push_value(&mut body, workload.value(step, number));
        body.push_str(r#","tags":{"#);
        for (position, (key, value)) in series.tags.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            body.push_str(&format!(r#"{comma}"{key}":"{value}""#));
        }
        body.push_str("}}");
    }
    body.push(']');
    let head = "POST /api/put HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: ";
    format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A value as text, for JSON and telnet.
pub(crate) fn push_value(text: &mut String, value: Value) {
    match value {
        Value::Int(value) => text.push_str(itoa::Buffer::new().format(value)),
        Value::Double(value) => text.push_str(&format!("{value:?}")),
    }
}

/// Sends all requests; returns after the last response, with the longest time that one took.
pub(crate) async fn send(server: SocketAddr, requests: &Requests) -> anyhow::Result<Duration> {
    let mut connections = JoinSet::new();
    for requests in requests.0.clone() {
        connections.spawn(async move {
            let mut connection = Connection::open(server).await?;
            let mut longest = Duration::ZERO;
            for request in requests {
                let started = Instant::now();
                let (status, body) = connection.exchange(&request).await?;
                longest = longest.max(started.elapsed());
                ensure!(
                    status == 204,
                    "status {status}: {}",
                    String::from_utf8_lossy(&body)
                );
            }
            Ok(longest)
        });
    }
    super::longest(connections).await
}

/// A persistent connection with as little of HTTP/1.1 as the servers need, to keep the generator cheap.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Connects.
    pub(crate) async fn open(server: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// `GET` of a path with its query.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes())
            .await
    }

    /// Sends a request and returns the status and body of the response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<(u16, Vec<u8>)> {
        self.stream.write_all(request).await?;
        let head_end = loop {
            if let Some(end) = self.buffer.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("a status")?.parse()?;
        self.buffer.drain(..head_end);
        let body = if head.contains("transfer-encoding: chunked") {
            self.chunked_body().await?
        } else {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
            let length = length.map_or(Ok(0), |length| length.trim().parse())?;
            self.take(length).await?
        };
        Ok((status, body))
    }

    async fn chunked_body(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line_end = loop {
                if let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") {
                    break end;
                }
                self.read_more().await?;
            };
            let line = self.take(line_end + 2).await?;
            let length = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
            body.extend(self.take(length).await?);
            self.take(2).await?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    async fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.read_more().await?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the server closed the connection");
        Ok(())
    }
}
