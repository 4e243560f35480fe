//! Definitions of tables and their column families.

use std::time::Duration;

use crate::TableName;

/// A column family of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyDef {
    /// Name, for example `t`; printable, without `:`.
    pub name: String,
    /// Versions of a cell that are kept, at least 1; older ones are dropped.
    pub max_versions: u32,
    /// Cells older than this are not returned and eventually removed; `None`: kept forever.
    pub ttl: Option<Duration>,
}

impl FamilyDef {
    /// A family that keeps one version forever, as OpenTSDB's tables do.
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
    /// Its families: 1 to 16, with distinct names.
    pub families: Vec<FamilyDef>,
}

impl TableDef {
    /// A table with families that all keep one version forever.
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
