//! Names of a client certificate: its subject alternative names.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificates that the client of a TLS connection presented, in DER, its own first; in the extensions of the
/// connection's requests. The listener has verified them.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificates(pub std::sync::Arc<[Vec<u8>]>);

/// The most names of a certificate that count.
const MAX_NAMES: usize = 100;

/// The names of a certificate as [`crate::Identity`] has them: URIs first, as meshes identify workloads by them.
pub(crate) fn names(der: &[u8]) -> Result<Vec<Box<str>>, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let Some(extension) = certificate
        .subject_alternative_name()
        .map_err(|error| error.to_string())?
    else {
        return Ok(Vec::new());
    };
    let names = &extension.value.general_names;
    let of = |select: fn(&GeneralName<'_>) -> Option<Box<str>>| names.iter().filter_map(select);
    let uris = of(|name| match name {
        GeneralName::URI(uri) => Some(format!("san:{uri}").into()),
        _ => None,
    });
    let others = of(|name| match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) => Some(format!("san:{name}").into()),
        _ => None,
    });
    Ok(uris.chain(others).take(MAX_NAMES).collect())
}
