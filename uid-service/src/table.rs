//! Table `tsdb-uid` in terms of names and UIDs. The bytes are `oxtsdb_schema::uid_table`'s.

use std::sync::Arc;

use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Condition, Retry, Row, RowStore, StoreError, TableDef, TableName,
    WriteBatch,
};
use oxtsdb_schema::uid_table::{COUNTER_ROW, ID_FAMILY, NAME_FAMILY, decode_counter};
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use crate::error::UidServiceError;
use crate::layout::UidLayout;

/// A name of one kind.
pub type KindName = (UidKind, Name);

/// A UID of one kind.
pub type KindUid = (UidKind, Uid);

/// The family of forward mappings and counters, as the store wants it.
pub(crate) const ID: &str = as_text(ID_FAMILY);

/// The family of reverse mappings, as the store wants it.
pub(crate) const NAME: &str = as_text(NAME_FAMILY);

/// First row that is not the counters': names begin here.
pub(crate) const FIRST_NAME_ROW: &[u8] = &[0, 0];

const fn as_text(family: &[u8]) -> &str {
    match std::str::from_utf8(family) {
        Ok(text) => text,
        Err(_) => panic!("families are ASCII"),
    }
}

/// The table, its layout, and the store that it is in. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidTable {
    store: Arc<dyn RowStore>,
    name: TableName,
    layout: Arc<UidLayout>,
}

/// A kind's counter cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The highest number handed out; 0 for an absent cell.
    pub(crate) number: u64,
    /// The cell, for a condition on it.
    pub(crate) stored: Option<Vec<u8>>,
}

impl UidTable {
    /// The table `name` of a store, which is there with both families. Nothing is read yet; see
    /// [`UidTable::check_widths`].
    ///
    /// Names that are longer than a row key of this table can be are no names of the layout then.
    pub fn new(store: Arc<dyn RowStore>, name: TableName, mut layout: UidLayout) -> Self {
        let max_length = &mut layout.name_rules.max_length;
        *max_length = store.max_row_key(&name).min(*max_length);
        Self {
            store,
            name,
            layout: Arc::new(layout),
        }
    }

    /// The families of a table of UIDs.
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

    /// How its UIDs look.
    pub fn layout(&self) -> &UidLayout {
        &self.layout
    }

    /// The UIDs of names, in their order; `None` for a name without one.
    pub(crate) async fn uids(&self, names: &[KindName]) -> Vec<Result<Option<Uid>, UidServiceError>> {
        self.read(
            names,
            ID,
            |(_, name)| name.as_bytes().to_vec(),
            |key, value| self.stored_uid(key, value),
        )
        .await
    }

    /// The names of UIDs, in their order; `None` for a UID without one.
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

    /// Whether the UIDs, all of one kind, have a reverse mapping.
    pub(crate) async fn taken(&self, kind: UidKind, uids: &[Uid]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Vec<u8>> = uids.iter().map(|uid| uid.as_bytes().to_vec()).collect();
        let rows = self
            .store
            .get_rows(&self.name, &keys, &column(NAME, kind))
            .await?;
        let taken = |row: &Option<Row>| row.as_ref().is_some_and(|row| value(row, NAME, kind).is_some());
        Ok(rows.iter().map(taken).collect())
    }

    /// A kind's counter.
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

    /// Puts a cell if it is as expected.
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

    /// Removes the reverse mapping of a UID if it holds `name`, in the version that it has now; what
    /// else its row holds stays.
    pub(crate) async fn remove_reverse(
        &self,
        kind: UidKind,
        uid: Uid,
        name: &Name,
    ) -> Result<(), StoreError> {
        let found = self
            .store
            .get(&self.name, uid.as_bytes(), &column(NAME, kind))
            .await?;
        let found = found
            .as_ref()
            .and_then(|row| row.get(NAME, kind.qualifier()))
            .filter(|cell| cell.value == name.as_bytes());
        let Some(cell) = found else { return Ok(()) };
        let mut batch = WriteBatch::new(self.name.clone());
        let family = batch.family(NAME);
        batch
            .row(uid.as_bytes())
            .delete_column_up_to(family, kind.qualifier(), cell.timestamp_ms);
        self.store.write(batch).await
    }

    /// The UID that a forward mapping holds.
    pub(crate) fn stored_uid(&self, (kind, name): &KindName, value: &[u8]) -> Result<Uid, UidServiceError> {
        let configured = self.layout.width(*kind);
        match Uid::from_bytes(value) {
            Ok(uid) if uid.width() == configured => Ok(uid),
            _ => Err(UidServiceError::StoredWidth {
                kind: *kind,
                name: name.clone(),
                found: value.len(),
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
        let mut answers: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        let longest = self.store.max_row_key(&self.name);
        for kind in UidKind::ALL {
            // The counters' row holds no mapping, whatever a caller takes for a name; nor does one that
            // cannot be there.
            let (places, rows): (Vec<usize>, Vec<Vec<u8>>) = keys
                .iter()
                .enumerate()
                .filter(|(_, key)| key.0 == kind)
                .map(|(place, key)| (place, row_key(key)))
                .filter(|(_, row)| row.len() <= longest && (family != ID || row != COUNTER_ROW))
                .unzip();
            if places.is_empty() {
                continue;
            }
            match self
                .store
                .get_rows(&self.name, &rows, &column(family, kind))
                .await
            {
                Ok(found) => {
                    for (place, row) in places.into_iter().zip(found) {
                        if let Some(stored) = row.as_ref().and_then(|row| value(row, family, kind)) {
                            answers[place] = decode(&keys[place], stored).map(Some);
                        }
                    }
                }
                Err(error) => {
                    warn!(%kind, %error, "UIDs cannot be read");
                    places
                        .into_iter()
                        .for_each(|place| answers[place] = Err(error.clone().into()));
                }
            }
        }
        answers
    }
}

/// Where the forward mapping of a name is.
pub(crate) fn forward_cell(kind: UidKind, name: &Name) -> CellAddress {
    CellAddress::new(name.as_bytes(), ID, kind.qualifier())
}

/// Where the reverse mapping of a UID is.
pub(crate) fn reverse_cell(kind: UidKind, uid: Uid) -> CellAddress {
    CellAddress::new(uid.as_bytes(), NAME, kind.qualifier())
}

/// Where a kind's counter is.
pub(crate) fn counter_cell(kind: UidKind) -> CellAddress {
    CellAddress::new(COUNTER_ROW, ID, kind.qualifier())
}

/// The cells of one kind in one family.
pub(crate) fn column(family: &str, kind: UidKind) -> ColumnSelection {
    ColumnSelection::Columns(vec![(family.to_owned(), kind.qualifier().to_vec())])
}

/// The value of a kind's cell. An empty one counts as absent, as it does for a condition.
pub(crate) fn value<'a>(row: &'a Row, family: &str, kind: UidKind) -> Option<&'a [u8]> {
    row.get(family, kind.qualifier())
        .map(|cell| cell.value)
        .filter(|value| !value.is_empty())
}

/// Whether a write that ended with this error may have been done.
pub(crate) fn is_uncertain(error: &StoreError) -> bool {
    error.retry() == Retry::IfIdempotent
}
