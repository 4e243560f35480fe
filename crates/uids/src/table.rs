//! Typed access to table `tsdb-uid`. `oxtsdb_schema::uid_table` defines its bytes.

use std::sync::Arc;

use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, Retry, Row, RowStore, StoreError, TableDef, TableName,
    WriteBatch,
};
use oxtsdb_schema::uid_table::{COUNTER_ROW, ID_FAMILY, NAME_FAMILY, decode_counter, meta_qualifier};
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use crate::error::UidServiceError;
use crate::layout::UidLayout;

/// A name of one kind.
pub type KindName = (UidKind, Name);

/// A UID of one kind.
pub type KindUid = (UidKind, Uid);

/// The family of forward mappings and counters.
pub const ID: &str = as_text(ID_FAMILY);

/// The family of reverse mappings.
pub const NAME: &str = as_text(NAME_FAMILY);

/// The first row key after the counters' row: the first possible name.
pub(crate) const FIRST_NAME_ROW: &[u8] = &[0, 0];

const fn as_text(family: &[u8]) -> &str {
    match std::str::from_utf8(family) {
        Ok(text) => text,
        Err(_) => panic!("families are ASCII"),
    }
}

/// The table, its layout and its store. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidTable {
    store: Arc<dyn RowStore>,
    name: TableName,
    layout: Arc<UidLayout>,
}

/// A kind's counter cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The highest reserved number; 0 for an absent cell.
    pub(crate) number: u64,
    /// The value of the cell, for a condition on it.
    pub(crate) stored: Option<Vec<u8>>,
}

impl UidTable {
    /// Binds the existing table `name` of a store. Reads nothing.
    ///
    /// Lowers the layout's maximum length of names to the maximum length of the table's row keys.
    pub fn new(store: Arc<dyn RowStore>, name: TableName, mut layout: UidLayout) -> Self {
        let max_length = &mut layout.name_rules.max_length;
        *max_length = store.max_row_key(&name).min(*max_length);
        Self {
            store,
            name,
            layout: Arc::new(layout),
        }
    }

    /// The definition of a UID table.
    pub fn definition(name: TableName) -> TableDef {
        TableDef::new(name, &[ID, NAME])
    }

    /// The store.
    pub(crate) fn store(&self) -> &dyn RowStore {
        &*self.store
    }

    /// The table's name.
    pub fn name(&self) -> &TableName {
        &self.name
    }

    /// The format of its UIDs and names.
    pub fn layout(&self) -> &UidLayout {
        &self.layout
    }

    /// Reads the UIDs of names, in their order; `None` for a name without one.
    pub(crate) async fn uids(&self, names: &[KindName]) -> Vec<Result<Option<Uid>, UidServiceError>> {
        self.read(
            names,
            ID,
            |(_, name)| name.as_bytes().to_vec(),
            |key, value| self.stored_uid(key, value),
        )
        .await
    }

    /// Reads the names of UIDs, in their order; `None` for a UID without one.
    pub(crate) async fn names(&self, uids: &[KindUid]) -> Vec<Result<Option<Name>, UidServiceError>> {
        self.read(
            uids,
            NAME,
            |(_, uid)| uid.as_bytes().to_vec(),
            |(kind, uid), value| {
                Name::from_stored(value).map_err(|_| UidServiceError::EmptyName {
                    kind: *kind,
                    uid: *uid,
                })
            },
        )
        .await
    }

    /// Reads which of the UIDs have a reverse mapping.
    pub(crate) async fn taken(&self, kind: UidKind, uids: &[Uid]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Vec<u8>> = uids.iter().map(|uid| uid.as_bytes().to_vec()).collect();
        let rows = self
            .store
            .get_rows(&self.name, &keys, &column(NAME, kind), None)
            .await?;
        let taken = |row: &Option<Row>| row.as_ref().is_some_and(|row| value(row, NAME, kind).is_some());
        Ok(rows.iter().map(taken).collect())
    }

    /// Reads the counter of a kind.
    pub(crate) async fn counter(&self, kind: UidKind) -> Result<Counter, UidServiceError> {
        let row = self.store.get(&self.name, COUNTER_ROW, &column(ID, kind)).await?;
        let Some(stored) = row.as_ref().and_then(|row| value(row, ID, kind)) else {
            return Ok(Counter {
                number: 0,
                stored: None,
            });
        };
        let number =
            decode_counter(stored).map_err(|source| UidServiceError::CounterUnreadable { kind, source })?;
        let number = u64::try_from(number).map_err(|_| UidServiceError::CounterNegative { kind, number })?;
        Ok(Counter {
            number,
            stored: Some(stored.to_vec()),
        })
    }

    /// Puts a cell if it has the expected value. Returns whether it did.
    pub(crate) async fn check_and_put(
        &self,
        cell: CellAddress,
        expected: Option<Vec<u8>>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.store
            .check_and_put(&self.name, &Condition { cell, expected }, value)
            .await
    }

    /// Deletes the forward mapping of a name if it holds `uid`, up to the version that was read: a mapping that is
    /// assigned afterwards is kept.
    pub(crate) async fn remove_forward(
        &self,
        kind: UidKind,
        name: &Name,
        uid: Uid,
    ) -> Result<(), StoreError> {
        let cell = forward_cell(kind, name);
        self.remove_if(&cell, |value| value == uid.as_bytes()).await
    }

    /// Deletes the metadata of a UID, up to the version that was read.
    pub(crate) async fn remove_meta(&self, kind: UidKind, uid: Uid) -> Result<(), StoreError> {
        let cell = CellAddress::new(uid.as_bytes(), NAME, meta_qualifier(kind));
        self.remove_if(&cell, |_| true).await
    }

    /// Deletes the reverse mapping of a UID if it holds `name`, up to the version that was read. The other
    /// cells of its row are kept.
    pub(crate) async fn remove_reverse(
        &self,
        kind: UidKind,
        uid: Uid,
        name: &Name,
    ) -> Result<(), StoreError> {
        let cell = reverse_cell(kind, uid);
        self.remove_if(&cell, |value| value == name.as_bytes()).await
    }

    async fn remove_if(
        &self,
        cell: &CellAddress,
        condition: impl Fn(&[u8]) -> bool + Send,
    ) -> Result<(), StoreError> {
        let columns = ColumnSelection::Columns(vec![(cell.family.clone(), cell.qualifier.clone())]);
        let row = self.store.get(&self.name, &cell.row, &columns).await?;
        let stored_cell = row
            .as_ref()
            .and_then(|row| row.get(&cell.family, &cell.qualifier))
            .filter(|stored_cell| condition(stored_cell.value));
        let Some(stored_cell) = stored_cell else {
            return Ok(());
        };
        let mut batch = WriteBatch::new(self.name.clone());
        let family = batch.family(&cell.family);
        batch
            .row(&cell.row)
            .delete_column_up_to(family, &cell.qualifier, stored_cell.timestamp_ms);
        self.store.write(batch).await
    }

    /// Decodes the value of a forward mapping.
    pub(crate) fn stored_uid(&self, (kind, name): &KindName, value: &[u8]) -> Result<Uid, UidServiceError> {
        let configured = self.layout.width(*kind);
        match Uid::from_bytes(value) {
            Ok(uid) if uid.width() == configured => Ok(uid),
            _ => Err(UidServiceError::StoredWidth {
                kind: *kind,
                name: name.clone(),
                bytes: value.len(),
                configured,
            }),
        }
    }

    /// Reads one cell for each key, with one read of the store for each kind.
    async fn read<K, V>(
        &self,
        keys: &[(UidKind, K)],
        family: &str,
        row_key: impl Fn(&(UidKind, K)) -> Vec<u8>,
        decode: impl Fn(&(UidKind, K), &[u8]) -> Result<V, UidServiceError>,
    ) -> Vec<Result<Option<V>, UidServiceError>> {
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let longest = self.store.max_row_key(&self.name);
        for kind in UidKind::ALL {
            // Neither the counters' row nor a row key over the limit can hold a mapping.
            let (indexes, rows): (Vec<usize>, Vec<Vec<u8>>) = keys
                .iter()
                .enumerate()
                .filter(|(_, key)| key.0 == kind)
                .map(|(index, key)| (index, row_key(key)))
                .filter(|(_, row)| row.len() <= longest && (family != ID || row != COUNTER_ROW))
                .unzip();
            if indexes.is_empty() {
                continue;
            }
            match self
                .store
                .get_rows(&self.name, &rows, &column(family, kind), None)
                .await
            {
                Ok(stored_rows) => {
                    for (index, row) in indexes.into_iter().zip(stored_rows) {
                        if let Some(stored) = row.as_ref().and_then(|row| value(row, family, kind)) {
                            results[index] = decode(&keys[index], stored).map(Some);
                        }
                    }
                }
                Err(error) => {
                    warn!(%kind, %error, "failed to read UIDs");
                    indexes
                        .into_iter()
                        .for_each(|index| results[index] = Err(error.clone().into()));
                }
            }
        }
        results
    }
}

/// The cell of a name's forward mapping.
pub(crate) fn forward_cell(kind: UidKind, name: &Name) -> CellAddress {
    CellAddress::new(name.as_bytes(), ID, kind.qualifier())
}

/// The cell of a UID's reverse mapping.
pub(crate) fn reverse_cell(kind: UidKind, uid: Uid) -> CellAddress {
    CellAddress::new(uid.as_bytes(), NAME, kind.qualifier())
}

/// The cell of a kind's counter.
pub(crate) fn counter_cell(kind: UidKind) -> CellAddress {
    CellAddress::new(COUNTER_ROW, ID, kind.qualifier())
}

/// Selects the cells of one kind in one family.
pub(crate) fn column(family: &str, kind: UidKind) -> ColumnSelection {
    ColumnSelection::Columns(vec![(family.to_owned(), kind.qualifier().to_vec())])
}

/// The value of a kind's cell. An empty value counts as absent, as in a condition.
pub(crate) fn value<'a>(row: &'a Row, family: &str, kind: UidKind) -> Option<&'a [u8]> {
    row.get(family, kind.qualifier())
        .map(|cell| cell.value)
        .filter(|value| !value.is_empty())
}

/// Whether a write that failed with this error may have been executed.
pub(crate) fn is_uncertain(error: &StoreError) -> bool {
    error.retry() == Retry::IfIdempotent
}
