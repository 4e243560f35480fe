//! Table `tsdb-uid-state`: what the service remembers beside OpenTSDB's cells.
//!
//! OpenTSDB does not read this table, and its `uid fsck` would report unknown cells in `tsdb-uid`. All cells are in
//! one family; the first byte of a row key is its purpose:
//!
//! ```text
//!   e | number (8)             log of renames and deletes: `change::log`
//!   i                          identity of the table, a random number (8)
//!   q | kind (1) | tag key     use of a quota: `policy::quota`
//!   Q | length (2) | tag key | UID   a value of a tag key with a quota
//!   u | kind (1) | time (8)    sample of a counter, for forecasts
//!   r | kind (1) | UID         a UID in quarantine, or free again
//!   d | kind (1) | UID         a random UID that was deleted: `deleted`
//! ```

use std::sync::Arc;

use oxtsdb_row_store::{CellAddress, ColumnSelection, Condition, RowStore, StoreError, TableDef, TableName};
use oxtsdb_schema::UidKind;

/// The family of all cells.
pub const STATE_FAMILY: &str = "s";

const IDENTITY_ROW: &[u8] = b"i";
const IDENTITY_QUALIFIER: &[u8] = b"i";

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

    /// The identity of the table: another one after it was deleted and created again.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn identity(&self) -> Result<u64, StoreError> {
        let cell = CellAddress::new(IDENTITY_ROW, STATE_FAMILY, IDENTITY_QUALIFIER);
        let column = (STATE_FAMILY.to_owned(), IDENTITY_QUALIFIER.to_vec());
        let columns = ColumnSelection::Columns(vec![column]);
        loop {
            let row = self.store.get(&self.name, IDENTITY_ROW, &columns).await?;
            let stored = row
                .as_ref()
                .and_then(|row| row.get(STATE_FAMILY, IDENTITY_QUALIFIER));
            if let Some(stored) = stored {
                return <[u8; 8]>::try_from(stored.value)
                    .map(u64::from_be_bytes)
                    .map_err(|_| StoreError::Invalid {
                        detail: "the identity of the table does not have 8 bytes".to_owned(),
                    });
            }
            let condition = Condition {
                cell: cell.clone(),
                expected: None,
            };
            let random = rand::random::<u64>().to_be_bytes();
            self.store.check_and_put(&self.name, &condition, &random).await?;
        }
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

/// The kind of a byte in row keys.
pub(crate) fn kind_of_byte(byte: u8) -> Option<UidKind> {
    UidKind::ALL.into_iter().find(|kind| kind_byte(*kind) == byte)
}
