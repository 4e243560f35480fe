//! Names and UIDs: the trait through which queries resolve them.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_schema::{Uid, UidKind};
use rustc_hash::FxHashMap;

use crate::error::QueryError;

/// Why names or UIDs could not be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The directory is unavailable or overloaded. The same query may succeed later.
    #[error("{detail}")]
    Unavailable {
        /// What it reported.
        detail: String,
    },
    /// The deadline passed.
    #[error("{detail}")]
    DeadlineExceeded {
        /// What it reported.
        detail: String,
    },
    /// The directory does not fit the deployment's settings.
    #[error("{detail}")]
    Mismatch {
        /// The difference.
        detail: String,
    },
    /// The directory rejected the call, or its response cannot be used.
    #[error("{detail}")]
    Internal {
        /// What it reported.
        detail: String,
    },
}

/// Resolves names to UIDs and UIDs to names. The caller of the crate implements it.
#[async_trait]
pub trait NameDirectory: Send + Sync + std::fmt::Debug {
    /// The UIDs of names, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the directory fails as a whole.
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError>;

    /// The names of UIDs of one kind, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the directory fails as a whole.
    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError>;
}

/// The names of the UIDs of a result.
#[derive(Debug)]
pub(crate) struct Names(FxHashMap<(UidKind, Uid), Arc<str>>);

impl Names {
    /// Resolves UIDs by kind, in the order of [`UidKind::ALL`], with one call for each kind. UIDs may occur
    /// more than once.
    pub(crate) async fn of_uids(
        needed: [Vec<Uid>; 3],
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let mut names = FxHashMap::default();
        for (kind, mut uids) in UidKind::ALL.into_iter().zip(needed) {
            uids.sort_unstable();
            uids.dedup();
            if uids.is_empty() {
                continue;
            }
            let found = directory.names(kind, &uids, deadline).await?;
            for (uid, name) in uids.into_iter().zip(found) {
                let name = name.ok_or(QueryError::UidWithoutName { kind, uid })?;
                names.insert((kind, uid), name);
            }
        }
        Ok(Self(names))
    }

    /// The name of a UID that was resolved.
    pub(crate) fn name(&self, kind: UidKind, uid: Uid) -> Result<Arc<str>, QueryError> {
        self.0
            .get(&(kind, uid))
            .map(Arc::clone)
            .ok_or(QueryError::UidWithoutName { kind, uid })
    }
}
