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
use super::evaluate::RuleSet;
use super::rule::MAX_RULES_BYTES;
use super::table::{FAMILY_NAME, RulePlace, StoredTree, Tree, column};

/// Attempts of a change that loses against others.
const ATTEMPTS: usize = 8;

/// Bytes of rows after which a page of trees ends.
const PAGE_BYTES: usize = 1 << 20;

/// A page of trees.
#[derive(Debug, Default)]
pub struct TreePage {
    /// Ascending by id.
    pub trees: Vec<Tree>,
    /// Where the next page begins, if more may follow.
    pub next_after: Option<TreeId>,
}

/// The outcome of an edit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// The edit sends no field, or the stored rule has these values already.
    Unchanged,
    /// The rule has no type.
    NoType,
    /// The rule was written, with these values.
    Stored(Box<RuleDocument>),
}

impl Trees {
    /// A tree with its rules.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], or the table cannot be read.
    pub async fn tree(&self, id: TreeId) -> Result<Tree, TreeError> {
        Ok(self.stored(id).await?.tree)
    }

    /// Up to `limit` trees after one, by id. A page ends early after `PAGE_BYTES`.
    ///
    /// # Errors
    ///
    /// If the table cannot be read.
    pub async fn list(&self, after: Option<TreeId>, limit: usize) -> Result<TreePage, TreeError> {
        let columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
        let mut rows = self.0.table.tree_rows(after, columns).await?;
        let (mut page, mut bytes, mut last) = (TreePage::default(), 0, None);
        while let Some(batch) = rows.try_next().await? {
            for row in batch {
                if page.trees.len() == limit || bytes >= PAGE_BYTES {
                    page.next_after = last;
                    return Ok(page);
                }
                bytes += row.byte_len();
                last = TreeId::split_row_key(row.key()).map(|(id, _)| id);
                let stored = self.0.table.decode(row).await?;
                page.trees.extend(stored.map(|stored| stored.tree));
            }
        }
        Ok(page)
    }

    /// Creates a tree. `rules` have any tree id.
    ///
    /// # Errors
    ///
    /// [`TreeError::NoName`], [`TreeError::InvalidRule`], [`TreeError::NoFreeId`], or the table fails.
    pub async fn create(
        &self,
        definition: TreeDocument,
        rules: Vec<RuleDocument>,
    ) -> Result<Tree, TreeError> {
        if definition.name.is_empty() {
            return Err(TreeError::NoName);
        }
        TreeEdit::default().apply(&definition, EditMode::Merge)?;
        let (rules, _) = self.checked(TreeId::FIRST, rules).await?;
        check_total(TreeId::FIRST, rules.iter().map(|rule| rule.encode().len()))?;
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
    pub async fn update(
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
    pub async fn edit_rule(
        &self,
        id: TreeId,
        edit: &RuleEdit,
        mode: EditMode,
    ) -> Result<RuleChange, TreeError> {
        for _ in 0..ATTEMPTS {
            let stored = self.stored(id).await?;
            let at = u32::try_from(edit.level).ok().zip(u32::try_from(edit.order).ok());
            let old = at.and_then(|place| stored.tree.rules.get(&place));
            let rule = match edit.apply(id, old, mode) {
                EditedRule::Unchanged => return Ok(RuleChange::Unchanged),
                EditedRule::NoType => return Ok(RuleChange::NoType),
                EditedRule::Changed(rule) => rule,
            };
            let (mut rules, _) = self.checked(id, vec![*rule]).await?;
            let Some(rule) = rules.pop() else {
                return Ok(RuleChange::Unchanged);
            };
            let (level, order) = place(&rule);
            let old = stored.rules.get(&(level, order)).map(|cell| &*cell.value);
            let value = rule.encode();
            let others = stored.rules.iter().filter(|(place, _)| **place != (level, order));
            let sizes = others.map(|(_, cell)| cell.value.len());
            check_total(id, sizes.chain([value.len()]))?;
            let cell = TreeCell::Rule { level, order };
            if self
                .0
                .table
                .check_and_put(&id.row_key(), cell, old, &value)
                .await?
            {
                self.0.enabled.invalidate();
                return Ok(RuleChange::Stored(Box::new(rule)));
            }
        }
        Err(TreeError::Contended(id))
    }

    /// Stores rules in one atomic write, replacing rules of the same place; with `replace_all` it deletes all others.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], [`TreeError::InvalidRule`], [`TreeError::TooManyRules`], or the table fails.
    pub async fn set_rules(
        &self,
        id: TreeId,
        rules: Vec<RuleDocument>,
        replace_all: bool,
    ) -> Result<Tree, TreeError> {
        let stored = self.stored(id).await?;
        let (rules, places) = self.checked(id, rules).await?;
        let mut others = stored.rules.clone();
        others.retain(|place, _| !places.contains(place));
        let mut deleted = Vec::new();
        if replace_all {
            let others = std::mem::take(&mut others);
            deleted.extend(others.into_iter().map(|(place, cell)| (place, cell.timestamp_ms)));
        }
        let others = others.values().map(|cell| cell.value.len());
        check_total(id, others.chain(rules.iter().map(|rule| rule.encode().len())))?;
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
    pub async fn delete_rules(&self, id: TreeId, places: Option<&[RulePlace]>) -> Result<Tree, TreeError> {
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

    /// Checks that a tree has a definition.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`], or the table cannot be read.
    pub async fn check_exists(&self, id: TreeId) -> Result<(), TreeError> {
        let has_tree = self.0.table.has_tree(id).await?;
        has_tree.then_some(()).ok_or(TreeError::TreeNotFound(id))
    }

    pub(super) async fn stored(&self, id: TreeId) -> Result<StoredTree, TreeError> {
        self.0.table.tree(id).await?.ok_or(TreeError::TreeNotFound(id))
    }

    /// Replaces the encoded definition `expected` (`None`: there is none); `false` if another one is stored.
    ///
    /// # Errors
    ///
    /// If the table cannot be written; the definition may have been stored.
    pub async fn put_definition(
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

    /// Checks rules for a tree, and returns them with their places. Of two rules of one place the last counts.
    async fn checked(
        &self,
        tree: TreeId,
        mut rules: Vec<RuleDocument>,
    ) -> Result<(Vec<RuleDocument>, BTreeSet<RulePlace>), TreeError> {
        check_total(tree, std::iter::repeat_n(0, rules.len()))?;
        let check = move || {
            for rule in &mut rules {
                rule.tree_id = tree.get().into();
            }
            RuleSet::compile(tree, false, &rules)?;
            let mut places = BTreeSet::new();
            rules.reverse();
            rules.retain(|rule| places.insert(place(rule)));
            rules.reverse();
            Ok((rules, places))
        };
        self.0.compute.run(check).await?
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

    /// Puts and deletes rules in one write of the tree's row. A rule is deleted up to the cell timestamp beside its
    /// place, in milliseconds. Rules are not checked.
    ///
    /// # Errors
    ///
    /// If the table cannot be written; the rules may have been changed.
    pub async fn write_rules(
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

/// Checks the number and the bytes of all rules of a tree, from the sizes of their cells.
fn check_total(tree: TreeId, sizes: impl Iterator<Item = usize>) -> Result<(), TreeError> {
    let (count, bytes) = sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size));
    if count > MAX_RULES {
        return Err(TreeError::TooManyRules { tree, count });
    }
    if bytes > MAX_RULES_BYTES {
        return Err(TreeError::RulesTooLarge(tree));
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
