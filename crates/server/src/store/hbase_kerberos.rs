//! Settings of Kerberos towards HBase.

use std::fmt;
use std::path::PathBuf;

use clap::Args;
use oxtsdb_row_store::hbase::native::{KerberosConfig, Principal};

use super::hosts::Hosts;
use crate::settings::SettingError;

/// Kerberos of connections with HBase's servers.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "HBase")]
pub struct HbaseKerberos {
    /// Log in to masters and region servers with Kerberos as this principal (hbase.security.authentication=kerberos). With
    /// --hbase-quorum or --hbase-masters, and --hbase-kerberos-keytab
    #[arg(long, env = "OXTSDB_HBASE_KERBEROS_PRINCIPAL", value_name = "NAME@REALM")]
    pub hbase_kerberos_principal: Option<Principal>,

    /// Keytab with a key of that principal, of an AES encryption type. Read again for each login
    #[arg(long, env = "OXTSDB_HBASE_KERBEROS_KEYTAB", value_name = "FILE")]
    pub hbase_kerberos_keytab: Option<PathBuf>,

    /// Principal of HBase's servers (hbase.regionserver.kerberos.principal), where `_HOST` stands for the host by which
    /// HBase names the server; hbase/_HOST in the client's realm unless set
    #[arg(
        long,
        env = "OXTSDB_HBASE_KERBEROS_SERVER_PRINCIPAL",
        value_name = "NAME/_HOST@REALM"
    )]
    pub hbase_kerberos_server_principal: Option<Principal>,

    /// KDCs of the realm, reached over TCP; those of the realm in /etc/krb5.conf (KRB5_CONFIG) unless set
    #[arg(
        long,
        env = "OXTSDB_HBASE_KERBEROS_KDC",
        value_name = "HOST[:PORT][,HOST[:PORT]...]"
    )]
    pub hbase_kerberos_kdc: Option<Hosts>,
}

impl HbaseKerberos {
    /// The flags that are set, with their values.
    fn flags(&self) -> impl Iterator<Item = (&'static str, String)> {
        let principal = |principal: &Option<Principal>| principal.as_ref().map(ToString::to_string);
        let keytab = self.hbase_kerberos_keytab.as_ref();
        let flags = [
            (
                "--hbase-kerberos-principal",
                principal(&self.hbase_kerberos_principal),
            ),
            (
                "--hbase-kerberos-keytab",
                keytab.map(|path| path.display().to_string()),
            ),
            (
                "--hbase-kerberos-server-principal",
                principal(&self.hbase_kerberos_server_principal),
            ),
            (
                "--hbase-kerberos-kdc",
                self.hbase_kerberos_kdc.as_ref().map(ToString::to_string),
            ),
        ];
        flags
            .into_iter()
            .filter_map(|(flag, value)| value.map(|value| (flag, value)))
    }

    /// Settings without effect are errors.
    pub(super) fn check(&self, is_native: bool) -> Result<(), SettingError> {
        let Some((flag, value)) = self.flags().next() else {
            return Ok(());
        };
        let needs = |other: &str| {
            Err(SettingError::new(
                flag,
                format!("`{value}`"),
                format!("needs {other}"),
            ))
        };
        let Some(principal) = &self.hbase_kerberos_principal else {
            return needs("--hbase-kerberos-principal");
        };
        if self.hbase_kerberos_keytab.is_none() {
            return needs("--hbase-kerberos-keytab");
        }
        if !is_native {
            return needs("--hbase-quorum or --hbase-masters");
        }
        match &self.hbase_kerberos_server_principal {
            Some(server) if server.realm() != principal.realm() => Err(SettingError::new(
                "--hbase-kerberos-server-principal",
                format!("`{server}`"),
                format!("is of another realm than `{principal}`; only one realm is supported"),
            )),
            _ => Ok(()),
        }
    }

    /// The settings of the store, with Kerberos.
    pub(super) fn config(&self) -> Option<KerberosConfig> {
        let principal = self.hbase_kerberos_principal.clone()?;
        let keytab = self.hbase_kerberos_keytab.clone()?;
        let server = self.hbase_kerberos_server_principal.clone();
        let kdcs = self.hbase_kerberos_kdc.as_ref();
        Some(KerberosConfig {
            server_principal: server.unwrap_or_else(|| Principal::of_hbase(&principal)),
            principal,
            keytab,
            kdcs: kdcs.map(|kdcs| kdcs.names().to_vec()).unwrap_or_default(),
        })
    }
}

impl fmt::Display for HbaseKerberos {
    /// The flags with which another program logs in in the same way, each with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.flags()
            .try_for_each(|(flag, value)| write!(f, " {flag} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kerberos() -> HbaseKerberos {
        HbaseKerberos {
            hbase_kerberos_principal: Some("oxtsdb@R.TEST".parse().unwrap()),
            hbase_kerberos_keytab: Some("oxtsdb.keytab".into()),
            ..HbaseKerberos::default()
        }
    }

    #[test]
    fn settings_without_effect_are_errors() {
        for (settings, is_native, expected) in [
            (
                HbaseKerberos {
                    hbase_kerberos_principal: None,
                    ..kerberos()
                },
                true,
                "--hbase-kerberos-keytab `oxtsdb.keytab`: needs --hbase-kerberos-principal",
            ),
            (
                HbaseKerberos {
                    hbase_kerberos_keytab: None,
                    ..kerberos()
                },
                true,
                "--hbase-kerberos-principal `oxtsdb@R.TEST`: needs --hbase-kerberos-keytab",
            ),
            (kerberos(), false, "needs --hbase-quorum or --hbase-masters"),
            (
                HbaseKerberos {
                    hbase_kerberos_server_principal: Some("hbase/_HOST@OTHER.TEST".parse().unwrap()),
                    ..kerberos()
                },
                true,
                "`hbase/_HOST@OTHER.TEST`: is of another realm than `oxtsdb@R.TEST`",
            ),
        ] {
            let error = settings.check(is_native).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        kerberos().check(true).unwrap();
        HbaseKerberos::default().check(false).unwrap();
    }

    #[test]
    fn servers_are_those_of_the_realm_unless_set() {
        let config = kerberos().config().unwrap();
        assert_eq!(config.server_principal.to_string(), "hbase/_HOST@R.TEST");
        assert!(config.kdcs.is_empty());
        assert_eq!(HbaseKerberos::default().config(), None);
        assert_eq!(
            kerberos().to_string(),
            " --hbase-kerberos-principal oxtsdb@R.TEST --hbase-kerberos-keytab oxtsdb.keytab"
        );
    }
}
