//! Thousands of connections that send nothing.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

use crate::skip;

/// Idle connections.
#[derive(Debug)]
pub struct Crowd(Vec<TcpStream>);

impl Crowd {
    /// Opens `count` connections. The server may close some of them immediately.
    ///
    /// # Errors
    ///
    /// If the server does not accept one.
    pub async fn connect(address: SocketAddr, count: usize) -> anyhow::Result<Self> {
        let mut streams = Vec::with_capacity(count);
        for number in 0..count {
            let stream = TcpStream::connect(address).await;
            streams.push(stream.with_context(|| format!("connection {number} of {count}"))?);
        }
        Ok(Self(streams))
    }

    /// Returns the number of connections that are still open.
    pub fn open(&self) -> usize {
        self.0.iter().filter(|stream| is_open(stream)).count()
    }
}

fn is_open(stream: &TcpStream) -> bool {
    let mut buffer = [0; 1024];
    loop {
        match stream.try_read(&mut buffer) {
            Ok(0) => return false,
            // HTTP/2 sends its settings.
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Raises this process's limit of descriptors. Returns false, with a note, if the hard limit is too low.
///
/// # Errors
///
/// If the system rejects a limit within the hard one.
pub fn raise_descriptor_limit(needed: u64) -> anyhow::Result<bool> {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        skip(&format!(
            "{needed} descriptors are needed, the hard limit is {limit:?}"
        ))?;
        return Ok(false);
    }
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit {
            current: Some(needed),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).context("raise the limit of descriptors")?;
    }
    Ok(true)
}
