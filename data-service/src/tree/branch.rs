//! Reads branches: the document, the leaves, and the child branches without theirs.
//!
//! A branch and its leaves are one row. Its children are rows among those of the branches below them, which the scan
//! skips. Children and leaves that cannot be decoded are skipped and logged.
//!
//! Source: OpenTSDB 2.4, `Branch.fetchBranch`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_query::{Budget, Held, QueryError};
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, Scan, prefix_end};
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::{BranchDocument, BranchId, LeafDocument, TreeCell};
use tracing::warn;

use super::Trees;
use super::error::TreeError;
use super::facts::NeededFields;
use super::table::{FAMILY_NAME, column};

/// Leaves whose names are resolved at a time.
const LEAVES: usize = 512;

/// Memory of a leaf with its names, in bytes; an estimate.
pub(crate) const LEAF_BYTES: u64 = 512;

/// A branch with its leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    pub(crate) id: BranchId,
    pub(crate) document: BranchDocument,
    /// By the hashes of their names.
    pub(crate) leaves: Vec<Leaf>,
}

/// A leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) display_name: String,
    pub(crate) tsuid: Tsuid,
}

/// The names of a series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeafNames {
    pub(crate) metric: Arc<str>,
    pub(crate) tags: BTreeMap<Arc<str>, Arc<str>>,
}

impl Trees {
    /// A branch with its leaves, whose row is charged to a budget while it is decoded.
    ///
    /// # Errors
    ///
    /// [`TreeError::BranchNotFound`]; the table cannot be read, or the budget is exceeded.
    pub(crate) async fn branch(&self, id: BranchId, budget: &Budget) -> Result<Branch, TreeError> {
        let table = &self.0.table;
        let columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
        let row = table.store.get(&table.name, id.as_bytes(), &columns).await?;
        let Some(row) = row else {
            return Err(TreeError::BranchNotFound(id));
        };
        let _row = charged(&row, budget)?;
        let (mut document, mut leaves) = (None, Vec::new());
        for cell in row.cells() {
            match TreeCell::decode(cell.qualifier) {
                Some(TreeCell::Branch) => {
                    let corrupt = |error| table.corrupt(row.key(), cell.qualifier, error);
                    document = Some(BranchDocument::decode(cell.value).map_err(corrupt)?);
                }
                Some(TreeCell::Leaf(_)) => leaves.extend(self.decode_leaf(&id, cell.value)),
                _ => {}
            }
        }
        match document {
            Some(document) => Ok(Branch { id, document, leaves }),
            None => Err(TreeError::BranchNotFound(id)),
        }
    }

    /// The branches directly below one, by the hashes of their names.
    pub(crate) fn children(
        &self,
        parent: BranchId,
    ) -> BoxStream<'static, Result<Vec<(BranchId, BranchDocument)>, TreeError>> {
        let this = self.clone();
        let opened = async move {
            let mut scan = Scan::prefix(parent.as_bytes());
            scan.columns = column(&TreeCell::Branch);
            let (keep, seek) = (parent.clone(), parent.clone());
            let seek = move |key: &[u8]| Some(prefix_end(seek.child_above(key)?.as_bytes()));
            scan.filter = Some(RowFilter::new(move |key| keep.is_parent_of(key)).with_seek(seek));
            let table = &this.0.table;
            let rows = table.store.scan(&table.name, scan).await?;
            let decoded = rows.map_ok(|batch| batch.iter().filter_map(decode_child).collect::<Vec<_>>());
            Ok::<_, TreeError>(decoded.map_err(TreeError::from))
        };
        stream::once(opened).try_flatten().boxed()
    }

    /// The names of leaves, in their order; `None` for a series with a UID that has no name.
    ///
    /// # Errors
    ///
    /// If the UID service fails.
    pub(crate) async fn leaf_names(&self, leaves: &[Leaf]) -> Result<Vec<Option<LeafNames>>, TreeError> {
        let mut names = Vec::with_capacity(leaves.len());
        for chunk in leaves.chunks(LEAVES) {
            let series: Vec<Tsuid> = chunk.iter().map(|leaf| leaf.tsuid.clone()).collect();
            let facts = self.facts(&series, &NeededFields::default()).await?;
            names.extend(facts.into_iter().map(|facts| {
                facts.ok().map(|facts| LeafNames {
                    metric: facts.metric.name,
                    tags: facts
                        .tags
                        .into_iter()
                        .map(|(tagk, tagv)| (tagk.name, tagv.name))
                        .collect(),
                })
            }));
        }
        Ok(names)
    }

    fn decode_leaf(&self, branch: &BranchId, value: &[u8]) -> Option<Leaf> {
        let decoded = LeafDocument::decode(value).map_err(|error| error.to_string());
        let leaf = decoded.and_then(|leaf| {
            let tsuid = Tsuid::parse(&leaf.tsuid, self.0.uids.widths()).map_err(|error| error.to_string())?;
            Ok(Leaf {
                display_name: leaf.display_name,
                tsuid,
            })
        });
        leaf.inspect_err(|error| warn!(%branch, error, "a leaf cannot be decoded"))
            .ok()
    }
}

/// Charges a row that was read.
pub(super) fn charged(row: &Row, budget: &Budget) -> Result<Held, QueryError> {
    let bytes = row.byte_len() as u64;
    budget.use_rows(1, bytes)?;
    budget.hold(bytes)
}

fn decode_child(row: &Row) -> Option<(BranchId, BranchDocument)> {
    let cell = row.get(FAMILY_NAME, &TreeCell::Branch.encode())?;
    let id = BranchId::from_bytes(row.key()).ok()?;
    match BranchDocument::decode(cell.value) {
        Ok(document) => Some((id, document)),
        Err(error) => {
            warn!(branch = %id, %error, "a branch cannot be decoded");
            None
        }
    }
}
