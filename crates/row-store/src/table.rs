//! Names and definitions of tables.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::StoreError;

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
    /// The namespace of a table that is written without one.
    pub const DEFAULT_NAMESPACE: &'static str = "default";

    /// The namespace; `default` if none was written.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl FromStr for TableName {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
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
            return Err(StoreError::InvalidTableName {
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

/// A column family of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyDef {
    /// Name, for example `t`; printable, without `:`.
    pub name: String,
    /// How many versions of a cell are kept, newest first; at least 1.
    pub max_versions: u32,
    /// Cells older than this are not returned and go away at some time; `None`: kept for ever.
    pub ttl: Option<Duration>,
}

impl FamilyDef {
    /// A family that keeps one version for ever, as OpenTSDB's tables do.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            max_versions: 1,
            ttl: None,
        }
    }
}

/// A table and its families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDef {
    /// The table.
    pub name: TableName,
    /// Its families: at least one, at most 16, no name twice.
    pub families: Vec<FamilyDef>,
}

impl TableDef {
    /// A table whose families all keep one version for ever.
    pub fn new(name: TableName, families: &[&str]) -> Self {
        Self {
            name,
            families: families.iter().map(|family| FamilyDef::new(*family)).collect(),
        }
    }

    /// The position of a family in [`TableDef::families`].
    pub fn family_index(&self, family: &str) -> Option<usize> {
        self.families.iter().position(|def| def.name == family)
    }
}
