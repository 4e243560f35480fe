//! Typed access to table `tsdb-tree`. `oxtsdb_schema::tree` defines its bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{CellAddress, ColumnSelection, Condition, Row, RowFilter, RowStore, Scan, TableName};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::stored_json;
use oxtsdb_schema::tree::{DocumentError, RuleDocument, TreeCell, TreeDocument, TreeId};

use super::error::{CorruptCell, TreeError};

/// The family of all cells.
pub(super) const FAMILY_NAME: &str = match std::str::from_utf8(FAMILY) {
    Ok(text) => text,
    Err(_) => panic!("families are ASCII"),
};

/// The place of a rule: level and order.
pub(crate) type RulePlace = (u32, u32);

/// A tree as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// The id, from 1.
    pub id: TreeId,
    /// The name, texts and switches.
    pub definition: TreeDocument,
    /// By level and order.
    pub rules: BTreeMap<RulePlace, RuleDocument>,
    /// Identifies the stored definition, without the rules.
    pub etag: String,
}

/// A tree with the cells that its parts were decoded from, for conditions on them.
#[derive(Clone, Debug)]
pub(super) struct StoredTree {
    pub(super) tree: Tree,
    pub(super) definition: Vec<u8>,
    pub(super) rules: BTreeMap<RulePlace, StoredRule>,
}

/// The cell of a rule.
#[derive(Clone, Debug)]
pub(super) struct StoredRule {
    pub(super) value: Vec<u8>,
    pub(super) timestamp_ms: i64,
}

/// The table. Cloning is cheap.
#[derive(Clone, Debug)]
pub(super) struct TreeTable {
    pub(super) store: Arc<dyn RowStore>,
    pub(super) name: TableName,
    /// Decodes large rows.
    pub(super) compute: ComputePool,
}

/// Bytes of a row of a tree that are decoded inline; the rules of a tree may take megabytes.
const INLINE_BYTES: usize = 64 << 10;

impl TreeTable {
    /// A tree; `None` if it has no definition.
    pub(super) async fn tree(&self, id: TreeId) -> Result<Option<StoredTree>, TreeError> {
        let columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
        match self.store.get(&self.name, &id.row_key(), &columns).await? {
            Some(row) => self.decode(row).await,
            None => Ok(None),
        }
    }

    /// Whether a tree has a definition.
    pub(super) async fn has_tree(&self, id: TreeId) -> Result<bool, TreeError> {
        let columns = column(&TreeCell::Tree);
        let row = self.store.get(&self.name, &id.row_key(), &columns).await?;
        Ok(row.is_some_and(|row| row.cells().any(|cell| !cell.value.is_empty())))
    }

    /// The rows of all trees after one, of these columns, without the rows of their branches.
    pub(super) async fn tree_rows(
        &self,
        after: Option<TreeId>,
        columns: ColumnSelection,
    ) -> Result<BoxStream<'static, Result<Vec<Row>, TreeError>>, TreeError> {
        let mut scan = Scan::range(
            after.map_or(Vec::new(), |id| [&id.row_key()[..], &[0]].concat()),
            [],
        );
        scan.columns = columns;
        // The rules of a tree may take megabytes.
        scan.batch_rows = 4;
        let is_tree = |key: &[u8]| key.len() == TreeId::FIRST.row_key().len();
        // Behind the rows of the tree.
        let seek = |key: &[u8]| Some(TreeId::split_row_key(key)?.0.next()?.row_key().to_vec());
        scan.filter = Some(RowFilter::new(is_tree).with_seek(seek));
        let rows = self.store.scan(&self.name, scan).await?;
        Ok(rows.map(|batch| batch.map_err(TreeError::from)).boxed())
    }

    /// Decodes a row of [`TreeTable::tree_rows`]; `None` if it has no definition.
    pub(super) async fn decode(&self, row: Row) -> Result<Option<StoredTree>, TreeError> {
        if row.byte_len() <= INLINE_BYTES {
            return self.decode_tree(&row);
        }
        let this = self.clone();
        self.compute.run(move || this.decode_tree(&row)).await?
    }

    fn decode_tree(&self, row: &Row) -> Result<Option<StoredTree>, TreeError> {
        let Some((id, _)) = TreeId::split_row_key(row.key()) else {
            return Ok(None);
        };
        let (mut definition, mut rules, mut stored_rules) = (None, BTreeMap::new(), BTreeMap::new());
        for cell in row.cells() {
            let corrupt = |error| self.corrupt(row.key(), cell.qualifier, error);
            match TreeCell::decode(cell.qualifier) {
                Some(TreeCell::Tree) if !cell.value.is_empty() => {
                    let document = TreeDocument::decode(cell.value).map_err(corrupt)?;
                    definition = Some((document, cell.value.to_vec()));
                }
                Some(TreeCell::Rule { level, order }) => {
                    let mut document = RuleDocument::decode(cell.value).map_err(corrupt)?;
                    // The cell's place is what counts.
                    document.tree_id = id.get().into();
                    (document.level, document.order) = (java_int(level), java_int(order));
                    rules.insert((level, order), document);
                    let stored = StoredRule {
                        value: cell.value.to_vec(),
                        timestamp_ms: cell.timestamp_ms,
                    };
                    stored_rules.insert((level, order), stored);
                }
                _ => {}
            }
        }
        Ok(definition.map(|(document, value)| StoredTree {
            tree: Tree {
                id,
                definition: document,
                rules,
                etag: stored_json::etag(Some(&value)),
            },
            definition: value,
            rules: stored_rules,
        }))
    }

    /// Puts a cell if it has the expected value. Returns whether it did.
    pub(super) async fn check_and_put(
        &self,
        row: &[u8],
        cell: TreeCell<'_>,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, TreeError> {
        let condition = Condition {
            cell: CellAddress::new(row, FAMILY_NAME, cell.encode()),
            expected: expected.map(<[u8]>::to_vec),
        };
        Ok(self.store.check_and_put(&self.name, &condition, value).await?)
    }

    pub(super) fn corrupt(&self, row_key: &[u8], qualifier: &[u8], error: DocumentError) -> TreeError {
        TreeError::Corrupt(Box::new(CorruptCell {
            table: self.name.clone(),
            row_key: row_key.to_vec(),
            qualifier: qualifier.to_vec(),
            error,
        }))
    }
}

/// The selection of one column.
pub(super) fn column(cell: &TreeCell<'_>) -> ColumnSelection {
    ColumnSelection::Columns(vec![(FAMILY_NAME.to_owned(), cell.encode())])
}

/// A number of a qualifier, which is within Java's `int`.
pub(super) fn java_int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
