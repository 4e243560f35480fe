//! TLS of connections, by rustls with ring.
//!
//! tonic's own TLS fixes certificates for the life of a channel. Here each new connection reads the files again, so that
//! certificates are renewed without a restart of the client.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::Error;

/// How connections to `https://` endpoints are secured.
///
/// Without further options the server's certificate is verified against the roots of the operating system. Files are read
/// when the client is built and again for each new connection. A file that cannot be used later is logged, and what was
/// read before stays in use.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    ca: Option<Pem>,
    identity: Option<Identity>,
    domain: Option<String>,
}

/// Where PEM text comes from.
#[derive(Clone)]
enum Pem {
    Bytes(Vec<u8>),
    File(PathBuf),
}

/// A certificate chain and its key.
#[derive(Clone, Debug)]
struct Identity {
    chain: Pem,
    key: Pem,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            // It may be a key.
            Self::Bytes(_) => f.write_str("PEM"),
            Self::File(path) => path.fmt(f),
        }
    }
}

impl TlsOptions {
    /// Verifies the server's certificate against these PEM certificates, in place of the system's roots.
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(Pem::Bytes(pem.into()));
        self
    }

    /// As [`TlsOptions::ca_certificates`], from a file.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca = Some(Pem::File(path.into()));
        self
    }

    /// Authenticates this client by a PEM certificate chain and its private key.
    #[must_use]
    pub fn client_certificate(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity {
            chain: Pem::Bytes(chain_pem.into()),
            key: Pem::Bytes(key_pem.into()),
        });
        self
    }

    /// As [`TlsOptions::client_certificate`], from files.
    #[must_use]
    pub fn client_certificate_files(mut self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some(Identity {
            chain: Pem::File(chain.into()),
            key: Pem::File(key.into()),
        });
        self
    }

    /// The name that the server's certificate has to be for, in place of the host of the URL.
    #[must_use]
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    fn read(&self) -> Result<Contents, String> {
        Ok(Contents {
            ca: self.ca.as_ref().map(Pem::read).transpose()?,
            identity: match &self.identity {
                Some(Identity { chain, key }) => Some((chain.read()?, key.read()?)),
                None => None,
            },
        })
    }

    fn has_files(&self) -> bool {
        let identity = self
            .identity
            .iter()
            .flat_map(|identity| [&identity.chain, &identity.key]);
        self.ca
            .iter()
            .chain(identity)
            .any(|pem| matches!(pem, Pem::File(_)))
    }

    fn configure(&self, contents: &Contents) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        match (&self.ca, &contents.ca) {
            (Some(source), Some(pem)) => {
                for certificate in certificates(pem).map_err(|reason| source.error(reason))? {
                    roots.add(certificate).map_err(|error| source.error(error))?;
                }
            }
            _ => {
                let system = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(system.certs);
                if roots.is_empty() {
                    return Err(
                        "the operating system has no root certificates, name those of the server".to_owned(),
                    );
                }
            }
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let mut config = match (&self.identity, &contents.identity) {
            (Some(Identity { chain, key }), Some((chain_pem, key_pem))) => {
                let certificates = certificates(chain_pem).map_err(|reason| chain.error(reason))?;
                // The error of the parser is not shown: it may quote the file.
                let private = PrivateKeyDer::from_pem_slice(key_pem);
                let private = private.map_err(|_| key.error("has no private key in PEM"))?;
                let config = builder.with_client_auth_cert(certificates, private);
                config.map_err(|error| chain.error(format_args!("and its key: {error}")))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![HTTP2.to_vec()];
        Ok(config)
    }
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::File(path) => std::fs::read(path).map_err(|error| self.error(error)),
        }
    }

    fn error(&self, reason: impl std::fmt::Display) -> String {
        match self {
            Self::Bytes(_) => format!("PEM {reason}"),
            Self::File(path) => format!("{} {reason}", path.display()),
        }
    }
}

/// The certificates of PEM text, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("has no certificate in PEM".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The protocol that clients and servers negotiate (ALPN).
const HTTP2: &[u8] = b"h2";

#[derive(PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Performs the handshakes of connections to one host.
#[derive(Debug)]
pub(crate) struct TlsConnector {
    options: TlsOptions,
    name: ServerName<'static>,
    loaded: Mutex<Loaded>,
    /// Why the server ended the last session, if it did by an alert: rejected certificates of clients.
    alert: Mutex<Option<String>>,
}

struct Loaded {
    contents: Contents,
    config: Arc<ClientConfig>,
    /// Why the files could not be used at the last attempt; logged once.
    failure: Option<String>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Loaded")
    }
}

impl TlsConnector {
    /// A connector for `host`, as the URL writes it.
    ///
    /// # Errors
    ///
    /// A file, a certificate or the key cannot be used.
    pub(crate) fn new(options: TlsOptions, host: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::invalid(format!("TLS: {reason}"));
        let name = options.domain.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        let server = ServerName::try_from(name.to_owned())
            .map_err(|_| invalid(format!("`{name}` is no name that certificates are issued for")))?;
        let contents = options.read().map_err(invalid)?;
        let config = Arc::new(options.configure(&contents).map_err(invalid)?);
        let loaded = Loaded {
            contents,
            config,
            failure: None,
        };
        Ok(Self {
            options,
            name: server,
            loaded: Mutex::new(loaded),
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
        let config = if self.options.has_files() {
            let connector = Arc::clone(&self);
            tokio::task::spawn_blocking(move || connector.reload()).await?
        } else {
            Arc::clone(&self.loaded.lock().config)
        };
        let connector = tokio_rustls::TlsConnector::from(config);
        let stream = connector.connect(self.name.clone(), stream).await?;
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

    /// The configuration of the files as they are now.
    fn reload(&self) -> Arc<ClientConfig> {
        let read = self.options.read();
        let mut loaded = self.loaded.lock();
        let configured = match read {
            Ok(contents) if contents == loaded.contents => Ok(None),
            Ok(contents) => {
                let config = self.options.configure(&contents);
                config.map(|config| Some((contents, Arc::new(config))))
            }
            Err(reason) => Err(reason),
        };
        match configured {
            Ok(None) => loaded.failure = None,
            Ok(Some((contents, config))) => {
                tracing::info!("TLS files of the client were read again");
                *loaded = Loaded {
                    contents,
                    config,
                    failure: None,
                };
            }
            Err(reason) if loaded.failure.as_ref() == Some(&reason) => {}
            Err(reason) => {
                tracing::warn!(
                    error = reason,
                    "TLS files of the client cannot be used; those that were read before stay in use"
                );
                loaded.failure = Some(reason);
            }
        }
        Arc::clone(&loaded.config)
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
            && error.get_ref().is_some_and(|cause| cause.is::<rustls::Error>())
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
