//! Stores series in trees.
//!
//! Branches are stored before leaves, so that a crash leaves no leaf out of reach. Both are written by
//! check-and-put on an absent cell, so the first writer wins; a batch first reads which branches exist. A leaf of another
//! series in the same place is a collision. A repetition stores nothing new.
//!
//! A stored leaf that cannot be decoded is logged and kept; series with its place have none.
//!
//! The root is stored with the first series, whether that has a place or not.
//!
//! Collisions and series that did not match are stored if the tree has `storeFailures`. OpenTSDB loses collisions of
//! new series, and never stores series that did not match, whose format it defines.
//!
//! Source: OpenTSDB 2.4, `Branch.storeBranch`, `Leaf.storeLeaf`, `Tree.flushCollisions`, `Tree.flushNotMatched`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, WriteBatch};
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::tree::{BranchDocument, BranchId, LeafDocument, TreeCell};
use tracing::warn;

use super::enabled::ReadyTree;
use super::error::TreeError;
use super::evaluate::{Outcome, Place, SeriesFacts};
use super::rule::RuleKey;
use super::table::{FAMILY_NAME, column};
use super::{CONCURRENT_CALLS, CONCURRENT_PUTS, Trees};

/// Rows that are read at a time.
const READ_ROWS: usize = 512;

/// What became of series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaceCounts {
    /// Leaves that were stored.
    pub placed: u64,
    /// Leaves that existed.
    pub existing: u64,
    /// Series whose place another series has.
    pub collisions: u64,
    /// Series that a strict tree rejected.
    pub not_matched: u64,
    /// Series with fewer than two names, with too large ones, or in the place of a damaged leaf.
    pub without_place: u64,
}

impl std::ops::AddAssign for PlaceCounts {
    fn add_assign(&mut self, other: Self) {
        self.placed += other.placed;
        self.existing += other.existing;
        self.collisions += other.collisions;
        self.not_matched += other.not_matched;
        self.without_place += other.without_place;
    }
}

/// The address of a leaf.
type LeafAddress = (BranchId, [u8; 4]);

/// Places of series that are to be stored.
#[derive(Debug, Default)]
struct Work {
    branches: BTreeMap<BranchId, BranchDocument>,
    /// By branch; the first series of an address.
    leaves: BTreeMap<BranchId, BTreeMap<[u8; 4], LeafDocument>>,
    /// All series with their addresses.
    series: Vec<(Tsuid, LeafAddress)>,
    not_matched: Vec<(Tsuid, String)>,
    counts: PlaceCounts,
}

impl Trees {
    /// Stores series in a tree.
    pub(super) async fn store_series(
        &self,
        tree: &Arc<ReadyTree>,
        series: &Arc<[SeriesFacts]>,
    ) -> Result<PlaceCounts, TreeError> {
        let (rules, series) = (Arc::clone(tree), Arc::clone(series));
        let work = self.0.compute.run(move || Work::of(&rules, &series)).await?;
        self.store_branches(&work.branches).await?;
        let stored = self.store_leaves(&work.leaves).await?;
        let mut counts = work.counts;
        let mut collisions = Vec::new();
        for (tsuid, address) in work.series {
            match stored.get(&address) {
                Some((holder, is_new)) if holder.eq_ignore_ascii_case(&tsuid.to_string()) => {
                    counts.placed += u64::from(*is_new);
                    counts.existing += u64::from(!is_new);
                }
                Some((holder, _)) => collisions.push((tsuid, holder.clone())),
                None => counts.without_place += 1,
            }
        }
        counts.collisions += collisions.len() as u64;
        if tree.store_failures {
            let id = tree.id;
            self.store_failures(&id.collision_row_key(), TreeCell::Collision, &collisions)
                .await?;
            self.store_failures(&id.not_matched_row_key(), TreeCell::NotMatched, &work.not_matched)
                .await?;
        }
        Ok(counts)
    }

    /// Stores the branches that do not exist.
    async fn store_branches(&self, branches: &BTreeMap<BranchId, BranchDocument>) -> Result<(), TreeError> {
        let table = &self.0.table;
        let all: Vec<(&BranchId, &BranchDocument)> = branches.iter().collect();
        for chunk in all.chunks(READ_ROWS) {
            let keys: Vec<Vec<u8>> = chunk.iter().map(|(id, _)| id.as_bytes().to_vec()).collect();
            let found = table
                .store
                .get_rows(&table.name, &keys, &column(&TreeCell::Branch), None)
                .await?;
            let missing: Vec<_> = chunk
                .iter()
                .zip(found)
                .filter(|(_, row)| row.is_none())
                .map(|((id, document), _)| {
                    let (table, id, value) = (table.clone(), (*id).clone(), document.encode());
                    // Another program may store it first, with the same document.
                    async move {
                        table
                            .check_and_put(id.as_bytes(), TreeCell::Branch, None, &value)
                            .await
                    }
                })
                .collect();
            stream::iter(missing)
                .buffer_unordered(CONCURRENT_PUTS)
                .try_collect::<Vec<bool>>()
                .await?;
        }
        Ok(())
    }

    /// Stores the leaves that do not exist. Returns the series of each, and whether it was stored now.
    async fn store_leaves(
        &self,
        leaves: &BTreeMap<BranchId, BTreeMap<[u8; 4], LeafDocument>>,
    ) -> Result<HashMap<LeafAddress, (String, bool)>, TreeError> {
        let rows: Vec<_> = leaves
            .iter()
            .map(|(branch, leaves)| {
                let (this, branch, leaves) = (self.clone(), branch.clone(), leaves.clone());
                async move { this.existing_leaves(branch, leaves).await }
            })
            .collect();
        let rows: Vec<Vec<_>> = stream::iter(rows)
            .buffer_unordered(CONCURRENT_CALLS)
            .try_collect()
            .await?;
        // A branch may have all leaves of a tree, so that its leaves are not stored one after the other.
        let stored = rows.into_iter().flatten().map(|(address, leaf, existing)| {
            let this = self.clone();
            async move { this.store_leaf(address, leaf, existing).await }
        });
        let stored: Vec<Option<_>> = stream::iter(stored)
            .buffer_unordered(CONCURRENT_PUTS)
            .try_collect()
            .await?;
        Ok(stored.into_iter().flatten().collect())
    }

    /// The leaves of a branch with what is stored in their cells.
    async fn existing_leaves(
        self,
        branch: BranchId,
        leaves: BTreeMap<[u8; 4], LeafDocument>,
    ) -> Result<Vec<(LeafAddress, LeafDocument, Option<Vec<u8>>)>, TreeError> {
        let table = &self.0.table;
        let columns = leaves
            .keys()
            .map(|hash| (FAMILY_NAME.to_owned(), TreeCell::Leaf(*hash).encode()));
        let columns = ColumnSelection::Columns(columns.collect());
        let row = table.store.get(&table.name, branch.as_bytes(), &columns).await?;
        let existing = leaves.into_iter().map(|(hash, leaf)| {
            let cell = TreeCell::Leaf(hash).encode();
            let existing = row.as_ref().and_then(|row| row.get(FAMILY_NAME, &cell));
            let existing = existing
                .map(|cell| cell.value.to_vec())
                .filter(|value| !value.is_empty());
            ((branch.clone(), hash), leaf, existing)
        });
        Ok(existing.collect())
    }

    /// Stores a leaf unless there is one. Returns the series of the stored leaf, and whether it was stored now; `None` if
    /// the stored leaf is damaged.
    async fn store_leaf(
        self,
        address: LeafAddress,
        leaf: LeafDocument,
        existing: Option<Vec<u8>>,
    ) -> Result<Option<(LeafAddress, (String, bool))>, TreeError> {
        let table = &self.0.table;
        let (branch, cell) = (address.0.as_bytes(), TreeCell::Leaf(address.1));
        let existing = match existing {
            Some(existing) => Some(existing),
            None if table.check_and_put(branch, cell, None, &leaf.encode()).await? => None,
            // Another program stored a leaf meanwhile.
            None => {
                let row = table.store.get(&table.name, branch, &column(&cell)).await?;
                let found = row.as_ref().and_then(|row| row.get(FAMILY_NAME, &cell.encode()));
                Some(found.map_or(Vec::new(), |cell| cell.value.to_vec()))
            }
        };
        let outcome = match existing.as_deref().map(LeafDocument::decode) {
            None => (leaf.tsuid, true),
            Some(Ok(holder)) => (holder.tsuid, false),
            Some(Err(error)) => {
                let error = table.corrupt(branch, &cell.encode(), error);
                warn!(%error, series = leaf.tsuid, "a leaf is damaged, its place cannot be used");
                return Ok(None);
            }
        };
        Ok(Some((address, outcome)))
    }

    async fn store_failures<'a>(
        &self,
        row_key: &[u8],
        cell: impl Fn(&'a [u8]) -> TreeCell<'a>,
        failures: &'a [(Tsuid, String)],
    ) -> Result<(), TreeError> {
        if failures.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::new(self.0.table.name.clone());
        let family = batch.family(FAMILY_NAME);
        let row = batch.row(row_key);
        for (tsuid, text) in failures {
            row.put(family, &cell(tsuid.as_bytes()).encode(), text.as_bytes());
        }
        Ok(self.0.table.store.write(batch).await?)
    }
}

impl Work {
    /// Evaluates the rules of a tree.
    fn of(tree: &ReadyTree, series: &[SeriesFacts]) -> Self {
        let mut work = Self::default();
        if !series.is_empty() {
            work.branches
                .insert(BranchId::root(tree.id), BranchDocument::root());
        }
        for facts in series {
            match tree.rules.place(facts) {
                Outcome::Place(place) => work.add(tree, facts, &place),
                Outcome::NotMatched { failed, .. } => {
                    work.counts.not_matched += 1;
                    let failed: Vec<String> = failed.iter().map(RuleKey::to_string).collect();
                    work.not_matched.push((facts.tsuid.clone(), failed.join(" ")));
                }
                Outcome::TooFewNames(_) | Outcome::TooLarge(_) => work.counts.without_place += 1,
            }
        }
        work
    }

    fn add(&mut self, tree: &ReadyTree, facts: &SeriesFacts, place: &Place) {
        let (mut id, mut document) = (BranchId::root(tree.id), BranchDocument::root());
        for name in &place.branches {
            let (child, named) = (id.child(name), document.child(name));
            self.branches.entry(id).or_insert(document);
            (id, document) = (child, named);
        }
        let leaf = LeafDocument {
            display_name: place.leaf.clone(),
            tsuid: facts.tsuid.to_string(),
        };
        let TreeCell::Leaf(hash) = TreeCell::leaf(&place.leaf) else {
            unreachable!("a leaf has a leaf's cell");
        };
        self.leaves
            .entry(id.clone())
            .or_default()
            .entry(hash)
            .or_insert(leaf);
        self.series.push((facts.tsuid.clone(), (id.clone(), hash)));
        self.branches.entry(id).or_insert(document);
    }
}
