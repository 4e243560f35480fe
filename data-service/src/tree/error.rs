//! Errors of trees.

use oxtsdb_query::QueryError;
use oxtsdb_resources::Panicked;
use oxtsdb_row_store::{StoreError, TableName};
use oxtsdb_schema::tree::{BranchId, DocumentError, TreeId};

use super::rule::{MAX_RULES_BYTES, MAX_TEXT_BYTES, RuleError};
use crate::uids::UidsError;

/// The most rules of a tree.
pub(crate) const MAX_RULES: usize = 1000;

/// The most bytes of the compiled rules of all trees that series are placed in.
pub(crate) const MAX_READY_BYTES: usize = 32 << 20;

/// A stored document that cannot be decoded.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "table `{table}`, row `{}`, qualifier `{}` {error}",
    hex::encode_upper(row_key),
    String::from_utf8_lossy(qualifier)
)]
pub(crate) struct CorruptCell {
    pub(crate) table: TableName,
    pub(crate) row_key: Vec<u8>,
    pub(crate) qualifier: Vec<u8>,
    pub(crate) error: DocumentError,
}

/// Why an operation on trees failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("tree {0} does not exist")]
    TreeNotFound(TreeId),
    #[error("branch {0} does not exist")]
    BranchNotFound(BranchId),
    #[error("tree {tree} has no rule of level {level} and order {order}")]
    RuleNotFound { tree: TreeId, level: u32, order: u32 },
    #[error(transparent)]
    InvalidRule(#[from] RuleError),
    #[error("tree has no name")]
    NoName,
    #[error("{part} has {length} bytes, at most {MAX_TEXT_BYTES} are allowed")]
    TextTooLong { part: &'static str, length: usize },
    #[error("tree {tree} would have {count} rules, at most {MAX_RULES} are allowed")]
    TooManyRules { tree: TreeId, count: usize },
    #[error("the rules of tree {0} take more than {MAX_RULES_BYTES} bytes, as text or compiled")]
    RulesTooLarge(TreeId),
    #[error("the rules of all trees of the request take more than {MAX_READY_BYTES} bytes")]
    TreesTooLarge,
    #[error("the etag is not that of the stored definition of tree {tree}, which is `{stored}`")]
    EtagMismatch { tree: TreeId, stored: String },
    #[error("tree {0} is being changed by others, send the change again")]
    Contended(TreeId),
    #[error("all 65535 ids of trees are in use")]
    NoFreeId,
    #[error(transparent)]
    Corrupt(Box<CorruptCell>),
    #[error(transparent)]
    Query(#[from] QueryError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Uids(#[from] UidsError),
}

impl From<Panicked> for TreeError {
    fn from(panicked: Panicked) -> Self {
        Self::Query(panicked.into())
    }
}

impl TreeError {
    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Uids(error) => error.is_transient(),
            Self::Contended(_) => true,
            Self::TreeNotFound(_)
            | Self::BranchNotFound(_)
            | Self::RuleNotFound { .. }
            | Self::InvalidRule(_)
            | Self::NoName
            | Self::TextTooLong { .. }
            | Self::TooManyRules { .. }
            | Self::RulesTooLarge(_)
            | Self::TreesTooLarge
            | Self::EtagMismatch { .. }
            | Self::NoFreeId
            | Self::Query(_)
            | Self::Corrupt(_) => false,
        }
    }
}
