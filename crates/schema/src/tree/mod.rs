//! Table `tsdb-tree`: trees, their rules, and the series that the rules have placed.
//!
//! ```text
//!   row key                              qualifier                     value
//!   tree id (2)                          tree                          TreeDocument
//!   tree id                              tree_rule:LEVEL:ORDER         RuleDocument    (decimal text)
//!   tree id                              branch                        BranchDocument  of the root, ROOT
//!   tree id | hash (4) | hash (4) | …    branch                        BranchDocument
//!   tree id | hash (4) | …               leaf: | hash (4)              LeafDocument
//!   tree id | 01                         tree_collision: | TSUID       TSUID of the leaf that has the place, as hex
//!   tree id | 02                         tree_not_matched: | TSUID     the rules that failed, as text
//! ```
//!
//! The family is `t`. Trees have ids from 1 to 65535. A hash is Java's `String.hashCode` of the display name of a
//! branch or a leaf. Names with equal hashes share a row or a column; the first one's document stays. The root's name
//! is not part of a row key, so that the root lies in the row of the definition.
//!
//! Source: OpenTSDB 2.4, `Tree`, `TreeRule`, `Branch`, `Leaf`.

mod documents;
mod rows;

pub use documents::{
    BranchDocument, DocumentError, LeafDocument, RuleDocument, RuleType, TreeDocument, UnknownRuleType,
};
pub use rows::{BranchId, BranchIdError, ROOT_NAME, TreeCell, TreeId, TreeIdError};

#[cfg(test)]
mod tests;
