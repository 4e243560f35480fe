//! Names of tables: a namespace and a name.

use std::fmt;
use std::str::FromStr;

/// A text that is not a table name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a table name, expected [namespace:]name of letters, digits, `_`, `-`, `.`")]
pub struct TableNameError {
    /// The rejected text.
    pub name: String,
}

/// A table's namespace and name, as in HBase: `tsdb`, `monitoring:tsdb`.
///
/// Both parts are of `a-z A-Z 0-9 _ - .`; the namespace has no `-` and no `.`, and is `default`
/// when none is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableName {
    namespace: String,
    name: String,
}

impl TableName {
    /// The namespace of a name without one.
    pub const DEFAULT_NAMESPACE: &'static str = "default";

    /// The namespace; `default` if the name has none.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for TableName {
    type Err = TableNameError;

    fn from_str(text: &str) -> Result<Self, TableNameError> {
        let (namespace, name) = match text.split_once(':') {
            Some(parts) => parts,
            None => (Self::DEFAULT_NAMESPACE, text),
        };
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let valid_namespace = !namespace.is_empty() && namespace.chars().all(word);
        let valid_name = !name.is_empty()
            && name.chars().all(|c| word(c) || c == '-' || c == '.')
            && !name.starts_with(['-', '.']);
        if !valid_namespace || !valid_name {
            return Err(TableNameError {
                name: text.to_owned(),
            });
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace != Self::DEFAULT_NAMESPACE {
            write!(f, "{}:", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
