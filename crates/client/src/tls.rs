//! TLS of connections.
//!
//! tonic's own TLS fixes certificates for the life of a channel; [`Connector`] reads files again for each connection, so
//! that certificates are renewed without a restart of the client.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use oxtsdb_tls::{Connector, Credentials, Pem, ServerName, TlsError, TlsStream, server_name};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Error;

/// How connections to `https://` endpoints are secured.
///
/// Without further options the server's certificate is verified against the roots of the operating system. Files are read
/// when the client is built and again for each new connection. A file that cannot be used later is logged, and what was
/// read before stays in use.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    credentials: Credentials,
    domain: Option<String>,
}

impl TlsOptions {
    /// Verifies the server's certificate against these PEM certificates, in place of the system's roots.
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.credentials.ca = Some(Pem::Bytes(pem.into()));
        self
    }

    /// As [`TlsOptions::ca_certificates`], from a file.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.credentials.ca = Some(Pem::File(path.into()));
        self
    }

    /// Authenticates this client by a PEM certificate chain and its private key.
    #[must_use]
    pub fn client_certificate(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.credentials.identity = Some((Pem::Bytes(chain_pem.into()), Pem::Bytes(key_pem.into())));
        self
    }

    /// As [`TlsOptions::client_certificate`], from files.
    #[must_use]
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.credentials.identity = Some((Pem::File(chain.into()), Pem::File(key.into())));
        self
    }

    /// The name that the server's certificate has to be for, in place of the host of the URL.
    #[must_use]
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }
}

/// The protocol that clients and servers negotiate (ALPN).
const HTTP2: &[u8] = b"h2";

/// Performs the handshakes of connections to one host.
#[derive(Debug)]
pub(crate) struct TlsConnector {
    connector: Arc<Connector>,
    name: ServerName<'static>,
    /// Why the server ended the last session, if it did by an alert: rejected certificates of clients.
    alert: Mutex<Option<String>>,
}

impl TlsConnector {
    /// A connector for `host`, as the URL writes it.
    ///
    /// # Errors
    ///
    /// A file, a certificate or the key cannot be used.
    pub(crate) fn new(options: TlsOptions, host: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::invalid(format!("TLS: {reason}"));
        let name = server_name(options.domain.as_deref().unwrap_or(host)).map_err(invalid)?;
        let connector = Connector::new(options.credentials, &[HTTP2]).map_err(invalid)?;
        Ok(Self {
            connector: Arc::new(connector),
            name,
            alert: Mutex::default(),
        })
    }

    /// Performs the handshake on a new connection.
    ///
    /// # Errors
    ///
    /// Why there is no session, in rustls' words.
    pub(crate) async fn connect(self: Arc<Self>, stream: TcpStream) -> io::Result<Session> {
        *self.alert.lock() = None;
        let stream = Arc::clone(&self.connector)
            .connect(self.name.clone(), stream)
            .await?;
        if stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            let message = "the server does not negotiate HTTP/2 (ALPN h2), is this a gRPC port?";
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(Session {
            stream,
            connector: self,
        })
    }

    /// Why the server ended the last session, if it did by an alert.
    pub(crate) fn alert(&self) -> Option<String> {
        self.alert.lock().clone()
    }
}

/// A connection after its handshake.
///
/// With TLS 1.3 a server rejects the certificate of a client after the handshake. The alert arrives when the request
/// has been sent, and hyper reports that the connection is closed; so it is noted here.
#[derive(Debug)]
pub(crate) struct Session {
    stream: TlsStream<TcpStream>,
    connector: Arc<TlsConnector>,
}

impl AsyncRead for Session {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read
            && error.get_ref().is_some_and(|cause| cause.is::<TlsError>())
        {
            *self.connector.alert.lock() = Some(error.to_string());
        }
        read
    }
}

impl AsyncWrite for Session {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
