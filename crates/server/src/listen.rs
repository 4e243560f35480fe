//! Sockets.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that the kernel accepts before we do.
const BACKLOG: u32 = 1024;

/// An address that is ours and where nothing listens yet: clients are refused until the program can answer
/// them, so that a probe of the port says whether it can.
#[derive(Debug)]
pub struct BoundAddress {
    socket: TcpSocket,
    address: SocketAddr,
}

/// Takes an address, so that one that cannot be had ends the start early; port 0 takes a free one.
///
/// # Errors
///
/// With the address in the message, if it cannot be had.
pub fn bind(address: SocketAddr) -> anyhow::Result<BoundAddress> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of a process before us may linger.
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
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to listen.
    ///
    /// # Errors
    ///
    /// With the address in the message, if another process has begun to listen there.
    pub fn listen(self) -> anyhow::Result<TcpListener> {
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
    async fn clients_are_refused_until_it_listens() {
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
