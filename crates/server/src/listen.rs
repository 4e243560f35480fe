//! Ports that are bound first and listen later.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 1024;

/// An address that is bound and does not listen yet. Clients get "connection refused" until the program can
/// serve them, so that a probe of the port reports whether it is ready.
#[derive(Debug)]
pub(crate) struct BoundAddress {
    socket: TcpSocket,
    address: SocketAddr,
}

/// Binds an address; port 0 selects a free port.
///
/// # Errors
///
/// The address is in use or not local; the message names it.
pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<BoundAddress> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of an earlier process may be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let address = socket.local_addr()?;
        Ok(BoundAddress { socket, address })
    };
    bound()
        .map_err(|error: std::io::Error| anyhow::Error::new(error))
        .with_context(|| format!("listen on {address}"))
}

impl BoundAddress {
    /// The address, with its port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// Another process listens there; the message names the address.
    pub(crate) fn listen(self) -> anyhow::Result<TcpListener> {
        let address = self.address;
        self.socket
            .listen(BACKLOG)
            .with_context(|| format!("listen on {address}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn refuses_connections_until_it_listens() {
        let bound = bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = bound.address();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let listener = bound.listen().unwrap();
        TcpStream::connect(address).await.unwrap();
        let taken = bind(address).unwrap_err();
        assert!(
            format!("{taken:#}").starts_with(&format!("listen on {address}: ")),
            "{taken:#}"
        );
        drop(listener);
    }
}
