//! Where a cluster is found: the servers of `hbase:meta` and of the active master.
//!
//! | HBase | Masters as a registry | ZooKeeper |
//! |---|---|---|
//! | 1.x, 2.0 to 2.2 | no | yes |
//! | 2.3 and later, 3.x | yes | yes |
//!
//! Source: HBase 2.6.1, `ZKConnectionRegistry`, `RpcConnectionRegistry`, `ZNodePaths`.

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Buf as _;
use prost::Message as _;

use super::address::with_port;
use super::connection::{ConnectOptions, Connection, Request, Service};
use super::error::CallError;
use super::messages::{
    Empty, GetActiveMasterResponse, GetMetaRegionLocationsResponse, ServerName, ServerOfZnode,
};
use super::zookeeper;

/// The port of ZooKeeper, if an address has none.
const ZOOKEEPER_PORT: u16 = 2181;

/// The port of a master, if an address has none.
const MASTER_PORT: u16 = 16000;

/// The servers that know where a cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registry {
    /// A ZooKeeper quorum, as `host[:port]`, and the parent of HBase's znodes (`zookeeper.znode.parent`).
    Quorum {
        /// The servers.
        servers: Vec<String>,
        /// For example `/hbase`.
        parent: String,
    },
    /// The masters, as `host[:port]`: HBase 2.3 and later.
    Masters(Vec<String>),
}

/// A server that a registry names.
#[derive(Clone, Copy, Debug)]
enum Role {
    Meta,
    Master,
}

impl Registry {
    /// Rejects invalid addresses, and a parent that is no absolute path.
    pub(super) fn check(&self) -> Result<(), String> {
        let (servers, kind) = match self {
            Self::Quorum { servers, parent } => {
                Self::check_znode_parent(parent)?;
                (servers, "a server of a ZooKeeper quorum")
            }
            Self::Masters(servers) => (servers, "a master of HBase"),
        };
        if servers.is_empty() {
            return Err(format!(
                "no address of {kind} is configured, expected host[:port]"
            ));
        }
        let is_address = |server: &String| match server.rsplit_once(':') {
            Some((host, port)) => !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0),
            None => !server.is_empty(),
        };
        match servers.iter().find(|server| !is_address(server)) {
            Some(server) => Err(format!(
                "`{server}` is not the address of {kind}, expected host[:port]"
            )),
            None => Ok(()),
        }
    }

    /// Checks that a parent of znodes is an absolute path of ZooKeeper.
    ///
    /// # Errors
    ///
    /// The path, with the rule.
    pub fn check_znode_parent(parent: &str) -> Result<(), String> {
        let is_path = match parent.strip_prefix('/') {
            // The root has no name.
            Some("") => true,
            Some(names) => names.split('/').all(|name| !name.is_empty()),
            None => false,
        };
        if is_path {
            return Ok(());
        }
        Err(format!(
            "`{parent}` is no parent of znodes, expected a path as `/hbase`"
        ))
    }

    /// The region server that has `hbase:meta`, as `host:port`.
    ///
    /// # Errors
    ///
    /// [`CallError::NoRegion`], with the answer of each server.
    pub(super) async fn meta_server(&self, options: &ConnectOptions) -> Result<String, CallError> {
        self.find(Role::Meta, options).await
    }

    /// The active master, as `host:port`.
    ///
    /// # Errors
    ///
    /// As [`Registry::meta_server`].
    pub(super) async fn master(&self, options: &ConnectOptions) -> Result<String, CallError> {
        self.find(Role::Master, options).await
    }

    async fn find(&self, role: Role, options: &ConnectOptions) -> Result<String, CallError> {
        let mut findings = Vec::new();
        match self {
            Self::Quorum { servers, parent } => {
                for server in servers {
                    let server = with_port(server, ZOOKEEPER_PORT);
                    let path = format!("{}/{}", parent.trim_end_matches('/'), role.znode());
                    let data = zookeeper::read(&server, &path, options.time).await;
                    match data.and_then(|data| server_of_znode(&data)) {
                        Ok(host_port) => return Ok(host_port),
                        Err(detail) => findings.push(format!("{server}: {detail}")),
                    }
                }
            }
            Self::Masters(masters) => {
                for master in masters {
                    let master = with_port(master, MASTER_PORT);
                    match ask_master(&master, role, options).await {
                        Ok(host_port) => return Ok(host_port),
                        Err(CallError::NotSent { server, detail } | CallError::Lost { server, detail }) => {
                            findings.push(format!("{server}: {detail}"));
                        }
                        Err(error) => findings.push(format!("{master}: {error:?}")),
                    }
                }
            }
        }
        Err(CallError::NoRegion {
            detail: format!("{role} is unknown: {}", findings.join("; ")),
        })
    }
}

impl Role {
    const fn znode(self) -> &'static str {
        match self {
            Self::Meta => "meta-region-server",
            Self::Master => "master",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meta => "the region server of hbase:meta",
            Self::Master => "HBase's active master",
        })
    }
}

/// The server in a znode: `ff | u32 n | n bytes | "PBUF" | message`.
fn server_of_znode(mut data: &[u8]) -> Result<String, String> {
    let message = if data.first() == Some(&0xff) && data.len() > 5 {
        data.advance(1);
        let id = data.get_u32() as usize;
        data.get(id..).and_then(|rest| rest.strip_prefix(b"PBUF"))
    } else {
        data.strip_prefix(b"PBUF")
    };
    let message = message.ok_or("the znode is not one of HBase's")?;
    let decoded = ServerOfZnode::decode(message).map_err(|error| error.to_string())?;
    address(decoded.server.as_ref()).ok_or_else(|| "the znode names no server".to_owned())
}

pub(super) fn address(server: Option<&ServerName>) -> Option<String> {
    let server = server?;
    Some(format!("{}:{}", server.host_name, server.port?))
}

async fn ask_master(master: &str, role: Role, options: &ConnectOptions) -> Result<String, CallError> {
    let connection = Connection::open(master, Service::Registry, options).await?;
    let deadline = Instant::now() + options.time.max(Duration::from_secs(1));
    let host_port = match role {
        Role::Meta => {
            let request = Request::new("GetMetaRegionLocations", &Empty {});
            let (response, _): (GetMetaRegionLocationsResponse, _) =
                connection.call(request, deadline).await?;
            let mut locations = response.meta_locations.iter();
            locations.find_map(|location| address(location.server_name.as_ref()))
        }
        Role::Master => {
            let request = Request::new("GetActiveMaster", &Empty {});
            let (response, _): (GetActiveMasterResponse, _) = connection.call(request, deadline).await?;
            address(response.server_name.as_ref())
        }
    };
    host_port.ok_or_else(|| CallError::NoRegion {
        detail: format!("{master} does not know {role}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_znode_names_a_server() {
        let message = ServerOfZnode {
            server: Some(ServerName {
                host_name: "rs1".to_owned(),
                port: Some(16020),
            }),
        };
        let with_id = [&[0xff, 0, 0, 0, 3][..], b"abcPBUF", &message.encode_to_vec()].concat();
        assert_eq!(server_of_znode(&with_id).unwrap(), "rs1:16020");
        for hostile in [
            &b""[..],
            b"\xff\xff\xff\xff\xff\xff",
            b"PBUF",
            b"PBUF\xff",
            b"abc",
        ] {
            assert!(server_of_znode(hostile).is_err(), "{hostile:?}");
        }
    }

    #[test]
    fn a_parent_of_znodes_is_an_absolute_path() {
        for parent in ["/", "/hbase", "/a/b-unsecure"] {
            assert_eq!(Registry::check_znode_parent(parent), Ok(()));
        }
        for parent in ["", "hbase", "/hbase/", "//hbase", "/a//b"] {
            let error = Registry::check_znode_parent(parent).unwrap_err();
            assert!(
                error.starts_with(&format!("`{parent}` is no parent of znodes")),
                "{error}"
            );
        }
    }

    #[test]
    fn invalid_addresses_are_named() {
        let masters = |servers: &[&str]| Registry::Masters(servers.iter().map(ToString::to_string).collect());
        assert_eq!(masters(&["a", "b:16000"]).check(), Ok(()));
        for (registry, word) in [
            (masters(&[]), "no address of a master"),
            (masters(&["a", "b:0"]), "`b:0`"),
            (
                Registry::Quorum {
                    servers: vec!["zk".to_owned()],
                    parent: "hbase".to_owned(),
                },
                "`hbase`",
            ),
        ] {
            let error = registry.check().unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
