//! Reads branches: the document, the leaves, and the child branches without theirs.
//!
//! A branch and its leaves are one row, which may have any number of leaves and is read in parts. Its children are rows
//! among the rows of the branches below them, which the scan skips. Children and leaves that cannot be decoded are skipped
//! and logged. All of them are decoded on the computation threads.
//!
//! Source: OpenTSDB 2.4, `Branch.fetchBranch`.

use std::time::Instant;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_query::{Budget, Held};
use oxtsdb_row_store::{Row, RowFilter, Scan, prefix_end};
use oxtsdb_schema::tree::{BranchDocument, BranchId, LeafDocument, TreeCell};
use oxtsdb_schema::{Tsuid, UidKind, UidWidths};
use tracing::warn;

use super::error::TreeError;
use super::table::{FAMILY_NAME, column};
use super::{NAMES_TIMEOUT, Trees};
use crate::lookup::{Names, SeriesNames, needed_uids};

/// Memory of a leaf beside its texts, in bytes; an estimate.
const LEAF_BYTES: usize = 192;

/// Memory of a tag beside its texts, in bytes.
const TAG_BYTES: usize = 32;

/// A leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The name that the rules yielded; unique in its branch.
    pub display_name: String,
    /// The series.
    pub tsuid: Tsuid,
    /// `None` if a UID of the series has no name.
    pub names: Option<SeriesNames>,
}

/// Some leaves of a branch, by the hashes of their names, and their memory.
#[derive(Debug)]
pub struct Leaves {
    /// Ascending by the hash of the display name.
    pub leaves: Vec<Leaf>,
    /// The memory of `leaves`, charged to the budget of the read until it is dropped.
    pub held: Held,
}

impl Leaf {
    /// Memory, in bytes; an estimate.
    pub fn memory_bytes(&self) -> u64 {
        let names = self.names.as_ref();
        let names = names.map_or(0, |names| names.tags.len() * TAG_BYTES + names.byte_len());
        (LEAF_BYTES + self.display_name.len() + self.tsuid.as_bytes().len() + names) as u64
    }
}

impl Trees {
    /// The document of a branch.
    ///
    /// # Errors
    ///
    /// [`TreeError::BranchNotFound`], or the table cannot be read.
    pub async fn branch(&self, id: &BranchId) -> Result<BranchDocument, TreeError> {
        let table = &self.0.table;
        let columns = column(&TreeCell::Branch);
        let row = table.store.get(&table.name, id.as_bytes(), &columns).await?;
        let cell = row.as_ref().and_then(|row| row.cells().next());
        let Some(cell) = cell else {
            return Err(TreeError::BranchNotFound(id.clone()));
        };
        BranchDocument::decode(cell.value)
            .map_err(|error| table.corrupt(id.as_bytes(), cell.qualifier, error))
    }

    /// The leaves of a branch with the names of their series, by the hashes of their own names. They are charged to a
    /// budget.
    ///
    /// The stream fails if the table cannot be read, the UID service fails, or the budget is exceeded.
    pub fn leaves(&self, branch: BranchId, budget: Budget) -> BoxStream<'static, Result<Leaves, TreeError>> {
        let this = self.clone();
        let opened = async move {
            let table = &this.0.table;
            let parts = table
                .store
                .get_in_parts(&table.name, branch.as_bytes(), FAMILY_NAME);
            let parts = parts.await?.map_err(TreeError::from);
            budget.use_rows(1, 0)?;
            Ok::<_, TreeError>(parts.and_then(move |part| {
                let (this, branch, budget) = (this.clone(), branch.clone(), budget.clone());
                async move { this.named_leaves(branch, part, &budget).await }
            }))
        };
        stream::once(opened).try_flatten().boxed()
    }

    /// The leaves of a part of the row of a branch.
    async fn named_leaves(
        &self,
        branch: BranchId,
        part: Vec<Row>,
        budget: &Budget,
    ) -> Result<Leaves, TreeError> {
        let bytes = part.iter().map(|row| row.byte_len() as u64).sum();
        budget.use_rows(0, bytes)?;
        let of_part = budget.hold(bytes)?;
        let widths = *self.0.uids.widths();
        let decode = move || {
            let cells = part.iter().flat_map(Row::cells);
            let leaves = cells
                .filter(|cell| matches!(TreeCell::decode(cell.qualifier), Some(TreeCell::Leaf(_))))
                .filter_map(|cell| decode_leaf(&branch, cell.value, &widths));
            let leaves: Vec<Leaf> = leaves.collect();
            let needed = needed_uids(leaves.iter().map(|leaf| leaf.tsuid.as_bytes()), &widths);
            (leaves, needed)
        };
        let (mut leaves, needed) = self.0.compute.run(decode).await?;
        let deadline = Some(Instant::now() + NAMES_TIMEOUT);
        let mut resolved = Vec::with_capacity(needed.len());
        for (kind, uids) in UidKind::ALL.into_iter().zip(needed) {
            let names = self.0.uids.names(kind, &uids, deadline).await?;
            resolved.push((kind, uids, names));
        }
        let name = move || {
            let named = resolved.into_iter().flat_map(|(kind, uids, names)| {
                let named = uids.into_iter().zip(names);
                named.filter_map(move |(uid, name)| Some(((kind, uid), name?)))
            });
            let names: Names = named.collect();
            for leaf in &mut leaves {
                leaf.names = SeriesNames::from_tsuid(leaf.tsuid.as_bytes(), &widths, &names);
            }
            leaves
        };
        let leaves = self.0.compute.run(name).await?;
        drop(of_part);
        Ok(Leaves {
            held: budget.hold(leaves.iter().map(Leaf::memory_bytes).sum())?,
            leaves,
        })
    }

    /// The branches directly below one, by the hashes of their names.
    pub fn children(
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
            let compute = this.0.compute.clone();
            Ok::<_, TreeError>(rows.map_err(TreeError::from).and_then(move |batch| {
                let decoded = compute.run(move || batch.iter().filter_map(decode_child).collect());
                async move { Ok(decoded.await?) }
            }))
        };
        stream::once(opened).try_flatten().boxed()
    }
}

fn decode_leaf(branch: &BranchId, value: &[u8], widths: &UidWidths) -> Option<Leaf> {
    let decoded = LeafDocument::decode(value).map_err(|error| error.to_string());
    let leaf = decoded.and_then(|leaf| {
        let tsuid = Tsuid::parse(&leaf.tsuid, widths).map_err(|error| error.to_string())?;
        Ok(Leaf {
            display_name: leaf.display_name,
            tsuid,
            names: None,
        })
    });
    leaf.inspect_err(|error| warn!(%branch, error, "a leaf cannot be decoded"))
        .ok()
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
