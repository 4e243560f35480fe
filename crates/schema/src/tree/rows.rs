//! Row keys and qualifiers.

use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use thiserror::Error;

use crate::hex_text::excerpt;
use crate::java::string_hash;

/// The display name of every tree's root.
pub const ROOT_NAME: &str = "ROOT";

const TREE: &[u8] = b"tree";
const RULE: &[u8] = b"tree_rule:";
const BRANCH: &[u8] = b"branch";
const LEAF: &[u8] = b"leaf:";
const COLLISION: &[u8] = b"tree_collision:";
const NOT_MATCHED: &[u8] = b"tree_not_matched:";

/// The byte behind the tree id in the row of the tree's collisions.
const COLLISION_ROW: u8 = 1;

/// The same in the row of its series that did not match.
const NOT_MATCHED_ROW: u8 = 2;

/// The width of a tree id and of a hash, in bytes.
const ID_BYTES: usize = 2;
const HASH_BYTES: usize = 4;

/// The id of a tree, 1 to 65535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(NonZeroU16);

/// A number that is not the id of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{number} is not the id of a tree, expected 1 to 65535")]
pub struct TreeIdError {
    /// The number.
    pub number: i64,
}

impl TreeId {
    /// The first id that is assigned.
    pub const FIRST: Self = Self(NonZeroU16::MIN);

    /// Checks a number.
    ///
    /// # Errors
    ///
    /// If it is not between 1 and 65535.
    pub fn new(number: impl Into<i64>) -> Result<Self, TreeIdError> {
        let number = number.into();
        let id = u16::try_from(number).ok().and_then(NonZeroU16::new);
        id.map(Self).ok_or(TreeIdError { number })
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// The next id; `None` after the last.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }

    /// The tree of a row key, and the key without the id; `None` if the key is none of this table.
    pub fn split_row_key(key: &[u8]) -> Option<(Self, &[u8])> {
        let (id, rest) = key.split_first_chunk::<ID_BYTES>()?;
        Some((Self(NonZeroU16::new(u16::from_be_bytes(*id))?), rest))
    }

    /// The row of the definition, the rules and the root; the prefix of all rows of the tree.
    pub fn row_key(self) -> [u8; 2] {
        self.get().to_be_bytes()
    }

    /// The row of the tree's collisions.
    pub fn collision_row_key(self) -> [u8; 3] {
        let [high, low] = self.row_key();
        [high, low, COLLISION_ROW]
    }

    /// The row of the series that did not match.
    pub fn not_matched_row_key(self) -> [u8; 3] {
        let [high, low] = self.row_key();
        [high, low, NOT_MATCHED_ROW]
    }
}

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The row key of a branch. `Display` is upper-case hex, as OpenTSDB prints it. Ordered by bytes; a branch precedes
/// all branches below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId(Vec<u8>);

/// Why bytes or text are not the id of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BranchIdError {
    /// Not a tree id followed by hashes.
    #[error(
        "branch id `{branch}` has {length} bytes, expected 2 (a tree id other than 0) and 4 for each level"
    )]
    Length {
        /// The bytes, as hex.
        branch: String,
        /// Their number.
        length: usize,
    },
    /// Text that is not hex.
    #[error("`{text}` is not the id of a branch, expected hex")]
    Hex {
        /// The rejected text.
        text: String,
    },
}

impl BranchId {
    /// The root of a tree.
    pub fn root(tree: TreeId) -> Self {
        Self(tree.row_key().to_vec())
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Self {
        Self([self.0.as_slice(), &name_hash(name)].concat())
    }

    /// Validates stored or received bytes.
    ///
    /// # Errors
    ///
    /// [`BranchIdError::Length`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BranchIdError> {
        match TreeId::split_row_key(bytes) {
            Some((_, hashes)) if hashes.len().is_multiple_of(HASH_BYTES) => Ok(Self(bytes.to_vec())),
            _ => Err(BranchIdError::Length {
                branch: excerpt(bytes),
                length: bytes.len(),
            }),
        }
    }

    /// The row key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The tree.
    pub fn tree(&self) -> TreeId {
        match TreeId::split_row_key(&self.0) {
            Some((tree, _)) => tree,
            None => unreachable!("every constructor checks or writes a tree id"),
        }
    }

    /// The number of levels below the root; the root's is 0.
    pub fn depth(&self) -> usize {
        (self.0.len() - ID_BYTES) / HASH_BYTES
    }

    /// Whether `row_key` is the key of a child, directly below this branch.
    pub fn is_parent_of(&self, row_key: &[u8]) -> bool {
        row_key.len() == self.0.len() + HASH_BYTES && row_key.starts_with(&self.0)
    }

    /// The child that `row_key` is, or lies below; `None` if it is not below this branch or not a branch's.
    pub fn child_above(&self, row_key: &[u8]) -> Option<Self> {
        let child = row_key.get(..self.0.len() + HASH_BYTES)?;
        child.starts_with(&self.0).then(|| Self(child.to_vec()))
    }
}

impl FromStr for BranchId {
    type Err = BranchIdError;

    /// Parses hex; a leading zero may be missing.
    fn from_str(text: &str) -> Result<Self, BranchIdError> {
        let padded = if text.len().is_multiple_of(2) {
            text.to_owned()
        } else {
            format!("0{text}")
        };
        let bytes = hex::decode(&padded).map_err(|_| BranchIdError::Hex {
            text: text.chars().take(64).collect(),
        })?;
        Self::from_bytes(&bytes)
    }
}

impl fmt::Display for BranchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(&self.0))
    }
}

/// The meaning of a cell, by its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeCell<'a> {
    /// The definition.
    Tree,
    /// A rule.
    Rule {
        /// Its level.
        level: u32,
        /// Its order on the level.
        order: u32,
    },
    /// A branch.
    Branch,
    /// The leaf, by the hash of its name.
    Leaf([u8; 4]),
    /// The collision of a series.
    Collision(&'a [u8]),
    /// A series that did not match.
    NotMatched(&'a [u8]),
}

impl<'a> TreeCell<'a> {
    /// The leaf of this name.
    pub fn leaf(name: &str) -> Self {
        Self::Leaf(name_hash(name))
    }

    /// The meaning of a qualifier; `None` if it is not OpenTSDB's.
    pub fn decode(qualifier: &'a [u8]) -> Option<Self> {
        let behind = |prefix: &[u8]| qualifier.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        if qualifier == TREE {
            Some(Self::Tree)
        } else if qualifier == BRANCH {
            Some(Self::Branch)
        } else if let Some(rest) = behind(RULE) {
            let (level, order) = std::str::from_utf8(rest).ok()?.split_once(':')?;
            Some(Self::Rule {
                level: decimal(level)?,
                order: decimal(order)?,
            })
        } else if let Some(hash) = behind(LEAF) {
            hash.try_into().ok().map(Self::Leaf)
        } else if let Some(tsuid) = behind(COLLISION) {
            Some(Self::Collision(tsuid))
        } else {
            behind(NOT_MATCHED).map(Self::NotMatched)
        }
    }

    /// The qualifier.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Tree => TREE.to_vec(),
            Self::Branch => BRANCH.to_vec(),
            Self::Rule { level, order } => [RULE, format!("{level}:{order}").as_bytes()].concat(),
            Self::Leaf(hash) => [LEAF, hash].concat(),
            Self::Collision(tsuid) => [COLLISION, tsuid].concat(),
            Self::NotMatched(tsuid) => [NOT_MATCHED, tsuid].concat(),
        }
    }
}

fn name_hash(name: &str) -> [u8; 4] {
    string_hash(name).to_be_bytes()
}

/// A number as it is written: without sign or leading zeros, within Java's `int`.
fn decimal(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (i32::try_from(number).is_ok() && number.to_string() == text).then_some(number)
}
