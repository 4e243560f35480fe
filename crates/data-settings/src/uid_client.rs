//! How a client of the UID service authenticates, and how its connections are secured: for the data service and for
//! `tsdb`'s commands.

use std::path::{Path, PathBuf};

use clap::Args;
use oxtsdb_client::{ClientBuilder, TlsOptions};
use oxtsdb_server::settings::SettingError;

/// How a client of the UID service authenticates, and how its connections are secured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Access")]
pub struct UidAccess {
    /// File with the token for the UID service; read again when it changes
    #[arg(long, global = true, env = "OXTSDB_UID_TOKEN_FILE", value_name = "FILE")]
    pub uid_token_file: Option<PathBuf>,

    /// Certificates that the UID service's is verified against, PEM. Unset: those of the system. TLS is used for
    /// `https://` URLs; each new connection reads the files of TLS again
    #[arg(long, global = true, env = "OXTSDB_UID_TLS_CA", value_name = "FILE")]
    pub uid_tls_ca: Option<PathBuf>,

    /// Certificate of this client for the UID service, with its chain, PEM
    #[arg(
        long,
        global = true,
        env = "OXTSDB_UID_TLS_CLIENT_CERTIFICATE",
        value_name = "FILE"
    )]
    pub uid_tls_client_certificate: Option<PathBuf>,

    /// Private key of that certificate, PEM
    #[arg(long, global = true, env = "OXTSDB_UID_TLS_CLIENT_KEY", value_name = "FILE")]
    pub uid_tls_client_key: Option<PathBuf>,

    /// Name in the UID service's certificate, if it is not the host of the URL
    #[arg(long, global = true, env = "OXTSDB_UID_TLS_SERVER_NAME", value_name = "NAME")]
    pub uid_tls_server_name: Option<String>,
}

impl UidAccess {
    /// A builder of clients of the UID service at `urls`, separated by commas.
    ///
    /// # Errors
    ///
    /// Settings of TLS that would secure nothing.
    pub fn client(&self, urls: &str) -> Result<ClientBuilder, SettingError> {
        ClientAccess {
            token_file: self.uid_token_file.as_deref(),
            ca: ("--uid-tls-ca", self.uid_tls_ca.as_deref()),
            certificate: (
                "--uid-tls-client-certificate",
                self.uid_tls_client_certificate.as_deref(),
            ),
            key: ("--uid-tls-client-key", self.uid_tls_client_key.as_deref()),
            server_name: ("--uid-tls-server-name", self.uid_tls_server_name.as_deref()),
        }
        .client(urls)
    }
}

/// How a client of any service authenticates, and how its connections are secured: values with their settings.
#[derive(Clone, Copy, Debug)]
pub struct ClientAccess<'a> {
    /// File with the token.
    pub token_file: Option<&'a Path>,
    /// File with certificates of authorities.
    pub ca: (&'static str, Option<&'a Path>),
    /// File with the client's certificate.
    pub certificate: (&'static str, Option<&'a Path>),
    /// File with its key.
    pub key: (&'static str, Option<&'a Path>),
    /// The name in the server's certificate.
    pub server_name: (&'static str, Option<&'a str>),
}

impl ClientAccess<'_> {
    /// A builder of clients of the servers at `urls`, separated by commas.
    ///
    /// # Errors
    ///
    /// Settings of TLS that would secure nothing.
    pub fn client(&self, urls: &str) -> Result<ClientBuilder, SettingError> {
        let (certificate, key) = (self.certificate, self.key);
        let is_secured = urls.split(',').any(|url| url.trim().starts_with("https://"));
        let name = (self.server_name.0, self.server_name.1.map(Path::new));
        for (setting, value) in [self.ca, certificate, key, name] {
            if let Some(value) = value
                && !is_secured
            {
                return Err(needs(setting, value, "a URL with https://"));
            }
        }
        match (certificate.1, key.1) {
            (Some(path), None) => return Err(needs(certificate.0, path, key.0)),
            (None, Some(path)) => return Err(needs(key.0, path, certificate.0)),
            _ => {}
        }
        let mut tls = TlsOptions::default();
        if let Some(path) = self.ca.1 {
            tls = tls.ca_file(path);
        }
        if let (Some(certificate), Some(key)) = (certificate.1, key.1) {
            tls = tls.client_certificate_files(certificate, key);
        }
        if let Some(name) = self.server_name.1 {
            tls = tls.domain_name(name);
        }
        let client = ClientBuilder::new(urls.split(',').map(str::trim)).tls(tls);
        Ok(match self.token_file {
            Some(path) => client.token_file(path),
            None => client,
        })
    }
}

fn needs(setting: &'static str, value: &Path, other: &str) -> SettingError {
    SettingError::new(
        setting,
        format_args!("`{}`", value.display()),
        format_args!("needs {other}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_secure_nothing_are_errors() {
        let file = || Some(PathBuf::from("x.pem"));
        let none = UidAccess::default;
        let (ca, certificate, key) = (
            UidAccess {
                uid_tls_ca: file(),
                ..none()
            },
            UidAccess {
                uid_tls_client_certificate: file(),
                ..none()
            },
            UidAccess {
                uid_tls_client_key: file(),
                ..none()
            },
        );
        for (access, urls, expected) in [
            (
                &ca,
                "http://a:1",
                "--uid-tls-ca `x.pem`: needs a URL with https://",
            ),
            (
                &certificate,
                "https://a:1",
                "--uid-tls-client-certificate `x.pem`: needs --uid-tls-client-key",
            ),
            (
                &key,
                "http://a:1,https://b:1",
                "--uid-tls-client-key `x.pem`: needs --uid-tls-client-certificate",
            ),
        ] {
            let error = access.client(urls).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        none().client("http://a:1").unwrap();
        ca.client("http://a:1, https://b:1").unwrap();
    }
}
