//! Who calls: the names of a caller, by which a policy grants rights.
//!
//! | name | of |
//! |---|---|
//! | `san:NAME` | a client certificate: each URI, DNS name and e-mail address among its subject alternative names, if it has the form of its kind |
//! | `sub:NAME` | a token: its claim `sub` |
//! | `group:NAME` | a token: each element of its claim `groups` |
//! | `telnet` | a telnet connection of the same machine |
//! | `anonymous` | a request without credentials |

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use oxtsdb_resources::ClientId;

/// The longest part of a name in logs and messages, in characters.
const MAX_SHOWN: usize = 200;

/// The key of the hashes of principals, so that no caller can choose a name with the hash of another one.
static PRINCIPALS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The names of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Never empty; the first one is shown.
    names: Vec<Box<str>>,
}

impl Identity {
    /// The caller of a request without credentials.
    pub fn anonymous() -> Self {
        Self::named("anonymous")
    }

    /// The caller of a telnet connection.
    pub fn telnet() -> Self {
        Self::named("telnet")
    }

    fn named(name: &str) -> Self {
        Self {
            names: vec![name.into()],
        }
    }

    /// A caller with these names; without any, [`Identity::anonymous`].
    pub(crate) fn from_names(names: Vec<Box<str>>) -> Self {
        match names.is_empty() {
            true => Self::anonymous(),
            false => Self { names },
        }
    }

    /// Its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The client that permits, memory and threads are shared with: the names of a caller that has authenticated, except
    /// its groups, which several callers share; otherwise the address.
    pub fn client(&self, address: ClientId) -> ClientId {
        if !self.is_authenticated() {
            return address;
        }
        let own = self.names().filter(|name| !name.starts_with("group:"));
        ClientId::Principal(PRINCIPALS.hash_one(own.collect::<Vec<_>>()))
    }

    /// Whether it has no credentials, though its protocol has some.
    pub fn is_anonymous(&self) -> bool {
        self.names().any(|name| name == "anonymous")
    }

    /// Whether it presented credentials.
    pub fn is_authenticated(&self) -> bool {
        !self.is_anonymous() && !self.names().any(|name| name == "telnet")
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.names.first().map_or("anonymous", |name| &**name)))
    }
}

/// Text that a caller chose, not longer than a name.
pub(crate) fn shown(text: &str) -> String {
    crate::shown::shown(text, MAX_SHOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_principals_or_addresses() {
        let address = |last| ClientId::Address([10, 0, 0, last].into());
        let named = |names: &[&str]| Identity::from_names(names.iter().map(|name| (*name).into()).collect());
        let principal = named(&["sub:a", "group:g"]).client(address(1));
        assert_eq!(principal, named(&["sub:a", "group:h"]).client(address(2)));
        assert_ne!(principal, named(&["sub:b", "group:g"]).client(address(1)));
        for identity in [Identity::anonymous(), Identity::telnet()] {
            assert_eq!(identity.client(address(1)), address(1));
        }
    }

    #[test]
    fn shows_names_without_control_characters() {
        let identity = Identity::from_names(vec!["sub:a\nb\u{202e}".into()]);
        assert_eq!(identity.to_string(), "sub:a\\nb\\u{202e}");
        let identity = Identity::from_names(vec!["x".repeat(300).into()]);
        assert_eq!(identity.to_string().chars().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn only_credentials_authenticate() {
        assert!(Identity::from_names(vec!["sub:anonymous".into()]).is_authenticated());
        for identity in [
            Identity::anonymous(),
            Identity::telnet(),
            Identity::from_names(Vec::new()),
        ] {
            assert!(!identity.is_authenticated(), "{identity}");
        }
    }
}
