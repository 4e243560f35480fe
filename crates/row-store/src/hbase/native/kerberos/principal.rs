//! Names of clients and servers: `name[/instance]@REALM`.

use std::fmt;
use std::str::FromStr;

use kerbcore::types::PrincipalName;

/// In a server's principal: the host of the server.
const HOST: &str = "_HOST";

/// A principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// At least one, none empty.
    pub(super) components: Vec<String>,
    /// As the KDC spells it, which is in capitals by convention.
    pub(super) realm: String,
}

impl Principal {
    /// The principal of HBase's servers in this realm, unless another is set: `hbase/_HOST`.
    #[must_use]
    pub fn of_hbase(realm_of: &Self) -> Self {
        Self {
            components: vec!["hbase".to_owned(), HOST.to_owned()],
            realm: realm_of.realm.clone(),
        }
    }

    /// The realm.
    pub fn realm(&self) -> &str {
        &self.realm
    }

    /// The principal with the host in place of `_HOST`; the host in lower case, as Hadoop has it.
    pub(super) fn of_host(&self, host: &str) -> Self {
        let with_host = |component: &String| match component.as_str() {
            HOST => host.to_lowercase(),
            _ => component.clone(),
        };
        Self {
            components: self.components.iter().map(with_host).collect(),
            realm: self.realm.clone(),
        }
    }

    /// The name in messages.
    pub(super) fn name(&self, name_type: i32) -> PrincipalName {
        PrincipalName {
            name_type,
            name_string: self.components.clone(),
        }
    }
}

impl FromStr for Principal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('@').and_then(|(name, realm)| {
            let components: Vec<String> = name.split('/').map(str::to_owned).collect();
            let is_name = components
                .iter()
                .all(|part| !part.is_empty() && !part.contains(['@', ' ', '\\']));
            let is_realm = !realm.is_empty() && !realm.contains(['/', ' ']);
            (is_name && is_realm).then(|| (components, realm.to_owned()))
        });
        match parts {
            Some((components, realm)) => Ok(Self { components, realm }),
            None => Err(format!(
                "`{text}` is no principal of Kerberos, expected NAME@REALM or NAME/INSTANCE@REALM"
            )),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.components.join("/"), self.realm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for text in ["oxtsdb@RIG.TEST", "hbase/rs1.example@RIG.TEST"] {
            assert_eq!(text.parse::<Principal>().unwrap().to_string(), text);
        }
        for text in ["", "oxtsdb", "@R", "a@", "a/@R", "/b@R", "a@b@R", "a b@R"] {
            let error = text.parse::<Principal>().unwrap_err();
            assert!(error.contains("expected NAME@REALM"), "{text}: {error}");
        }
    }

    #[test]
    fn a_server_has_the_name_of_its_host() {
        let client: Principal = "oxtsdb@RIG.TEST".parse().unwrap();
        let server = Principal::of_hbase(&client).of_host("RS1.example");
        assert_eq!(server.to_string(), "hbase/rs1.example@RIG.TEST");
    }
}
