//! Ports that are bound first and listen later.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait in the kernel to be accepted.
const BACKLOG: u32 = 1024;

/// An address that is bound and does not listen yet. Clients get "connection refused" until the program can
/// serve them, so that a probe of the port reports whether it is ready.
#[derive(Debug)]
pub(crate) struct BoundAddress {
    socket: TcpSocket,
    flag: &'static str,
    address: SocketAddr,
}

/// An address that cannot be used: `--http-listen 127.0.0.1:4242: the port is in use`, and the setting that helps.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.reason(), self.advice())]
pub(crate) struct ListenError {
    flag: &'static str,
    address: SocketAddr,
    error: Error,
}

impl ListenError {
    /// Whether another socket has the address.
    pub(crate) fn is_in_use(&self) -> bool {
        self.error.kind() == ErrorKind::AddrInUse
    }

    /// The setting and the reason.
    fn reason(&self) -> String {
        let Self { flag, address, error } = self;
        match error.kind() {
            ErrorKind::AddrInUse => format!("{flag} {address}: the port is in use"),
            _ => format!("{flag} {address}: {error}"),
        }
    }

    /// The values that help.
    fn advice(&self) -> &'static str {
        match (self.error.kind(), self.flag) {
            (ErrorKind::AddrInUse, "--admin-listen") => {
                "if another server runs here, set another port, 0 for a free one, or `none` for no listener"
            }
            (ErrorKind::AddrInUse, _) => "if another server runs here, set another port, or 0 for a free one",
            (ErrorKind::PermissionDenied, _) => "set a port above 1023, or grant CAP_NET_BIND_SERVICE",
            (ErrorKind::AddrNotAvailable, _) => "set an address of this machine",
            _ => "set another address",
        }
    }
}

/// The error of a start with addresses that cannot be used. Names all that are in use, so that they can be changed
/// at once; other reasons go first.
pub(crate) fn start_error(errors: &[ListenError]) -> anyhow::Error {
    let (in_use, others): (Vec<_>, Vec<_>) = errors.iter().partition(|error| error.is_in_use());
    let same_advice = if others.is_empty() { in_use } else { others };
    let reasons: Vec<String> = same_advice.iter().map(|error| error.reason()).collect();
    let advice = same_advice
        .first()
        .map(|error| error.advice())
        .unwrap_or_default();
    anyhow::anyhow!("{}; {advice}", reasons.join(", "))
}

/// Binds an address; port 0 selects a free port.
///
/// # Errors
///
/// The address is in use or not local.
pub(crate) fn bind(flag: &'static str, address: SocketAddr) -> Result<BoundAddress, ListenError> {
    let bound = || {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        // Connections of an earlier process may be in TIME_WAIT.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let address = socket.local_addr()?;
        Ok(BoundAddress {
            socket,
            flag,
            address,
        })
    };
    bound().map_err(|error| ListenError { flag, address, error })
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
    /// Another process listens there.
    pub(crate) fn listen(self) -> Result<TcpListener, ListenError> {
        let Self {
            socket,
            flag,
            address,
        } = self;
        let listener = socket.listen(BACKLOG);
        listener.map_err(|error| ListenError { flag, address, error })
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[tokio::test]
    async fn refuses_connections_until_it_listens() {
        let bound = bind("--listen", ANY).unwrap();
        let address = bound.address();
        let refused = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let listener = bound.listen().unwrap();
        TcpStream::connect(address).await.unwrap();
        let taken = bind("--listen", address).unwrap_err();
        assert!(taken.is_in_use());
        assert_eq!(
            taken.to_string(),
            format!(
                "--listen {address}: the port is in use; if another server runs here, set another port, or 0 for a \
                 free one"
            )
        );
        drop(listener);
    }

    #[tokio::test]
    async fn a_start_names_all_ports_in_use() {
        let [one, two] = [(); 2].map(|()| bind("--listen", ANY).unwrap().listen().unwrap());
        let [one, two] = [&one, &two].map(|listener| listener.local_addr().unwrap());
        let errors = [("--one", one), ("--two", two)].map(|(flag, address)| bind(flag, address).unwrap_err());
        assert_eq!(
            start_error(&errors).to_string(),
            format!(
                "--one {one}: the port is in use, --two {two}: the port is in use; if another server runs here, set \
                 another port, or 0 for a free one"
            )
        );
    }

    #[test]
    fn an_address_of_another_machine_is_named() {
        // Of the documentation range.
        let error = bind("--listen", SocketAddr::from(([192, 0, 2, 1], 4242))).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("--listen 192.0.2.1:4242: "), "{error}");
        assert!(error.ends_with("; set an address of this machine"), "{error}");
    }
}
