//! Metadata of UIDs, at the UID service.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use oxtsdb_client::{Rejection, UidMetaAction};
use oxtsdb_schema::{Uid, UidKind};

use super::requests::with_deadline;
use super::{Uids, UidsError};

impl Uids {
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
