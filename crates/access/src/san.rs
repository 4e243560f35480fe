//! Names of a client certificate: its subject alternative names.

use std::sync::Arc;

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificate that the client of a TLS connection presented, which the listener has verified; in the extensions of the
/// connection's requests. Its names are read once, not for each request.
#[derive(Clone, Debug)]
pub struct PeerCertificate(Arc<Result<Vec<Box<str>>, String>>);

impl PeerCertificate {
    /// Reads a certificate in DER.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Self {
        Self(Arc::new(names(der)))
    }

    /// Its names as [`crate::Identity`] has them.
    ///
    /// # Errors
    ///
    /// It is no certificate.
    pub(crate) fn names(&self) -> Result<&[Box<str>], &str> {
        match &*self.0 {
            Ok(names) => Ok(names),
            Err(error) => Err(error),
        }
    }
}

/// The most names of a certificate that count.
const MAX_NAMES: usize = 100;

/// The names of a certificate as [`crate::Identity`] has them: URIs first, as meshes identify workloads by them.
///
/// The three kinds share the prefix `san:`, so that a name counts only in the form of its kind: a URI has a scheme, a DNS
/// name neither `:`, `/` nor `@`, an e-mail address an `@` and neither `:` nor `/`. An authority that vouches for host names
/// only cannot certify the name of a workload as one.
fn names(der: &[u8]) -> Result<Vec<Box<str>>, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let Some(extension) = certificate
        .subject_alternative_name()
        .map_err(|error| error.to_string())?
    else {
        return Ok(Vec::new());
    };
    let names = &extension.value.general_names;
    let of = |select: fn(&GeneralName<'_>) -> Option<Box<str>>| names.iter().filter_map(select);
    Ok(of(uri).chain(of(host_or_mail)).take(MAX_NAMES).collect())
}

fn uri(name: &GeneralName<'_>) -> Option<Box<str>> {
    match name {
        GeneralName::URI(uri) if uri.contains(':') => Some(format!("san:{uri}").into()),
        _ => None,
    }
}

fn host_or_mail(name: &GeneralName<'_>) -> Option<Box<str>> {
    let (name, is_mail) = match name {
        GeneralName::DNSName(name) => (name, false),
        GeneralName::RFC822Name(name) => (name, true),
        _ => return None,
    };
    let has_form = !name.contains([':', '/']) && name.contains('@') == is_mail;
    has_form.then(|| format!("san:{name}").into())
}

/// The parts of a certificate that people know it by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSummary {
    /// The name of its owner, for example `CN=rs1`.
    pub subject: String,
    /// The name of the authority that issued it.
    pub issuer: String,
    /// When it expires, in seconds since the epoch.
    pub not_after: i64,
}

/// The summary of a certificate.
///
/// # Errors
///
/// It is no certificate.
pub fn summary(der: &[u8]) -> Result<CertificateSummary, String> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    Ok(CertificateSummary {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        not_after: certificate.validity().not_after.timestamp(),
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// Of `CN=collector` with a DNS name, a URI, an e-mail address and an IP address, in this order.
    const WITH_NAMES: &str = "MIIB3zCCAYWgAwIBAgIUe2gZY9eP4XNPUKXBkd10k1cDVIYwCgYIKoZIzj0EAwIwFDESMBAGA1UEAwwJY29sbGVjdG9yMB4X\
         DTI2MTEyMzIxMDUyMloXDTM2MTEyMDIxMDUyMlowFDESMBAGA1UEAwwJY29sbGVjdG9yMFkwEwYHKoZIzj0CAQYIKoZIzj0D\
         AQcDQgAEKrWdEf9karq8/CNacEqaBVObB4yn2wWrq8fEfy6mXwjF9ZDxTvc6B03FeVU0zolZT705GFXPwSY+1Vmrwn/28qOB\
         tDCBsTAdBgNVHQ4EFgQUHYaRGBMscpsqUrOAvh/zdgUFT80wHwYDVR0jBBgwFoAUHYaRGBMscpsqUrOAvh/zdgUFT80wDwYD\
         VR0TAQH/BAUwAwEB/zBeBgNVHREEVzBVghVjb2xsZWN0b3IuZXhhbXBsZS5vcmeGJXNwaWZmZTovL3Byb2QvbnMvbWV0cmlj\
         cy9zYS9jb2xsZWN0b3KBD29wc0BleGFtcGxlLm9yZ4cECgAAATAKBggqhkjOPQQDAgNIADBFAiBCes00dTWHQZUF1dyvFv2U\
         GuAfwv8B2Sa18HdvXyurPgIhALAHd9oDtEs3Fx1pVfbPmMLvEa1qdpyU+bpXqeM64gIW";

    /// Of `CN=sub:olga`, without alternative names.
    const WITHOUT: &str = "MIIBejCCASGgAwIBAgIUJcU/00bnULheq9ErojsXWl5d+sgwCgYIKoZIzj0EAwIwEzERMA8GA1UEAwwIc3ViOm9sZ2EwHhcN\
         MjYxMTIzMjEwNTIyWhcNMzYxMTIwMjEwNTIyWjATMREwDwYDVQQDDAhzdWI6b2xnYTBZMBMGByqGSM49AgEGCCqGSM49AwEH\
         A0IABO6geN0/XwpFf4uBr8FMw/GIxrfQ/YUylx458Q1HB9z+aM3X4UINvd8jqzOTus9Uav8X6tsWa5Oo9DrPTuFt2NCjUzBR\
         MB0GA1UdDgQWBBQ3fzjBKOOrfrTXMyEGWv/TTw/gBzAfBgNVHSMEGDAWgBQ3fzjBKOOrfrTXMyEGWv/TTw/gBzAPBgNVHRMB\
         Af8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIF+QzlUYCM76JzJnqCFD7fwtT9L+IFnaGPqYo+EiU4eaAiAbkrxZOcsLXneO\
         TYctQ2KDmtHmHNkfJfwpe0T0OLp0uA==";

    fn decode(base64: &str) -> Vec<u8> {
        STANDARD.decode(base64).unwrap()
    }

    #[test]
    fn reads_uris_first_and_no_common_name() {
        let expected = [
            "san:spiffe://prod/ns/metrics/sa/collector",
            "san:collector.example.org",
            "san:ops@example.org",
        ];
        assert_eq!(names(&decode(WITH_NAMES)), Ok(expected.map(Into::into).to_vec()));
        assert_eq!(names(&decode(WITHOUT)), Ok(Vec::new()));
    }

    #[test]
    fn a_summary_names_owner_and_authority() {
        let summary = summary(&decode(WITHOUT)).unwrap();
        assert_eq!(summary.subject, "CN=sub:olga");
        assert_eq!(summary.issuer, "CN=sub:olga");
        assert_eq!(summary.not_after, 2_110_827_922);
        assert!(super::summary(b"no certificate").is_err());
    }

    #[test]
    fn names_count_in_the_form_of_their_kind_only() {
        let workload = "spiffe://prod/ns/metrics/sa/collector";
        assert_eq!(
            uri(&GeneralName::URI(workload)),
            Some("san:spiffe://prod/ns/metrics/sa/collector".into())
        );
        assert_eq!(
            host_or_mail(&GeneralName::DNSName("*.example.org")),
            Some("san:*.example.org".into())
        );
        assert_eq!(
            host_or_mail(&GeneralName::RFC822Name("a@b.org")),
            Some("san:a@b.org".into())
        );
        for other in [
            GeneralName::DNSName(workload),
            GeneralName::DNSName("a@b.org"),
            GeneralName::DNSName("localhost:80"),
            GeneralName::RFC822Name(workload),
            GeneralName::RFC822Name("spiffe://a@b/c"),
            GeneralName::RFC822Name("host.example.org"),
        ] {
            assert_eq!(host_or_mail(&other), None, "{other:?}");
        }
        assert_eq!(uri(&GeneralName::URI("host.example.org")), None);
    }

    #[test]
    fn bytes_that_are_no_certificate_are_an_error() {
        let mut cut = decode(WITH_NAMES);
        cut.truncate(200);
        assert!(names(&cut).is_err());
        assert!(names(b"").is_err());
    }
}
