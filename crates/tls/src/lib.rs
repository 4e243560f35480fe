//! TLS of clients, by rustls with ring, and certificates and keys in PEM.
//!
//! ```text
//!   Pem (bytes or a file) ─► Credentials ─► Connector ─► handshake of each new connection
//!                                             └ reads the files again: certificates are renewed without a restart
//! ```

#[cfg(feature = "testing")]
pub mod testing;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;

pub use rustls::Error as TlsError;
pub use rustls_pki_types::ServerName;
pub use tokio_rustls::client::TlsStream;

/// The source of PEM text.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// The text itself.
    Bytes(Vec<u8>),
    /// A file, which is read again for each connection.
    File(PathBuf),
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

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Certificates of authorities that the server's certificate is verified against. `None`: the roots of the operating
    /// system.
    pub ca: Option<Pem>,
    /// The client's certificate with its chain, and its private key; `None`: the client presents no certificate.
    pub identity: Option<(Pem, Pem)>,
}

impl Credentials {
    fn read(&self) -> Result<Contents, String> {
        Ok(Contents {
            ca: self.ca.as_ref().map(Pem::read).transpose()?,
            identity: match &self.identity {
                Some((chain, key)) => Some((chain.read()?, key.read()?)),
                None => None,
            },
        })
    }

    fn has_files(&self) -> bool {
        let identity = self.identity.iter().flat_map(|(chain, key)| [chain, key]);
        self.ca
            .iter()
            .chain(identity)
            .any(|pem| matches!(pem, Pem::File(_)))
    }

    fn configure(&self, contents: &Contents, alpn: &[Vec<u8>]) -> Result<ClientConfig, String> {
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
            (Some((chain, key)), Some((chain_pem, key_pem))) => {
                let certificates = certificates(chain_pem).map_err(|reason| chain.error(reason))?;
                let private = private_key(key_pem).map_err(|reason| key.error(reason))?;
                let config = builder.with_client_auth_cert(certificates, private);
                config.map_err(|error| chain.error(format_args!("and its key: {error}")))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = alpn.to_vec();
        Ok(config)
    }
}

/// The certificates of PEM text, at least one.
///
/// # Errors
///
/// There is none, or the text is invalid.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match parsed {
        Ok(certificates) if !certificates.is_empty() => Ok(certificates),
        Ok(_) => Err("has no certificate in PEM".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The first private key of PEM text.
///
/// # Errors
///
/// There is none. The error has no part of the text.
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, &'static str> {
    // The error of the parser is not shown: it may quote the key.
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| "has no private key in PEM")
}

/// The name that the certificate of a host has to be for: a DNS name or an IP address, IPv6 with or without brackets.
///
/// # Errors
///
/// No certificate is issued for such a name.
pub fn server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
        .map_err(|_| format!("`{host}` is no name that certificates are issued for"))
}

#[derive(PartialEq, Eq)]
struct Contents {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Performs the handshakes of connections. Files that cannot be used are logged, and their last valid contents stay in use.
#[derive(Debug)]
pub struct Connector {
    credentials: Credentials,
    alpn: Vec<Vec<u8>>,
    loaded: Mutex<Loaded>,
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

impl Connector {
    /// A connector that offers the protocols `alpn`.
    ///
    /// # Errors
    ///
    /// A file, a certificate or the key cannot be used.
    pub fn new(credentials: Credentials, alpn: &[&[u8]]) -> Result<Self, String> {
        let alpn: Vec<Vec<u8>> = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let contents = credentials.read()?;
        let config = Arc::new(credentials.configure(&contents, &alpn)?);
        let loaded = Loaded {
            contents,
            config,
            failure: None,
        };
        Ok(Self {
            credentials,
            alpn,
            loaded: Mutex::new(loaded),
        })
    }

    /// The credentials of each handshake.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Performs the handshake on a new connection.
    ///
    /// # Errors
    ///
    /// Why there is no session, in rustls' words; [`rustls::Error`] is the source unless the connection broke.
    pub async fn connect(
        self: Arc<Self>,
        name: ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let config = if self.credentials.has_files() {
            tokio::task::spawn_blocking(move || self.reload()).await?
        } else {
            Arc::clone(&self.loaded.lock().config)
        };
        tokio_rustls::TlsConnector::from(config)
            .connect(name, stream)
            .await
    }

    /// The configuration of the files as they are now.
    fn reload(&self) -> Arc<ClientConfig> {
        let read = self.credentials.read();
        let mut loaded = self.loaded.lock();
        let configured = match read {
            Ok(contents) if contents == loaded.contents => Ok(None),
            Ok(contents) => {
                let config = self.credentials.configure(&contents, &self.alpn);
                config.map(|config| Some((contents, Arc::new(config))))
            }
            Err(reason) => Err(reason),
        };
        match configured {
            Ok(None) => loaded.failure = None,
            Ok(Some((contents, config))) => {
                tracing::info!(credentials = ?self.credentials, "TLS files of the client were read again");
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
