//! Lists of hosts, as flags have them.

use std::fmt;
use std::str::FromStr;

/// Hosts, at least one, each with or without a port; written `HOST[:PORT],HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let hosts = text.split(',').map(str::trim).map(|host| {
            let (name, port) = match host.rsplit_once(':') {
                // An IPv6 address in brackets has colons of its own.
                Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
                _ => (host, None),
            };
            let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
            let is_name = !name.is_empty()
                && (!name.contains(':') || name.starts_with('[') && name.ends_with(']'))
                && !name.contains(['/', ' ']);
            if is_name && is_port {
                Ok(host.to_owned())
            } else {
                Err(format!(
                    "`{host}` is no host, expected HOST or HOST:PORT, for example zk1:2181"
                ))
            }
        });
        hosts.collect::<Result<_, _>>().map(Self)
    }
}

impl Hosts {
    /// The hosts, each with or without a port.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}
