//! Table `tsdb-uid-state`: what the service remembers beside OpenTSDB's cells.
//!
//! OpenTSDB does not read this table, and its `uid fsck` would report unknown cells in `tsdb-uid`. All cells are in
//! one family; the first byte of a row key is its purpose:
//!
//! ```text
//!   e | number (8)             event log of renames and deletes
//!   q | kind (1) | tag key     use of a quota: `policy::quota`
//!   Q | length (2) | tag key | UID   a value of a tag key with a quota
//!   u | kind (1) | time (8)    sample of a counter, for forecasts
//!   r | kind (1) | UID         a UID in quarantine, or free again
//! ```

use std::sync::Arc;

use oxtsdb_row_store::{RowStore, TableDef, TableName};
use oxtsdb_schema::UidKind;

/// The family of all cells.
pub const STATE_FAMILY: &str = "s";

/// The table and its store. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct StateTable {
    store: Arc<dyn RowStore>,
    name: TableName,
}

impl StateTable {
    /// The table `name` of `store`.
    pub fn new(store: Arc<dyn RowStore>, name: TableName) -> Self {
        Self { store, name }
    }

    /// The definition of the table.
    pub fn definition(name: TableName) -> TableDef {
        TableDef::new(name, &[STATE_FAMILY])
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn RowStore> {
        &self.store
    }

    /// The name of the table.
    pub fn name(&self) -> &TableName {
        &self.name
    }
}

/// The byte of a kind in row keys.
pub(crate) const fn kind_byte(kind: UidKind) -> u8 {
    match kind {
        UidKind::Metric => 1,
        UidKind::Tagk => 2,
        UidKind::Tagv => 3,
    }
}
