//! Calls about metadata of UIDs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_schema::uid_meta::UidMetaAction;
use oxtsdb_schema::{Uid, UidKind, UidMeta};
use prost_types::{FieldMask, Timestamp};

use super::{UidClient, no_outcome, same_length, types, uid_value};
use crate::results::Progress;
use crate::{Error, Rejection, Results};

/// The most UIDs in a call of BatchGetUidMeta; larger batches are split.
const MAX_GET: usize = 1000;

/// UIDs in a call of SyncUidMeta. On HBase each document costs a request.
const SYNC_BATCH: usize = 1024;

/// Progress of a purge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgedUidMeta {
    /// Documents found.
    pub documents: u64,
    /// Documents deleted.
    pub deleted: u64,
    /// Whether this is the last message.
    pub is_done: bool,
}

fn from_wire(meta: pb::UidMeta) -> Result<UidMeta, Error> {
    Ok(UidMeta {
        kind: types::kind_from_wire(meta.kind)?,
        uid: types::uid(&meta.uid)?,
        name: meta.name,
        display_name: meta.display_name,
        description: meta.description,
        notes: meta.notes,
        created: meta.created.and_then(|created| instant(created.seconds)),
        custom: meta.custom.map(|custom| custom.into_fields().collect()),
        etag: meta.etag,
    })
}

/// The message of an update: the name is output only.
fn to_wire(meta: &UidMeta) -> pb::UidMeta {
    pb::UidMeta {
        name: String::new(),
        ..meta.clone().into()
    }
}

impl UidClient {
    /// Returns the metadata of a UID.
    ///
    /// # Errors
    ///
    /// If the call fails, among others because the UID has no name.
    pub async fn get_uid_meta(&self, kind: UidKind, uid: Uid) -> Result<UidMeta, Error> {
        let message = pb::GetUidMetaRequest {
            kind: types::to_wire(kind),
            uid: uid.as_bytes().to_vec().into(),
        };
        let response = self.connection.call(&message).await?;
        from_wire(response.meta.ok_or_else(no_meta)?)
    }

    /// Returns the metadata of each UID, in the order of the UIDs.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a UID that fails has its rejection in the result.
    pub async fn get_uid_metas(
        &self,
        uids: &[(UidKind, Uid)],
    ) -> Result<Vec<Result<UidMeta, Rejection>>, Error> {
        use pb::batch_get_uid_meta_response::result::Outcome;

        let mut metas = Vec::with_capacity(uids.len());
        for uids in uids.chunks(MAX_GET) {
            let message = pb::BatchGetUidMetaRequest {
                uids: uids.iter().map(uid_value).collect(),
            };
            let response = self.connection.call(&message).await?;
            same_length(response.results.len(), uids.len())?;
            for result in response.results {
                metas.push(match result.outcome.ok_or_else(no_outcome)? {
                    Outcome::Meta(meta) => Ok(from_wire(meta)?),
                    Outcome::Error(error) => Err(error.into()),
                });
            }
        }
        Ok(metas)
    }

    /// Changes fields of a UID's metadata, and returns all of it. `fields` are named as in the contract
    /// (`display_name`); `None`: all that are not empty.
    ///
    /// # Errors
    ///
    /// If the call fails, among others because of another etag.
    pub async fn update_uid_meta(&self, meta: &UidMeta, fields: Option<&[&str]>) -> Result<UidMeta, Error> {
        let message = pb::UpdateUidMetaRequest {
            meta: Some(to_wire(meta)),
            update_mask: fields.map(field_mask),
        };
        let response = self.connection.call(&message).await?;
        from_wire(response.meta.ok_or_else(no_meta)?)
    }

    /// Deletes the metadata of a UID. With an etag, the stored document must have it.
    ///
    /// # Errors
    ///
    /// If the call fails, among others because of another etag.
    pub async fn delete_uid_meta(&self, kind: UidKind, uid: Uid, etag: Option<&str>) -> Result<(), Error> {
        let message = pb::DeleteUidMetaRequest {
            kind: types::to_wire(kind),
            uid: uid.as_bytes().to_vec().into(),
            etag: etag.unwrap_or_default().to_owned(),
        };
        self.connection.call(&message).await.map(drop)
    }

    /// Creates missing metadata of UIDs and corrects times of creation, from the times of the first points that use
    /// them. With `plan_only` nothing is changed.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a UID that fails has its rejection in the result.
    pub async fn sync_uid_meta(
        &self,
        first_points: &[(UidKind, Uid, SystemTime)],
        plan_only: bool,
    ) -> Result<Vec<Result<UidMetaAction, Rejection>>, Error> {
        use pb::sync_uid_meta_response::{Action, result::Outcome};

        let mut done = Vec::with_capacity(first_points.len());
        for first_points in first_points.chunks(SYNC_BATCH) {
            let item = |(kind, uid, time): &(UidKind, Uid, SystemTime)| pb::sync_uid_meta_request::Item {
                kind: types::to_wire(*kind),
                uid: uid.as_bytes().to_vec().into(),
                first_point: Some(timestamp(*time)),
            };
            let message = pb::SyncUidMetaRequest {
                items: first_points.iter().map(item).collect(),
                validate_only: plan_only,
            };
            let response = self.connection.call(&message).await?;
            same_length(response.results.len(), first_points.len())?;
            for result in response.results {
                done.push(match result.outcome.ok_or_else(no_outcome)? {
                    Outcome::Action(action) => Ok(match Action::try_from(action) {
                        Ok(Action::Created) => UidMetaAction::Created,
                        Ok(Action::Corrected) => UidMetaAction::Corrected,
                        Ok(Action::None | Action::Unspecified) | Err(_) => UidMetaAction::None,
                    }),
                    Outcome::Error(error) => Err(error.into()),
                });
            }
        }
        Ok(done)
    }

    /// Deletes the metadata of all UIDs; with `plan_only` it is only counted. A stream that breaks is resumed where
    /// it broke. Counts are of the whole purge.
    pub fn purge_uid_meta(&self, plan_only: bool) -> Results<PurgedUidMeta> {
        let request = pb::PurgeUidMetaRequest {
            validate_only: plan_only,
            start_after: Vec::new().into(),
        };
        let progress = Results::resumed(
            self.connection.clone(),
            request,
            |request, progress: &pb::PurgeUidMetaResponse| {
                request.start_after = progress.position.clone();
                if progress.position.is_empty() {
                    Progress::Complete
                } else {
                    Progress::More
                }
            },
        );
        let (mut documents, mut deleted) = (0, 0);
        progress
            .convert(move |progress| {
                documents += progress.documents;
                deleted += progress.deleted;
                Ok(PurgedUidMeta {
                    documents,
                    deleted,
                    is_done: progress.position.is_empty(),
                })
            })
            .ending_with(|progress| progress.is_done)
    }
}

pub(crate) fn field_mask(fields: &[&str]) -> FieldMask {
    FieldMask {
        paths: fields.iter().map(|field| (*field).to_owned()).collect(),
    }
}

/// An instant, to the second; `None` before 1970.
fn instant(seconds: i64) -> Option<SystemTime> {
    let seconds = u64::try_from(seconds).ok()?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn timestamp(instant: SystemTime) -> Timestamp {
    let since = instant.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: 0,
    }
}

pub(crate) fn no_meta() -> Error {
    Error::protocol("the response has no metadata")
}
