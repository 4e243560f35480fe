//! TLS of connections, by rustls with ring.

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::Error;

/// How connections to `https://` endpoints are secured.
///
/// Without further options the server's certificate is verified against the roots of the operating system.
#[derive(Clone, Debug, Default)]
pub struct TlsOptions {
    ca_pem: Option<Vec<u8>>,
    identity_pem: Option<(Vec<u8>, Vec<u8>)>,
    domain: Option<String>,
}

impl TlsOptions {
    /// Verifies the server's certificate against these PEM certificates, in place of the system's roots.
    #[must_use]
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca_pem = Some(pem.into());
        self
    }

    /// Authenticates this client by a PEM certificate chain and its private key.
    #[must_use]
    pub fn client_certificate(mut self, chain_pem: impl Into<Vec<u8>>, key_pem: impl Into<Vec<u8>>) -> Self {
        self.identity_pem = Some((chain_pem.into(), key_pem.into()));
        self
    }

    /// The name that the server's certificate has to be for, in place of the host of the URL.
    #[must_use]
    pub fn domain_name(mut self, name: impl Into<String>) -> Self {
        self.domain = Some(name.into());
        self
    }

    /// An endpoint with these options.
    ///
    /// # Errors
    ///
    /// If a certificate or the key cannot be decoded.
    pub(crate) fn apply(&self, endpoint: Endpoint) -> Result<Endpoint, Error> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca_pem {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        };
        if let Some((chain, key)) = &self.identity_pem {
            config = config.identity(Identity::from_pem(chain, key));
        }
        if let Some(name) = &self.domain {
            config = config.domain_name(name);
        }
        endpoint
            .tls_config(config)
            .map_err(|error| Error::invalid(format!("TLS options are not valid: {error:?}")))
    }
}
