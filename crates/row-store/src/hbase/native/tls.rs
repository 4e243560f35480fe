//! TLS with a server, and the words for what fails.
//!
//! HBase 2.6 and later has TLS from the first byte (`hbase.server.netty.tls.enabled`); the protocol within is the same. The
//! server's certificate is verified against the authorities of [`Credentials::ca`] and the host of its location. Messages
//! name flags, which are the same in all programs.

use std::io;
use std::sync::Arc;

use oxtsdb_tls::{Connector, Credentials, Pem, TlsError, TlsStream, server_name};
use rustls::CertificateError;
use tokio::net::TcpStream;

use super::address;
use crate::hbase::TlsPeer;

/// Performs the handshake with `server`, which is `host:port`.
///
/// # Errors
///
/// The cause, and the setting that it depends on.
pub(super) async fn handshake(
    connector: &Arc<Connector>,
    server: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    let handshake = Arc::clone(connector).connect(server_name(address::host(server))?, stream);
    handshake.await.map_err(|error| {
        explain(&error, connector.credentials()).unwrap_or_else(|| {
            format!(
                "TLS (--hbase-tls): the connection ended during the handshake, as with a server without TLS: {error}"
            )
        })
    })
}

/// The version and the certificate of a session.
pub(super) fn peer(server: &str, stream: &TlsStream<TcpStream>) -> TlsPeer {
    let session = &stream.get_ref().1;
    let version = session.protocol_version();
    let version = version.and_then(|version| version.as_str()).unwrap_or_default();
    let certificates = session.peer_certificates().unwrap_or_default();
    TlsPeer {
        address: server.to_owned(),
        version: version.replace("TLSv1_", "TLS 1."),
        certificate: certificates
            .first()
            .map(|certificate| certificate.to_vec())
            .unwrap_or_default(),
    }
}

/// The reason of a failure of TLS; `None`: the connection itself failed.
pub(super) fn explain(error: &io::Error, credentials: &Credentials) -> Option<String> {
    let cause = error.get_ref()?.downcast_ref::<TlsError>()?;
    let advice = match (cause, &credentials.identity) {
        (TlsError::InvalidCertificate(CertificateError::UnknownIssuer), _) => match &credentials.ca {
            Some(Pem::File(path)) => format!("; its authority is not in {} (--hbase-tls-ca)", path.display()),
            Some(Pem::Bytes(_)) | None => "; its authority is not trusted".to_owned(),
        },
        (TlsError::InvalidMessage(_), _) => ": the server responds without TLS".to_owned(),
        (TlsError::AlertReceived(_), None) => {
            "; the server may require a certificate (--hbase-tls-certificate)".to_owned()
        }
        (TlsError::AlertReceived(_), Some(_)) => {
            "; the server may reject the certificate (--hbase-tls-certificate)".to_owned()
        }
        _ => String::new(),
    };
    Some(format!("TLS (--hbase-tls): {cause}{advice}"))
}

/// Whether the first bytes of a response are an alert of TLS.
pub(super) const fn is_alert(start: u32) -> bool {
    start >> 16 == 0x1503
}
