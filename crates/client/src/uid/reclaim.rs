//! Reclaim of UIDs.

use std::time::SystemTime;

use oxtsdb_proto::uid::v1 as pb;

pub use pb::ReclaimState;

use super::{QuotaUsage, UidClient, UidMapping, same_length, types};
use crate::{Error, Rejection, Results};

/// The most mappings in one call; larger batches are split. On HBase each costs several requests.
const BATCH: usize = 512;

/// A UID that is being reclaimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReclaimedUid {
    /// The UID, and the name that it had.
    pub mapping: UidMapping,
    /// Where it is on its way to be assigned again.
    pub state: ReclaimState,
    /// Since when.
    pub state_time: Option<SystemTime>,
    /// When the next step can be done, if that depends on time.
    pub not_before: Option<SystemTime>,
}

/// The result for each of some mappings, in their order.
type StepResults = Result<Vec<Result<(), Rejection>>, Error>;

impl UidClient {
    /// Puts UIDs into quarantine to which a search that started at `search_time` found no reference.
    ///
    /// # Errors
    ///
    /// If the call fails as a whole; a mapping that fails has its rejection in the result.
    pub async fn quarantine_uids(&self, mappings: &[UidMapping], search_time: SystemTime) -> StepResults {
        let mut results = Vec::with_capacity(mappings.len());
        for mappings in mappings.chunks(BATCH) {
            let message = pb::QuarantineUidsRequest {
                mappings: to_wire(mappings),
                search_time: Some(search_time.into()),
            };
            let response = self.connection.call(&message).await?;
            add(&mut results, response.results, mappings)?;
        }
        Ok(results)
    }

    /// Puts the names of UIDs in quarantine back.
    ///
    /// # Errors
    ///
    /// As [`UidClient::quarantine_uids`].
    pub async fn restore_uids(&self, mappings: &[UidMapping]) -> StepResults {
        let mut results = Vec::with_capacity(mappings.len());
        for mappings in mappings.chunks(BATCH) {
            let message = pb::RestoreUidsRequest {
                mappings: to_wire(mappings),
            };
            let response = self.connection.call(&message).await?;
            add(&mut results, response.results, mappings)?;
        }
        Ok(results)
    }

    /// Releases UIDs in quarantine to which a search that started at `search_time`, after the quarantine, found no
    /// reference. `other_caches_dropped`: other programs that write to the tables have dropped their caches of UIDs
    /// since the quarantine.
    ///
    /// # Errors
    ///
    /// As [`UidClient::quarantine_uids`].
    pub async fn release_uids(
        &self,
        mappings: &[UidMapping],
        search_time: SystemTime,
        other_caches_dropped: bool,
    ) -> StepResults {
        let mut results = Vec::with_capacity(mappings.len());
        for mappings in mappings.chunks(BATCH) {
            let message = pb::ReleaseUidsRequest {
                mappings: to_wire(mappings),
                search_time: Some(search_time.into()),
                other_caches_dropped,
            };
            let response = self.connection.call(&message).await?;
            add(&mut results, response.results, mappings)?;
        }
        Ok(results)
    }

    /// Streams the UIDs that are being reclaimed, by kind and UID, in batches.
    ///
    /// # Errors
    ///
    /// If the call fails before the first batch; later errors come in the stream.
    pub async fn list_reclaimed_uids(&self) -> Result<Results<ReclaimedUid>, Error> {
        let request = pb::ListReclaimedUidsRequest {};
        let messages = self.connection.stream(&request).await?;
        Ok(Results::from_messages(messages, |message| {
            message
                .uids
                .into_iter()
                .map(reclaimed)
                .collect::<Result<Vec<_>, _>>()
        }))
    }

    /// Counts the names of all quotas again, and returns their use.
    ///
    /// # Errors
    ///
    /// If the call fails.
    pub async fn count_uid_quotas(&self) -> Result<Vec<QuotaUsage>, Error> {
        let request = pb::CountUidQuotasRequest {};
        let response = self.connection.call(&request).await?;
        types::quotas(response.quotas)
    }
}

fn to_wire(mappings: &[UidMapping]) -> Vec<pb::UidMapping> {
    let mappings = mappings.iter().map(|mapping| pb::UidMapping {
        kind: types::to_wire(mapping.kind),
        name: mapping.name.clone(),
        uid: mapping.uid.as_bytes().to_vec().into(),
    });
    mappings.collect()
}

fn add(
    results: &mut Vec<Result<(), Rejection>>,
    more: Vec<pb::ReclaimResult>,
    mappings: &[UidMapping],
) -> Result<(), Error> {
    same_length(more.len(), mappings.len())?;
    results.extend(more.into_iter().map(|result| match result.error {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }));
    Ok(())
}

fn reclaimed(uid: pb::ReclaimedUid) -> Result<ReclaimedUid, Error> {
    let state = uid.state();
    let mapping = types::mappings(uid.mapping.into_iter().collect())?.pop();
    Ok(ReclaimedUid {
        mapping: mapping.ok_or_else(|| Error::protocol("a reclaimed UID has no mapping"))?,
        state,
        state_time: uid.state_time.and_then(|time| time.try_into().ok()),
        not_before: uid.not_before.and_then(|time| time.try_into().ok()),
    })
}
