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
pub struct CorruptCell {
    /// The table of trees.
    pub table: TableName,
    /// The row of a tree or of a branch.
    pub row_key: Vec<u8>,
    /// The column, in family `t`.
    pub qualifier: Vec<u8>,
    pub(crate) error: DocumentError,
}

/// Why an operation on trees failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TreeError {
    /// No definition is stored for the id.
    #[error("tree {0} does not exist")]
    TreeNotFound(TreeId),
    /// No branch is stored for the id.
    #[error("branch {0} does not exist")]
    BranchNotFound(BranchId),
    /// The tree has no rule at this place.
    #[error("tree {tree} has no rule of level {level} and order {order}")]
    RuleNotFound {
        /// The tree, which exists.
        tree: TreeId,
        /// The requested level.
        level: u32,
        /// The requested order on the level.
        order: u32,
    },
    /// A rule that cannot be applied.
    #[error(transparent)]
    InvalidRule(#[from] RuleError),
    /// A new tree needs a name.
    #[error("tree has no name")]
    NoName,
    /// A text of a definition that is too long.
    #[error("{part} has {length} bytes, at most {MAX_TEXT_BYTES} are allowed")]
    TextTooLong {
        /// The field: `name`, `description` or `notes`.
        part: &'static str,
        /// Its length, in bytes.
        length: usize,
    },
    /// The tree would have too many rules.
    #[error("tree {tree} would have {count} rules, at most {MAX_RULES} are allowed")]
    TooManyRules {
        /// The tree.
        tree: TreeId,
        /// Its rules after the change.
        count: usize,
    },
    /// The rules of one tree are too large.
    #[error("the rules of tree {0} take more than {MAX_RULES_BYTES} bytes, as text or compiled")]
    RulesTooLarge(TreeId),
    /// The compiled rules of several trees do not fit in memory together.
    #[error("the rules of all trees of the request take more than {MAX_READY_BYTES} bytes")]
    TreesTooLarge,
    /// The definition has changed since the client read it.
    #[error("the etag is not that of the stored definition of tree {tree}, which is `{stored}`")]
    EtagMismatch {
        /// The tree.
        tree: TreeId,
        /// The etag of the stored definition.
        stored: String,
    },
    /// Other writers kept changing the tree; a retry may succeed.
    #[error("tree {0} is being changed by others, send the change again")]
    Contended(TreeId),
    /// The largest id is in use. Ids of deleted trees below it are not reused.
    #[error("all 65535 ids of trees are in use")]
    NoFreeId,
    /// A stored document that cannot be decoded.
    #[error(transparent)]
    Corrupt(Box<CorruptCell>),
    /// A budget is exceeded, the request was cancelled, or a computation panicked.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The UID service failed.
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
