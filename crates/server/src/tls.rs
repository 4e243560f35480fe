//! TLS of the listeners, by rustls with ring.
//!
//! ```text
//!   files ─► configuration of each protocol ─► handshake of new connections
//!     └ read again when they change, or at SIGHUP: a file that is not valid is logged, and the old configuration stays
//! ```
//!
//! A connection keeps the configuration of its handshake. Handshakes run in the tasks of their connections, which are
//! limited in number and opening time: a client that stalls holds up no other. Sessions are resumed only within a
//! configuration, so that a client of an authority that was removed is verified again.

mod settings;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_access::PeerCertificate;
use oxtsdb_tls::{certificates, private_key};
use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

pub use self::settings::{ClientAuth, MinVersion, TlsSettings};

/// Protocols that clients negotiate (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// HTTP/2, for gRPC.
    Http2,
    /// HTTP/1.1; telnet negotiates nothing.
    Http1,
}

/// The files, and the certificates required of clients.
#[derive(Clone, Debug)]
struct Source {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    client_auth: ClientAuth,
    min_version: MinVersion,
}

/// The contents of the files.
#[derive(Clone, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// TLS of the listeners of a process. Clones share it.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    source: Source,
    configured: RwLock<Configured>,
}

#[derive(Clone)]
struct Configured {
    http1: Arc<ServerConfig>,
    http2: Arc<ServerConfig>,
    /// When a certificate of the chain expires first, in seconds since the epoch.
    not_after: Option<i64>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tls").field(&self.0.source).finish()
    }
}

/// Error of files that are not a configuration. No message contains a part of a key.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error("{setting} {}: {reason}", path.display())]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// The failure, in words.
        reason: String,
    },
    /// All of them.
    #[error("--tls-certificate and --tls-key: {0}")]
    Pair(String),
}

impl Source {
    fn read(&self) -> Result<Files, TlsError> {
        let read = |setting, path: &PathBuf| {
            std::fs::read(path).map_err(|error| TlsError::File {
                setting,
                path: path.clone(),
                reason: error.to_string(),
            })
        };
        Ok(Files {
            certificate: read("--tls-certificate", &self.certificate)?,
            key: read("--tls-key", &self.key)?,
            client_ca: match &self.client_ca {
                Some(path) => Some(read("--tls-client-ca", path)?),
                None => None,
            },
        })
    }

    fn configure(&self, files: &Files) -> Result<Configured, TlsError> {
        let wrong = |setting, path: &PathBuf, reason: String| TlsError::File {
            setting,
            path: path.clone(),
            reason,
        };
        let chain = certificates(&files.certificate)
            .map_err(|reason| wrong("--tls-certificate", &self.certificate, reason))?;
        let key =
            private_key(&files.key).map_err(|reason| wrong("--tls-key", &self.key, reason.to_owned()))?;
        let provider = Arc::new(ring::default_provider());
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            MinVersion::Tls12 => &[&TLS13, &TLS12],
            MinVersion::Tls13 => &[&TLS13],
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| TlsError::Pair(error.to_string()))?;
        let builder = match (&self.client_ca, &files.client_ca) {
            (Some(path), Some(pem)) if self.client_auth != ClientAuth::None => {
                let of_ca = |reason| wrong("--tls-client-ca", path, reason);
                let mut roots = RootCertStore::empty();
                for certificate in certificates(pem).map_err(of_ca)? {
                    roots.add(certificate).map_err(|error| of_ca(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = match self.client_auth {
                    ClientAuth::Required => verifier,
                    ClientAuth::Optional | ClientAuth::None => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|error| of_ca(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            _ => builder.with_no_client_auth(),
        };
        let not_after = chain
            .iter()
            .filter_map(|der| oxtsdb_access::summary(der).ok())
            .map(|certificate| certificate.not_after)
            .min();
        let http1 = builder
            .with_single_cert(chain, key)
            .map_err(|error| TlsError::Pair(error.to_string()))?;
        let mut http2 = http1.clone();
        http2.alpn_protocols = vec![b"h2".to_vec()];
        let mut http1 = http1;
        http1.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Configured {
            http1: Arc::new(http1),
            http2: Arc::new(http2),
            not_after,
        })
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    fn open(source: Source) -> Result<(Self, Files), TlsError> {
        let files = source.read()?;
        let configured = source.configure(&files)?;
        let tls = Self(Arc::new(Inner {
            source,
            configured: RwLock::new(configured),
        }));
        Ok((tls, files))
    }

    /// Reads the files again when they change, looking every `interval` and at SIGHUP. Does not end.
    async fn watch(self, mut files: Files, interval: Duration) {
        let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
        let mut failed = None;
        loop {
            let signalled = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                _ = signalled => failed = None,
            }
            let source = self.0.source.clone();
            let read = tokio::task::spawn_blocking(move || {
                let files = source.read()?;
                let configured = source.configure(&files)?;
                Ok::<_, TlsError>((files, configured))
            });
            match read.await {
                Ok(Ok((new_files, configured))) => {
                    failed = None;
                    if new_files != files {
                        files = new_files;
                        *self.0.configured.write() = configured;
                        info!(certificate = %self.0.source.certificate.display(), "TLS files were read again");
                    }
                }
                Ok(Err(error)) => {
                    // Once for each error: the files are read every few seconds.
                    let message = error.to_string();
                    if failed.as_ref() != Some(&message) {
                        warn!(
                            error = message,
                            "TLS files cannot be used; those that were read before stay in use"
                        );
                        failed = Some(message);
                    }
                }
                Err(error) => warn!(%error, "reading TLS files failed"),
            }
        }
    }

    /// When a certificate of the server's chain expires first, in seconds since the epoch.
    pub(crate) fn not_after(&self) -> Option<i64> {
        self.0.configured.read().not_after
    }

    /// Performs the handshake of a client.
    ///
    /// # Errors
    ///
    /// The reason in rustls' words, and the socket, to which the alert has been written.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        alpn: Alpn,
    ) -> Result<(TlsStream<TcpStream>, Option<PeerCertificate>), (io::Error, TcpStream)> {
        let config = {
            let configured = self.0.configured.read();
            Arc::clone(match alpn {
                Alpn::Http1 => &configured.http1,
                Alpn::Http2 => &configured.http2,
            })
        };
        let stream = TlsAcceptor::from(config).accept(stream).into_fallible().await?;
        let chain = stream.get_ref().1.peer_certificates();
        let presented = chain.and_then(|chain| chain.first());
        let certificate = presented.map(|own| PeerCertificate::from_der(own));
        Ok((stream, certificate))
    }
}
