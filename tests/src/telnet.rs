//! A telnet client.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;

/// A connection with OpenTSDB's line protocol.
#[derive(Debug)]
pub struct Telnet {
    stream: BufReader<TcpStream>,
}

impl Telnet {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If the server does not accept.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    ///
    /// If the connection is closed.
    pub async fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.stream.get_mut().write_all(bytes).await?;
        Ok(())
    }

    /// Returns the next line of the server, without its line end.
    ///
    /// # Errors
    ///
    /// If none comes, or the connection ends.
    pub async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        let count = timeout(PATIENCE, read)
            .await
            .context("the server sends no line")??;
        ensure!(count > 0, "the server closed the connection");
        Ok(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Shuts down the sending side and reads until the server closes.
    ///
    /// # Errors
    ///
    /// If the server does not close.
    pub async fn finish(mut self) -> anyhow::Result<String> {
        self.stream.get_mut().shutdown().await?;
        self.rest().await
    }

    /// Reads until the server closes.
    ///
    /// # Errors
    ///
    /// If it does not close.
    pub async fn rest(mut self) -> anyhow::Result<String> {
        let mut bytes = Vec::new();
        let read = self.stream.read_to_end(&mut bytes);
        timeout(PATIENCE, read)
            .await
            .context("the server does not close")??;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
