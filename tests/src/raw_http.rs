//! HTTP/1.1 over a socket that the caller controls: when bytes are sent, and when they are read.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// A connection.
#[derive(Debug)]
pub struct RawHttp {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// A response with its headers.
#[derive(Clone)]
pub struct RawResponse {
    /// HTTP status, such as 204.
    pub status: u16,
    /// The head in lower case.
    head: String,
    /// The body, without chunk headers.
    pub body: Vec<u8>,
}

impl fmt::Debug for RawResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        let beginning: String = text.chars().take(500).collect();
        write!(f, "{} with {} bytes: `{beginning}`", self.status, text.len())
    }
}

impl RawResponse {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// With the status and the body, if it is not JSON.
    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("{} with `{}`", self.status, self.text()))
    }
}

impl RawHttp {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If the server does not accept.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::connect_from(Ipv4Addr::LOCALHOST, address).await
    }

    /// Connects from another loopback address, so that the server sees another client.
    ///
    /// # Errors
    ///
    /// As [`RawHttp::connect`].
    pub async fn connect_from(client: Ipv4Addr, address: SocketAddr) -> anyhow::Result<Self> {
        let stream = socket_from(client)?.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Connects with a receive buffer of a few kilobytes, so that the kernel buffers little.
    ///
    /// # Errors
    ///
    /// As [`RawHttp::connect`].
    pub async fn connect_slow_reader(address: SocketAddr) -> anyhow::Result<Self> {
        let socket = socket_from(Ipv4Addr::LOCALHOST)?;
        socket.set_recv_buffer_size(4096)?;
        Ok(Self {
            stream: socket.connect(address).await?,
            buffer: Vec::new(),
        })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// If the server has closed the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(bytes).await?;
        Ok(())
    }

    /// Sends a GET request; the response stays unread.
    ///
    /// # Errors
    ///
    /// As [`RawHttp::send`].
    pub async fn send_get(&mut self, path: &str) -> anyhow::Result<()> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes())
            .await
    }

    /// Sends a POST request with JSON; the response stays unread.
    ///
    /// # Errors
    ///
    /// As [`RawHttp::send`].
    pub async fn send_post(&mut self, path: &str, headers: &str, body: &[u8]) -> anyhow::Result<()> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        self.send(head.as_bytes()).await?;
        self.send(body).await
    }

    /// Sends a GET request and reads the response.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<RawResponse> {
        self.send_get(path).await?;
        self.answer().await
    }

    /// Sends JSON in a POST request and reads the response.
    ///
    /// # Errors
    ///
    /// If there is no response.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<RawResponse> {
        self.send_post(path, "", body).await?;
        self.answer().await
    }

    /// Reads one byte, if the server has not closed the connection.
    ///
    /// # Errors
    ///
    /// If the connection was reset.
    pub async fn read_byte(&mut self) -> anyhow::Result<Option<u8>> {
        let mut byte = [0];
        let count = self.stream.read(&mut byte).await?;
        Ok(byte.first().copied().filter(|_| count > 0))
    }

    /// Reads a response.
    ///
    /// # Errors
    ///
    /// If the connection ends before the response does.
    pub async fn answer(&mut self) -> anyhow::Result<RawResponse> {
        self.answer_keeping(usize::MAX).await
    }

    /// Reads a whole response, and keeps at most this many bytes of its body.
    ///
    /// # Errors
    ///
    /// As [`RawHttp::answer`].
    pub async fn answer_keeping(&mut self, most: usize) -> anyhow::Result<RawResponse> {
        let end = self.find(b"\r\n\r\n").await?;
        let head = String::from_utf8_lossy(&self.take(end + 4).await?).to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let mut answer = RawResponse {
            status,
            head,
            body: Vec::new(),
        };
        if answer
            .header("transfer-encoding")
            .is_some_and(|coding| coding == "chunked")
        {
            loop {
                let end = self.find(b"\r\n").await?;
                let line = self.take(end + 2).await?;
                let length = usize::from_str_radix(std::str::from_utf8(&line)?.trim(), 16)?;
                let kept = length.min(most.saturating_sub(answer.body.len()));
                answer.body.extend_from_slice(&self.take(length).await?[..kept]);
                self.take(2).await?;
                if length == 0 {
                    break;
                }
            }
        } else {
            let length = answer.header("content-length").map_or(Ok(0), str::parse)?;
            answer.body = self.take(length).await?;
            answer.body.truncate(most);
        }
        Ok(answer)
    }

    /// Returns the position of some bytes in the received data.
    async fn find(&mut self, bytes: &[u8]) -> anyhow::Result<usize> {
        let mut searched = 0;
        loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(at) = rest.windows(bytes.len()).position(|window| window == bytes) {
                return Ok(searched + at);
            }
            searched = (self.buffer.len() + 1).saturating_sub(bytes.len());
            self.receive().await?;
        }
    }

    async fn take(&mut self, length: usize) -> anyhow::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.receive().await?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    async fn receive(&mut self) -> anyhow::Result<()> {
        self.buffer.reserve(64 << 10);
        let count = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(
            count > 0,
            "the connection was closed without a (whole) response after `{}`",
            String::from_utf8_lossy(self.buffer.get(..200).unwrap_or(&self.buffer))
        );
        Ok(())
    }
}

/// A socket of a client with this loopback address.
pub(crate) fn socket_from(client: Ipv4Addr) -> anyhow::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    if client != Ipv4Addr::LOCALHOST {
        socket.bind(SocketAddr::from((client, 0)))?;
    }
    Ok(socket)
}
