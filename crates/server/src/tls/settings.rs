//! Settings of TLS.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{Source, Tls};
use crate::settings::{SettingError, in_range};

/// The certificates that listeners require of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientAuth {
    /// Nothing; they are not requested.
    None,
    /// A valid one, if there is one.
    Optional,
    /// A valid one.
    Required,
}

/// The oldest version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MinVersion {
    /// TLS 1.2.
    #[value(name = "1.2")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "1.3")]
    Tls13,
}

/// TLS of all listeners but the admin listener.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "TLS")]
pub struct TlsSettings {
    /// Certificate of the server with its chain, PEM: gRPC, HTTP and telnet are then served over TLS only
    #[arg(long, env = "OXTSDB_TLS_CERTIFICATE", value_name = "FILE")]
    pub tls_certificate: Option<PathBuf>,

    /// Private key of that certificate, PEM
    #[arg(long, env = "OXTSDB_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Certificates that those of clients are verified against, PEM; a client whose CA is removed is rejected from its
    /// next connection on
    #[arg(long, env = "OXTSDB_TLS_CLIENT_CA", value_name = "FILE")]
    pub tls_client_ca: Option<PathBuf>,

    /// Whether clients need a certificate. Unset: they do if there is --tls-client-ca
    #[arg(long, env = "OXTSDB_TLS_CLIENT_AUTH", value_name = "none|optional|required")]
    pub tls_client_auth: Option<ClientAuth>,

    /// The oldest version of TLS that is accepted
    #[arg(
        long,
        env = "OXTSDB_TLS_MIN_VERSION",
        value_name = "1.2|1.3",
        default_value = "1.2"
    )]
    pub tls_min_version: MinVersion,

    /// How often the files are read again, seconds; SIGHUP reads them at once
    #[arg(long, env = "OXTSDB_TLS_RELOAD_SECONDS", value_name = "SECONDS", default_value_t = Self::default().tls_reload_seconds)]
    pub tls_reload_seconds: u64,
}

impl Default for TlsSettings {
    fn default() -> Self {
        Self {
            tls_certificate: None,
            tls_key: None,
            tls_client_ca: None,
            tls_client_auth: None,
            tls_min_version: MinVersion::Tls12,
            tls_reload_seconds: 10,
        }
    }
}

impl TlsSettings {
    /// Whether clients need a certificate.
    pub(crate) fn requires_certificates(&self) -> bool {
        self.tls_client_ca.is_some()
            && self.tls_client_auth.unwrap_or(ClientAuth::Required) == ClientAuth::Required
    }

    /// Settings that secure less than they say are errors.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        let needs = |setting, path: &Option<PathBuf>, other: &str, has_other: bool| match path {
            Some(path) if !has_other => {
                let value = format!("`{}`", path.display());
                Err(SettingError::new(setting, value, format!("needs {other}")))
            }
            _ => Ok(()),
        };
        let (certificate, key) = (&self.tls_certificate, &self.tls_key);
        needs("--tls-certificate", certificate, "--tls-key", key.is_some())?;
        needs("--tls-key", key, "--tls-certificate", certificate.is_some())?;
        needs(
            "--tls-client-ca",
            &self.tls_client_ca,
            "--tls-certificate",
            certificate.is_some(),
        )?;
        if let Some(auth @ (ClientAuth::Optional | ClientAuth::Required)) = self.tls_client_auth
            && self.tls_client_ca.is_none()
        {
            let value = auth.to_possible_value();
            let value = value.map(|value| value.get_name().to_owned()).unwrap_or_default();
            let rule = "needs --tls-client-ca".to_owned();
            return Err(SettingError::new("--tls-client-auth", value, rule));
        }
        in_range("--tls-reload-seconds", self.tls_reload_seconds, 1, 86_400)
    }

    /// Reads the files, and watches them in a task of the runtime; `None` without a certificate.
    ///
    /// # Errors
    ///
    /// A file that cannot be used.
    pub(crate) fn open(&self) -> anyhow::Result<Option<Tls>> {
        let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) else {
            return Ok(None);
        };
        let (tls, files) = Tls::open(Source {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: self.tls_client_ca.clone(),
            client_auth: self.tls_client_auth.unwrap_or(ClientAuth::Required),
            min_version: self.tls_min_version,
        })?;
        let interval = Duration::from_secs(self.tls_reload_seconds);
        tokio::spawn(tls.clone().watch(files, interval));
        Ok(Some(tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_secure_nothing_are_errors() {
        let file = || Some(PathBuf::from("x.pem"));
        let none = TlsSettings::default;
        for (settings, expected) in [
            (
                TlsSettings {
                    tls_certificate: file(),
                    ..none()
                },
                "--tls-certificate `x.pem`: needs --tls-key",
            ),
            (
                TlsSettings {
                    tls_key: file(),
                    ..none()
                },
                "--tls-key `x.pem`: needs --tls-certificate",
            ),
            (
                TlsSettings {
                    tls_client_ca: file(),
                    ..none()
                },
                "--tls-client-ca `x.pem`: needs --tls-certificate",
            ),
            (
                TlsSettings {
                    tls_certificate: file(),
                    tls_key: file(),
                    tls_client_auth: Some(ClientAuth::Required),
                    ..none()
                },
                "--tls-client-auth required: needs --tls-client-ca",
            ),
        ] {
            let error = settings.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        none().check().unwrap();
    }
}
