//! The names behind UIDs, as queries ask for them.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_schema::{Uid, UidKind};
use rustc_hash::FxHashMap;

use super::error::QueryError;
use crate::uids::{Uids, UidsError};

/// Finds UIDs and names. Implemented by [`Uids`]; tests have a table of their own.
#[async_trait]
pub trait NameDirectory: Send + Sync + std::fmt::Debug {
    /// The UIDs of names, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the UID service cannot be asked.
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, UidsError>;

    /// The names of UIDs of one kind, in their order; `None` for each that has none.
    ///
    /// # Errors
    ///
    /// When the UID service cannot be asked.
    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError>;
}

/// The names of the UIDs of an answer.
#[derive(Debug)]
pub(crate) struct Names(FxHashMap<(UidKind, Uid), Arc<str>>);

impl Names {
    /// Looks up UIDs by kind, in the order of [`UidKind::ALL`], with a call for each kind. UIDs may be
    /// there several times.
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

    /// The name of a UID that was looked up.
    pub(crate) fn name(&self, kind: UidKind, uid: Uid) -> Result<Arc<str>, QueryError> {
        self.0
            .get(&(kind, uid))
            .map(Arc::clone)
            .ok_or(QueryError::UidWithoutName { kind, uid })
    }
}

#[async_trait]
impl NameDirectory for Uids {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, UidsError> {
        Uids::uids(self, names, deadline).await
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        Uids::names(self, kind, uids, deadline).await
    }
}
