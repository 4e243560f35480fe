//! Definitions and rules: create, read, change, delete.
//!
//! - **Create** takes the largest id plus one by a compare-and-put on the absent definition; if another program took
//!   it, the next one. OpenTSDB does not notice a lost compare-and-put.
//! - **Changes** compare with the bytes that were read. Without an etag, a change that lost against another is applied
//!   to what that one stored.
//! - A tree with rules is created switched off, then gets its rules in one atomic write of its row, then is switched
//!   on: processing never sees half of its rules.
//!
//! Source: OpenTSDB 2.4, `Tree.createNewTree`, `Tree.storeTree`, `TreeRule.syncToStorage`.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, WriteBatch};
use oxtsdb_schema::tree::{RuleDocument, TreeCell, TreeDocument, TreeId};

use super::Trees;
use super::edit::{EditMode, EditedRule, RuleEdit, TreeEdit};
use super::error::{MAX_RULES, TreeError};
use super::rule::Rule;
use super::table::{FAMILY_NAME, RulePlace, StoredTree, Tree, column};

/// Attempts of a change that loses against others.
const ATTEMPTS: usize = 8;

/// What became of the edit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleChange {
    Unchanged,
    /// The rule has no type.
    NoType,
    Stored(Box<RuleDocument>),
}

impl Trees {
    /// A tree with its rules.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], or the table cannot be read.
    pub(crate) async fn tree(&self, id: TreeId) -> Result<Tree, TreeError> {
        Ok(self.stored(id).await?.tree)
    }

    /// Up to `limit` trees after one, by id.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub(crate) async fn list(&self, after: Option<TreeId>, limit: usize) -> Result<Vec<Tree>, TreeError> {
        let columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
        let mut rows = self.0.table.tree_rows(after, columns).await?;
        let mut trees = Vec::new();
        while let Some(batch) = rows.try_next().await? {
            for row in &batch {
                trees.extend(self.0.table.decode_tree(row)?.map(|stored| stored.tree));
                if trees.len() == limit {
                    return Ok(trees);
                }
            }
        }
        Ok(trees)
    }

    /// Creates a tree. `rules` have any tree id.
    ///
    /// # Errors
    ///
    /// [`TreeError::NoName`], [`TreeError::InvalidRule`], [`TreeError::NoFreeId`], or the table fails.
    pub(crate) async fn create(
        &self,
        definition: TreeDocument,
        mut rules: Vec<RuleDocument>,
    ) -> Result<Tree, TreeError> {
        if definition.name.is_empty() {
            return Err(TreeError::NoName);
        }
        TreeEdit::default().apply(&definition, EditMode::Merge)?;
        check_rules(TreeId::FIRST, &mut rules)?;
        let claim = TreeDocument {
            enabled: definition.enabled && rules.is_empty(),
            ..definition.clone()
        };
        let mut id = match self.largest_id().await? {
            None => TreeId::FIRST,
            Some(largest) => largest.next().ok_or(TreeError::NoFreeId)?,
        };
        while !self.put_definition(id, None, &claim).await? {
            id = id.next().ok_or(TreeError::NoFreeId)?;
        }
        if !rules.is_empty() {
            self.write_rules(id, &rules, &[]).await?;
        }
        if claim != definition
            && !self
                .put_definition(id, Some(&claim.encode()), &definition)
                .await?
        {
            return Err(TreeError::Contended(id));
        }
        self.0.enabled.invalidate();
        self.tree(id).await
    }

    /// Changes a definition. With an etag, only if it is the stored one's.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], [`TreeError::EtagMismatch`], [`TreeError::TextTooLong`],
    /// [`TreeError::Contended`], or the table fails.
    pub(crate) async fn update(
        &self,
        id: TreeId,
        edit: &TreeEdit,
        mode: EditMode,
        etag: Option<&str>,
    ) -> Result<Tree, TreeError> {
        for _ in 0..ATTEMPTS {
            let stored = self.stored(id).await?;
            if let Some(etag) = etag
                && etag != stored.tree.etag
            {
                return Err(TreeError::EtagMismatch {
                    tree: id,
                    stored: stored.tree.etag,
                });
            }
            let edited = edit.apply(&stored.tree.definition, mode)?;
            if self.put_definition(id, Some(&stored.definition), &edited).await? {
                self.0.enabled.invalidate();
                return self.tree(id).await;
            }
        }
        Err(TreeError::Contended(id))
    }

    /// Changes one rule, or adds it.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], [`TreeError::InvalidRule`], [`TreeError::Contended`], or the table fails.
    pub(crate) async fn edit_rule(
        &self,
        id: TreeId,
        edit: &RuleEdit,
        mode: EditMode,
    ) -> Result<RuleChange, TreeError> {
        for _ in 0..ATTEMPTS {
            let stored = self.stored(id).await?;
            let place = u32::try_from(edit.level).ok().zip(u32::try_from(edit.order).ok());
            let old = place.and_then(|place| stored.tree.rules.get(&place));
            let rule = match edit.apply(id, old, mode) {
                EditedRule::Unchanged => return Ok(RuleChange::Unchanged),
                EditedRule::NoType => return Ok(RuleChange::NoType),
                EditedRule::Changed(rule) => rule,
            };
            let key = Rule::compile(&rule)?.key;
            let (level, order) = (key.level, key.order);
            let old = stored.rules.get(&(level, order)).map(|cell| &*cell.value);
            if old.is_none() {
                check_count(id, stored.rules.len() + 1)?;
            }
            let cell = TreeCell::Rule { level, order };
            if self
                .0
                .table
                .check_and_put(&id.row_key(), cell, old, &rule.encode())
                .await?
            {
                self.0.enabled.invalidate();
                return Ok(RuleChange::Stored(rule));
            }
        }
        Err(TreeError::Contended(id))
    }

    /// Stores rules in one atomic write, replacing those of the same place; with `replace_all` it deletes all others.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], [`TreeError::InvalidRule`], [`TreeError::TooManyRules`], or the table fails.
    pub(crate) async fn set_rules(
        &self,
        id: TreeId,
        mut rules: Vec<RuleDocument>,
        replace_all: bool,
    ) -> Result<Tree, TreeError> {
        let stored = self.stored(id).await?;
        let kept = check_rules(id, &mut rules)?;
        let others: Vec<RulePlace> = stored
            .rules
            .keys()
            .filter(|place| !kept.contains(*place))
            .copied()
            .collect();
        let (count, deleted) = match replace_all {
            true => (kept.len(), deletions(&stored, &others)),
            false => (kept.len() + others.len(), Vec::new()),
        };
        check_count(id, count)?;
        self.write_rules(id, &rules, &deleted).await?;
        self.0.enabled.invalidate();
        self.tree(id).await
    }

    /// Deletes rules in one atomic write; `None`: all.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`]; [`TreeError::RuleNotFound`] if one does not exist, then none is deleted; or the
    /// table fails.
    pub(crate) async fn delete_rules(
        &self,
        id: TreeId,
        places: Option<&[RulePlace]>,
    ) -> Result<Tree, TreeError> {
        let mut stored = self.stored(id).await?;
        let all: Vec<RulePlace> = stored.rules.keys().copied().collect();
        let places = places.unwrap_or(&all);
        if let Some((level, order)) = places.iter().find(|place| !stored.rules.contains_key(*place)) {
            return Err(TreeError::RuleNotFound {
                tree: id,
                level: *level,
                order: *order,
            });
        }
        self.write_rules(id, &[], &deletions(&stored, places)).await?;
        self.0.enabled.invalidate();
        stored.tree.rules.retain(|place, _| !places.contains(place));
        Ok(stored.tree)
    }

    pub(super) async fn stored(&self, id: TreeId) -> Result<StoredTree, TreeError> {
        self.0.table.tree(id).await?.ok_or(TreeError::TreeNotFound(id))
    }

    /// Puts a definition in place of another; `false` if the stored one is a third.
    pub(super) async fn put_definition(
        &self,
        id: TreeId,
        expected: Option<&[u8]>,
        definition: &TreeDocument,
    ) -> Result<bool, TreeError> {
        let table = &self.0.table;
        table
            .check_and_put(&id.row_key(), TreeCell::Tree, expected, &definition.encode())
            .await
    }

    async fn largest_id(&self) -> Result<Option<TreeId>, TreeError> {
        let mut rows = self.0.table.tree_rows(None, column(&TreeCell::Tree)).await?;
        let mut largest = None;
        while let Some(batch) = rows.try_next().await? {
            largest = batch
                .last()
                .and_then(|row| TreeId::split_row_key(row.key()))
                .map(|(id, _)| id)
                .or(largest);
        }
        Ok(largest)
    }

    /// Puts and deletes rules in one write of the tree's row.
    async fn write_rules(
        &self,
        id: TreeId,
        rules: &[RuleDocument],
        deleted: &[(RulePlace, i64)],
    ) -> Result<(), TreeError> {
        if rules.is_empty() && deleted.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::new(self.0.table.name.clone());
        let family = batch.family(FAMILY_NAME);
        let row = batch.row(&id.row_key());
        for ((level, order), timestamp_ms) in deleted {
            let cell = TreeCell::Rule {
                level: *level,
                order: *order,
            };
            row.delete_column_up_to(family, &cell.encode(), *timestamp_ms);
        }
        for rule in rules {
            let mut rule = rule.clone();
            rule.tree_id = id.get().into();
            let (level, order) = place(&rule);
            row.put(family, &TreeCell::Rule { level, order }.encode(), &rule.encode());
        }
        Ok(self.0.table.store.write(batch).await?)
    }
}

/// Checks rules for a tree, and returns their places. Of two rules of one place the last counts.
fn check_rules(tree: TreeId, rules: &mut Vec<RuleDocument>) -> Result<BTreeSet<RulePlace>, TreeError> {
    check_count(tree, rules.len())?;
    for rule in rules.iter_mut() {
        rule.tree_id = tree.get().into();
        Rule::compile(rule)?;
    }
    let mut places = BTreeSet::new();
    rules.reverse();
    rules.retain(|rule| places.insert(place(rule)));
    rules.reverse();
    Ok(places)
}

fn check_count(tree: TreeId, count: usize) -> Result<(), TreeError> {
    if count > MAX_RULES {
        return Err(TreeError::TooManyRules { tree, count });
    }
    Ok(())
}

/// The place of a rule that was checked.
fn place(rule: &RuleDocument) -> RulePlace {
    (
        u32::try_from(rule.level).unwrap_or_default(),
        u32::try_from(rule.order).unwrap_or_default(),
    )
}

fn deletions(stored: &StoredTree, places: &[RulePlace]) -> Vec<(RulePlace, i64)> {
    let cell = |place: &RulePlace| stored.rules.get(place).map(|rule| (*place, rule.timestamp_ms));
    places.iter().filter_map(cell).collect()
}
