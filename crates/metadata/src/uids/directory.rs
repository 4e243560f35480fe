//! Names for queries: [`NameDirectory`] over the UID service.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_query::{NameDirectory, NameError, NameGeneration};
use oxtsdb_schema::{Uid, UidKind};

use super::{Uids, UidsError};

#[async_trait]
impl NameDirectory for Uids {
    async fn uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, NameError> {
        Uids::uids(self, names, deadline).await.map_err(name_error)
    }

    async fn names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, NameError> {
        Uids::names(self, kind, uids, deadline).await.map_err(name_error)
    }

    fn generation(&self) -> Option<NameGeneration> {
        Some(NameGeneration {
            changes: self.changes().count(),
            age: self.0.cache.age(),
        })
    }
}

pub(crate) fn name_error(error: UidsError) -> NameError {
    let detail = error.to_string();
    match error {
        UidsError::Unavailable { .. } | UidsError::Busy { .. } => NameError::Unavailable { detail },
        UidsError::DeadlineExceeded => NameError::DeadlineExceeded { detail },
        UidsError::Layout { .. } => NameError::Mismatch { detail },
        UidsError::Rejected { .. } | UidsError::InvalidResponse { .. } => NameError::Internal { detail },
    }
}
