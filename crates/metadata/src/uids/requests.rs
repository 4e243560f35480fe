//! Requests to the UID service. Their results are checked, and added to the cache.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_client::{NewName, SuggestPage, UidClient};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::rejection::Rejection;
use oxtsdb_schema::{Uid, UidKind};

use super::cache::NameCache;
use super::changes::Mark;
use super::{UidRejection, Uids, UidsError};
use crate::meta::changes::Subject;

impl Uids {
    /// The UIDs of names, `None` for each that has none; both are added to the cache.
    pub(super) async fn request_existing_uids(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Uid>>, UidsError> {
        let mark = self.changes().mark();
        let results = with_deadline(&self.0.client, deadline).lookup_uids(names).await;
        let results = results.map_err(UidsError::from_client)?;
        let mut uids = vec![None; names.len()];
        for ((slot, (kind, name)), result) in uids.iter_mut().zip(names).zip(results) {
            match result {
                Ok(uid) => {
                    let uid = self.checked(*kind, uid)?;
                    self.cache(mark, |cache| cache.insert(*kind, (*name).into(), uid));
                    *slot = Some(uid);
                }
                Err(rejection) if not_found(&rejection) => {
                    self.cache(mark, |cache| cache.insert_absent(*kind, name));
                }
                Err(rejection) => return Err(UidsError::from_item(*kind, name, rejection)),
            }
        }
        Ok(uids)
    }

    /// The UIDs of names, assigned if missing. They are added to the cache, also if the caller no longer waits.
    pub(super) async fn request_uids(
        &self,
        names: &[NewName<String>],
    ) -> Result<Vec<Result<Uid, UidRejection>>, UidsError> {
        let mark = self.changes().mark();
        let results = self.0.client.get_or_create_uids_for_write(names).await;
        let results = results.map_err(UidsError::from_client)?;
        let mut uids = Vec::with_capacity(names.len());
        for (name, result) in names.iter().zip(results) {
            uids.push(match result {
                Ok(assigned) => {
                    let uid = self.checked(name.kind, assigned.uid)?;
                    self.cache(mark, |cache| {
                        cache.insert(name.kind, name.name.as_str().into(), uid);
                    });
                    if assigned.created {
                        self.meta_changes().announce(|| Subject::Uid(name.kind, uid));
                    }
                    Ok(uid)
                }
                Err(rejection) => Err(UidRejection::from_item(rejection)),
            });
        }
        Ok(uids)
    }

    /// The names of UIDs, which are added to the cache; `None` for each UID that has none.
    pub(super) async fn request_names(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<Arc<str>>>, UidsError> {
        let mark = self.changes().mark();
        let request: Vec<(UidKind, Uid)> = uids.iter().map(|uid| (kind, *uid)).collect();
        let results = with_deadline(&self.0.client, deadline)
            .lookup_names(&request)
            .await;
        let results = results.map_err(UidsError::from_client)?;
        let mut names = Vec::with_capacity(uids.len());
        for (uid, result) in uids.iter().zip(results) {
            names.push(match result {
                Ok(name) => {
                    let name: Arc<str> = name.into();
                    self.cache(mark, |cache| cache.insert_name(kind, *uid, Arc::clone(&name)));
                    Some(name)
                }
                Err(rejection) if not_found(&rejection) => None,
                Err(rejection) => return Err(UidsError::from_item(kind, &uid.to_string(), rejection)),
            });
        }
        Ok(names)
    }

    /// A page of names of a kind that start with `prefix`, in byte order: the first page, or
    /// [`SuggestPage::next_page`].
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn suggest(
        &self,
        kind: UidKind,
        prefix: &str,
        (size, page): (usize, Option<String>),
        deadline: Option<Instant>,
    ) -> Result<SuggestPage, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        let page = client.suggest_page(kind, prefix, size, page).await;
        page.map_err(UidsError::from_client)
    }

    /// Caches the result of a look-up that began at `mark`, unless mappings have changed since.
    fn cache(&self, mark: Mark, insert: impl FnOnce(&NameCache)) {
        self.changes().unless_changed(mark, || insert(&self.0.cache));
    }

    /// Rejects a UID of another width: row keys with it could not be decoded.
    fn checked(&self, kind: UidKind, uid: Uid) -> Result<Uid, UidsError> {
        let width = self.widths().get(kind);
        if uid.width() == width {
            return Ok(uid);
        }
        Err(UidsError::InvalidResponse {
            detail: format!(
                "a UID of kind {kind} has {} bytes, its layout says {width}",
                uid.as_bytes().len()
            ),
        })
    }
}

/// The client with a deadline for its calls, if there is one.
pub(super) fn with_deadline(client: &UidClient, deadline: Option<Instant>) -> UidClient {
    match deadline {
        Some(deadline) => client.with_deadline(deadline),
        None => client.clone(),
    }
}

pub(super) fn not_found(rejection: &Rejection) -> bool {
    // An invalid name has no UID.
    matches!(
        rejection.reason,
        Some(ErrorReason::NameNotFound | ErrorReason::UidNotFound | ErrorReason::InvalidName)
    )
}
