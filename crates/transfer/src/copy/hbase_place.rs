//! An HBase as a place of tables: the way to it, as the flags of `serve` have it.
//!
//! ```text
//!   hbase-quorum:HOST[:PORT],HOST[:PORT]/ZNODE       --hbase-quorum HOST[:PORT],HOST[:PORT] --hbase-znode-parent /ZNODE
//!   hbase-masters:HOST[:PORT],HOST[:PORT]            --hbase-masters HOST[:PORT],HOST[:PORT]
//!   hbase:HOST:PORT,HOST:PORT                        --hbase-thrift HOST:PORT,HOST:PORT
//! ```
//!
//! Kerberos and TLS have the same flags for all places; Thrift has neither. The parent of the znodes is a part of the place, since `tsdb compare` has two places and one set of flags.

use std::fmt;

use oxtsdb_row_store::hbase::native::Registry;
use oxtsdb_server::store::{Gateways, HbaseKerberos, HbaseSettings, HbaseTls, Hosts};

/// The way to an HBase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HbasePlace {
    /// To the region servers, found by a ZooKeeper quorum.
    Quorum {
        /// The servers of the quorum.
        servers: Hosts,
        /// The parent of HBase's znodes; `None`: the one of `--hbase-znode-parent`.
        znode_parent: Option<String>,
    },
    /// To the region servers, found by the masters.
    Masters(Hosts),
    /// Through Thrift gateways.
    Thrift(Gateways),
}

impl HbasePlace {
    /// Parses an address with the scheme before its first colon; `None`: the scheme is none of HBase.
    pub(super) fn parse(scheme: &str, address: &str) -> Option<Result<Self, String>> {
        match scheme {
            "hbase-quorum" => Some(Self::parse_quorum(address)),
            "hbase-masters" => Some(address.parse().map(Self::Masters)),
            "hbase" => Some(address.parse().map(Self::Thrift)),
            _ => None,
        }
    }

    fn parse_quorum(address: &str) -> Result<Self, String> {
        // No host has a slash.
        let (servers, znode_parent) = match address.find('/') {
            Some(at) => {
                let (servers, parent) = address.split_at(at);
                Registry::check_znode_parent(parent)?;
                if parent.contains(',') {
                    return Err(format!(
                        "`{parent}` is no parent of znodes, expected all hosts before it, for example zk1,zk2/hbase"
                    ));
                }
                (servers, Some(parent.to_owned()))
            }
            None => (address, None),
        };
        Ok(Self::Quorum {
            servers: servers.parse()?,
            znode_parent,
        })
    }

    /// Makes it the only way of the settings. Kerberos and TLS stay, if the way has them.
    pub(super) fn set(&self, settings: &mut HbaseSettings) {
        let security = (settings.kerberos.clone(), settings.tls.clone());
        clear(settings);
        match self {
            Self::Quorum {
                servers,
                znode_parent,
            } => {
                settings.hbase_quorum = Some(servers.clone());
                (settings.kerberos, settings.tls) = security;
                if let Some(parent) = znode_parent {
                    settings.hbase_znode_parent.clone_from(parent);
                }
            }
            Self::Masters(masters) => {
                settings.hbase_masters = Some(masters.clone());
                (settings.kerberos, settings.tls) = security;
            }
            Self::Thrift(gateways) => settings.hbase_thrift = Some(gateways.clone()),
        }
    }
}

/// Removes the ways to HBase, its Kerberos and its TLS: variables such as `OXTSDB_HBASE_QUORUM` may have set one.
pub(super) fn clear(settings: &mut HbaseSettings) {
    settings.hbase_quorum = None;
    settings.hbase_masters = None;
    settings.hbase_thrift = None;
    settings.kerberos = HbaseKerberos::default();
    settings.tls = HbaseTls::default();
}

impl fmt::Display for HbasePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quorum {
                servers,
                znode_parent,
            } => write!(
                f,
                "hbase-quorum:{servers}{}",
                znode_parent.as_deref().unwrap_or_default()
            ),
            Self::Masters(masters) => write!(f, "hbase-masters:{masters}"),
            Self::Thrift(gateways) => write!(f, "hbase:{gateways}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Settings {
        #[command(flatten)]
        hbase: HbaseSettings,
    }

    fn parse(place: &str) -> Result<HbasePlace, String> {
        let (scheme, address) = place.split_once(':').unwrap();
        HbasePlace::parse(scheme, address).unwrap()
    }

    /// The settings of a place, on top of flags.
    fn settings(flags: &[&str], place: &str) -> HbaseSettings {
        let flags = ["settings"].iter().chain(flags);
        let mut settings = Settings::try_parse_from(flags).unwrap().hbase;
        parse(place).unwrap().set(&mut settings);
        settings
    }

    #[test]
    fn a_place_sets_the_way_of_its_flag_and_no_other() {
        let flags = ["--hbase-thrift=a:1", "--hbase-quorum=b", "--hbase-masters=c"];
        for (place, flag, value) in [
            ("hbase-quorum:zk1,zk2:2182", "--hbase-quorum", "zk1,zk2:2182"),
            ("hbase-quorum:zk1/other", "--hbase-quorum", "zk1"),
            ("hbase-masters:m1,m2:16001", "--hbase-masters", "m1,m2:16001"),
            ("hbase:h:9090,i:9091", "--hbase-thrift", "h:9090,i:9091"),
        ] {
            let settings = settings(&flags, place);
            settings.check().unwrap();
            assert_eq!(settings.place(), Some((flag, value.to_owned())), "{place}");
        }
    }

    #[test]
    fn a_znode_parent_of_the_place_replaces_the_one_of_the_flag() {
        let flags = ["--hbase-znode-parent=/flag"];
        for (place, parent) in [
            ("hbase-quorum:zk1", "/flag"),
            ("hbase-quorum:zk1/a/b", "/a/b"),
            ("hbase-quorum:[::1]:2181,zk2/c", "/c"),
            ("hbase-quorum:zk1/", "/"),
        ] {
            assert_eq!(settings(&flags, place).hbase_znode_parent, parent, "{place}");
        }
    }

    #[test]
    fn security_is_for_region_servers_only() {
        let flags = [
            "--hbase-tls",
            "--hbase-tls-ca=ca.pem",
            "--hbase-kerberos-principal=a@R",
            "--hbase-kerberos-keytab=a.keytab",
        ];
        for (place, has_both) in [
            ("hbase-quorum:zk1", true),
            ("hbase-masters:m1", true),
            ("hbase:h:9090", false),
        ] {
            let settings = settings(&flags, place);
            settings.check().unwrap();
            assert_eq!(settings.tls.hbase_tls, has_both, "{place}");
            let principal = settings.kerberos.hbase_kerberos_principal;
            assert_eq!(principal.is_some(), has_both, "{place}");
        }
    }

    #[test]
    fn addresses_that_break_a_rule_are_named_with_it() {
        for (place, expected) in [
            ("hbase:h", "`h` is no gateway, expected HOST:PORT"),
            ("hbase:h:9090,", "`` is no gateway, expected HOST:PORT"),
            ("hbase-quorum:", "`` is no host, expected HOST or HOST:PORT"),
            ("hbase-quorum:/hbase", "`` is no host, expected HOST or HOST:PORT"),
            (
                "hbase-quorum:zk1,zk2:0",
                "`zk2:0` is no host, expected HOST or HOST:PORT",
            ),
            (
                "hbase-quorum:zk1:2181:/hbase",
                "`zk1:2181:` is no host, expected HOST or HOST:PORT",
            ),
            (
                "hbase-quorum:zk1/hbase/",
                "`/hbase/` is no parent of znodes, expected a path as `/hbase`",
            ),
            (
                "hbase-quorum:zk1//hbase",
                "`//hbase` is no parent of znodes, expected a path as `/hbase`",
            ),
            (
                "hbase-quorum:zk1/hbase,zk2",
                "`/hbase,zk2` is no parent of znodes, expected all hosts before it",
            ),
            (
                "hbase-masters:m1:x",
                "`m1:x` is no host, expected HOST or HOST:PORT",
            ),
            (
                "hbase-masters:m1/hbase",
                "`m1/hbase` is no host, expected HOST or HOST:PORT",
            ),
        ] {
            let error = parse(place).unwrap_err();
            assert!(
                error.starts_with(expected) && !error.contains('\n'),
                "{place}: {error}"
            );
        }
    }
}
