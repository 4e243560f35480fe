//! Operators' calls of the UID service: explicit assignments, renames, metadata.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oxtsdb_client::{Results, UidMapping};
use oxtsdb_proto::rejection::Rejection;
use oxtsdb_schema::uid_meta::UidMetaAction;
use oxtsdb_schema::{AssignedUid, Uid, UidKind, UidMeta};

use super::requests::with_deadline;
use super::{Uids, UidsError};
use crate::meta::changes::Subject;

impl Uids {
    /// The UIDs of names, assigned if missing, also of kinds that writes do not assign.
    ///
    /// # Errors
    ///
    /// If the call fails; a name that fails has its rejection in the result.
    pub async fn assign_explicitly(
        &self,
        names: &[(UidKind, &str)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<AssignedUid, Rejection>>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        let assigned = client.get_or_create_uids(names, true).await;
        let assigned = assigned.map_err(UidsError::from_client)?;
        for ((kind, _), assigned) in names.iter().zip(&assigned) {
            if let Ok(assigned) = assigned {
                self.meta_changes().announce(|| Subject::Uid(*kind, assigned.uid));
            }
        }
        Ok(assigned)
    }

    /// Gives a UID another name.
    ///
    /// # Errors
    ///
    /// If the call fails; the rejection of the UID service is the inner result.
    pub async fn rename(
        &self,
        kind: UidKind,
        from: &str,
        to: &str,
        deadline: Option<Instant>,
    ) -> Result<Result<UidMapping, Rejection>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        rejected(client.rename(kind, from, to, None).await)
    }

    /// All mappings, in batches.
    pub(crate) fn export(&self) -> Results<Vec<UidMapping>> {
        self.0.client.export_uids(&UidKind::ALL)
    }

    /// The metadata of UIDs, in their order.
    ///
    /// # Errors
    ///
    /// If the call fails; a UID that fails has its rejection in the result.
    pub async fn get_metas(
        &self,
        uids: &[(UidKind, Uid)],
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<UidMeta, Rejection>>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        client.get_uid_metas(uids).await.map_err(UidsError::from_client)
    }

    /// Changes fields of a UID's metadata.
    ///
    /// # Errors
    ///
    /// If the call fails; the rejection of the UID service is the inner result.
    pub async fn update_meta(
        &self,
        meta: &UidMeta,
        fields: &[&str],
        deadline: Option<Instant>,
    ) -> Result<Result<UidMeta, Rejection>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        let updated = rejected(client.update_uid_meta(meta, Some(fields)).await);
        let changed = (meta.kind, meta.uid);
        self.meta_changes()
            .announce(|| Subject::Uid(changed.0, changed.1));
        updated
    }

    /// Deletes the metadata of a UID.
    ///
    /// # Errors
    ///
    /// If the call fails; the rejection of the UID service is the inner result.
    pub async fn delete_meta(
        &self,
        kind: UidKind,
        uid: Uid,
        deadline: Option<Instant>,
    ) -> Result<Result<(), Rejection>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        let deleted = rejected(client.delete_uid_meta(kind, uid, None).await);
        self.meta_changes().announce(|| Subject::Uid(kind, uid));
        deleted
    }

    /// Creates missing metadata of UIDs, and corrects times of creation, from the hours of their first points, in
    /// seconds.
    ///
    /// # Errors
    ///
    /// If the call fails; a UID that fails has its rejection in the result.
    pub(crate) async fn sync_metas(
        &self,
        first_points: &[(UidKind, Uid, u32)],
        plan_only: bool,
        deadline: Option<Instant>,
    ) -> Result<Vec<Result<UidMetaAction, Rejection>>, UidsError> {
        let client = with_deadline(&self.0.client, deadline);
        let instant = |seconds: u32| UNIX_EPOCH + Duration::from_secs(seconds.into());
        let first_points: Vec<(UidKind, Uid, SystemTime)> = first_points
            .iter()
            .map(|(kind, uid, seconds)| (*kind, *uid, instant(*seconds)))
            .collect();
        let synced = client.sync_uid_meta(&first_points, plan_only).await;
        synced.map_err(UidsError::from_client)
    }
}

/// Separates what the UID service rejects from other failures.
fn rejected<T>(result: Result<T, oxtsdb_client::Error>) -> Result<Result<T, Rejection>, UidsError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(oxtsdb_client::Error::Rejected(rejection)) if !rejection.is_retry_safe() => Ok(Err(*rejection)),
        Err(error) => Err(UidsError::from_client(error)),
    }
}
