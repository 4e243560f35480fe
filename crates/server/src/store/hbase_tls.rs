//! Settings of TLS towards HBase.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use oxtsdb_tls::{Credentials, Pem};

use crate::settings::SettingError;

/// TLS of connections with HBase's servers.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "HBase")]
pub struct HbaseTls {
    /// Connect with masters and region servers over TLS (hbase.server.netty.tls.enabled, HBase 2.6 or later). With
    /// --hbase-quorum or --hbase-masters; ZooKeeper is read in plain text
    #[arg(long, env = "OXTSDB_HBASE_TLS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub hbase_tls: bool,

    /// Certificates that those of HBase's servers are verified against, PEM; each has to be for the host by which HBase
    /// names the server. Read again for each connection
    #[arg(long, env = "OXTSDB_HBASE_TLS_CA", value_name = "FILE")]
    pub hbase_tls_ca: Option<PathBuf>,

    /// Certificate that is presented to HBase's servers, with its chain, PEM (hbase.server.netty.tls.client.auth.mode)
    #[arg(long, env = "OXTSDB_HBASE_TLS_CERTIFICATE", value_name = "FILE")]
    pub hbase_tls_certificate: Option<PathBuf>,

    /// Private key of that certificate, PEM
    #[arg(long, env = "OXTSDB_HBASE_TLS_KEY", value_name = "FILE")]
    pub hbase_tls_key: Option<PathBuf>,
}

impl HbaseTls {
    /// Settings that secure less than they say are errors.
    pub(super) fn check(&self, is_native: bool) -> Result<(), SettingError> {
        let needs = |flag, value: &dyn fmt::Display, other: &str| {
            Err(SettingError::new(
                flag,
                format!("`{value}`"),
                format!("needs {other}"),
            ))
        };
        let files = [
            ("--hbase-tls-ca", &self.hbase_tls_ca),
            ("--hbase-tls-certificate", &self.hbase_tls_certificate),
            ("--hbase-tls-key", &self.hbase_tls_key),
        ];
        let mut files = files
            .into_iter()
            .filter_map(|(flag, path)| path.as_ref().map(|path| (flag, path)));
        if !self.hbase_tls {
            return match files.next() {
                Some((flag, path)) => needs(flag, &path.display(), "--hbase-tls"),
                None => Ok(()),
            };
        }
        if !is_native {
            return needs("--hbase-tls", &true, "--hbase-quorum or --hbase-masters");
        }
        if self.hbase_tls_ca.is_none() {
            return needs("--hbase-tls", &true, "--hbase-tls-ca");
        }
        match (&self.hbase_tls_certificate, &self.hbase_tls_key) {
            (Some(path), None) => needs("--hbase-tls-certificate", &path.display(), "--hbase-tls-key"),
            (None, Some(path)) => needs("--hbase-tls-key", &path.display(), "--hbase-tls-certificate"),
            _ => Ok(()),
        }
    }

    /// The files, with TLS.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        let file = |path: &Option<PathBuf>| path.clone().map(Pem::File);
        self.hbase_tls.then(|| Credentials {
            ca: file(&self.hbase_tls_ca),
            identity: file(&self.hbase_tls_certificate).zip(file(&self.hbase_tls_key)),
        })
    }
}

impl fmt::Display for HbaseTls {
    /// The flags with which another program connects in the same way, each with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.hbase_tls {
            f.write_str(" --hbase-tls")?;
        }
        for (flag, path) in [
            ("--hbase-tls-ca", &self.hbase_tls_ca),
            ("--hbase-tls-certificate", &self.hbase_tls_certificate),
            ("--hbase-tls-key", &self.hbase_tls_key),
        ] {
            if let Some(path) = path {
                write!(f, " {flag} {}", path.display())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_secure_less_than_they_say_are_errors() {
        let file = || Some(PathBuf::from("x.pem"));
        let tls = || HbaseTls {
            hbase_tls: true,
            hbase_tls_ca: file(),
            ..HbaseTls::default()
        };
        for (settings, is_native, expected) in [
            (
                HbaseTls {
                    hbase_tls: false,
                    ..tls()
                },
                true,
                "--hbase-tls-ca `x.pem`: needs --hbase-tls",
            ),
            (
                tls(),
                false,
                "--hbase-tls `true`: needs --hbase-quorum or --hbase-masters",
            ),
            (
                HbaseTls {
                    hbase_tls_ca: None,
                    ..tls()
                },
                true,
                "--hbase-tls `true`: needs --hbase-tls-ca",
            ),
            (
                HbaseTls {
                    hbase_tls_certificate: file(),
                    ..tls()
                },
                true,
                "--hbase-tls-certificate `x.pem`: needs --hbase-tls-key",
            ),
            (
                HbaseTls {
                    hbase_tls_key: file(),
                    ..tls()
                },
                true,
                "--hbase-tls-key `x.pem`: needs --hbase-tls-certificate",
            ),
        ] {
            let error = settings.check(is_native).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        tls().check(true).unwrap();
        HbaseTls::default().check(false).unwrap();
    }

    #[test]
    fn another_program_gets_the_same_flags() {
        let tls = HbaseTls {
            hbase_tls: true,
            hbase_tls_ca: Some("ca.pem".into()),
            ..HbaseTls::default()
        };
        assert_eq!(tls.to_string(), " --hbase-tls --hbase-tls-ca ca.pem");
        assert_eq!(HbaseTls::default().to_string(), "");
    }
}
