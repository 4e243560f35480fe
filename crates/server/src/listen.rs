//! Sockets.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::TcpListener;

/// Listens on an address; port 0 takes a free one.
///
/// # Errors
///
/// With the address in the message, if it cannot be had.
pub async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("listen on {address}"))
}
