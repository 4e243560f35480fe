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

/// The longest part of a name in logs and messages, in characters.
const MAX_SHOWN: usize = 200;

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
    pub(crate) fn of(names: Vec<Box<str>>) -> Self {
        match names.is_empty() {
            true => Self::anonymous(),
            false => Self { names },
        }
    }

    /// Its names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
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
    fn shows_names_without_control_characters() {
        let identity = Identity::of(vec!["sub:a\nb\u{202e}".into()]);
        assert_eq!(identity.to_string(), "sub:a\\nb\\u{202e}");
        let identity = Identity::of(vec!["x".repeat(300).into()]);
        assert_eq!(identity.to_string().chars().count(), MAX_SHOWN + 1);
    }

    #[test]
    fn only_credentials_authenticate() {
        assert!(Identity::of(vec!["sub:anonymous".into()]).is_authenticated());
        for identity in [
            Identity::anonymous(),
            Identity::telnet(),
            Identity::of(Vec::new()),
        ] {
            assert!(!identity.is_authenticated(), "{identity}");
        }
    }
}
