//! One request with any method, headers and body, on a connection of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::record::Request;

/// Time for a response.
const PATIENCE: Duration = Duration::from_secs(60);
/// A line of telnet has been responded to when nothing more arrives for this time.
const QUIET: Duration = Duration::from_secs(1);

/// The response of the server.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    /// By their names in small letters.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

/// Sends a request.
pub(super) async fn send(address: SocketAddr, request: &Request) -> anyhow::Result<Received> {
    timeout(PATIENCE, send_now(address, request))
        .await
        .context("no response")?
}

async fn send_now(address: SocketAddr, request: &Request) -> anyhow::Result<Received> {
    let body = match (&request.body, &request.text) {
        (Some(json), _) => Some(serde_json::to_string(json)?),
        (None, text) => text.clone(),
    };
    let mut message = http::Request::builder()
        .method(request.method.as_str())
        .uri(request.path.as_str())
        .header("Host", address.to_string());
    if body.is_some() {
        message = message.header("Content-Type", "application/json");
    }
    for (name, value) in &request.headers {
        message = message.header(name, value);
    }
    let message = message.body(Full::new(Bytes::from(body.unwrap_or_default())))?;
    let stream = TokioIo::new(TcpStream::connect(address).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let connection = tokio::spawn(connection);
    let response = sender.send_request(message).await?;
    let (head, body) = response.into_parts();
    let body = body.collect().await?.to_bytes();
    connection.abort();
    let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (
            name.as_str().to_owned(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    };
    Ok(Received {
        status: head.status.as_u16(),
        headers: head.headers.iter().map(header).collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// Sends a line of telnet, and returns what arrives: `lines` lines at least, or less if the server is quiet.
pub(super) async fn telnet(address: SocketAddr, line: &str, lines: usize) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    while received.iter().filter(|byte| **byte == b'\n').count() < lines {
        match timeout(QUIET, stream.read(&mut buffer)).await {
            Ok(Ok(count @ 1..)) => received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            Ok(Ok(0) | Err(_)) | Err(_) => break,
        }
    }
    Ok(String::from_utf8_lossy(&received).into_owned())
}
