//! Certificates for tests: authorities, servers, clients.

use std::io;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// An authority.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl Authority {
    /// An authority with a name and a key of its own.
    ///
    /// # Errors
    ///
    /// There is no randomness.
    pub fn new(name: &str) -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Its certificate, PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for names, which are DNS names or IP addresses.
    ///
    /// # Errors
    ///
    /// A name is neither.
    pub fn issue(&self, names: &[&str]) -> Result<Issued, Error> {
        self.sign(CertificateParams::new(strings(names))?)
    }

    /// As [`Authority::issue`], of a certificate that was valid in 2020 only.
    ///
    /// # Errors
    ///
    /// As [`Authority::issue`].
    pub fn issue_expired(&self, names: &[&str]) -> Result<Issued, Error> {
        let mut params = CertificateParams::new(strings(names))?;
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 12, 31);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Result<Issued, Error> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        Ok(Issued {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

impl Issued {
    /// Writes `NAME.pem` and `NAME.key` to a folder.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn write(&self, folder: &Path, name: &str) -> io::Result<()> {
        let write = |extension: &str, text: &str| {
            // As programs that renew certificates do: a reader sees the old file or the new one.
            let temporary = folder.join(format!("{name}.{extension}.new"));
            std::fs::write(&temporary, text)?;
            std::fs::rename(&temporary, folder.join(format!("{name}.{extension}")))
        };
        write("key", &self.key)?;
        write("pem", &self.certificate)
    }
}
