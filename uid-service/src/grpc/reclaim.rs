//! `UidReclaimService`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, item_error};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::uid_reclaim_service_server::{UidReclaimService, UidReclaimServiceServer};
use oxtsdb_uids::reclaim::{ReclaimError, Record, State, Step};
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::uids::Uids;
use prost_types::Timestamp;
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use super::{MAX_REQUEST_BYTES, convert, status, usage};

/// `UidReclaimService` over [`Uids`]. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidReclaimServiceHandler {
    uids: Arc<Uids>,
}

/// The tonic service.
pub(crate) fn server(uids: Arc<Uids>) -> UidReclaimServiceServer<UidReclaimServiceHandler> {
    UidReclaimServiceServer::new(UidReclaimServiceHandler { uids }, MAX_REQUEST_BYTES)
}

#[tonic::async_trait]
impl UidReclaimService for UidReclaimServiceHandler {
    async fn quarantine_uids(
        &self,
        request: Request<pb::QuarantineUidsRequest>,
    ) -> Result<Response<pb::QuarantineUidsResponse>, Status> {
        let request = request.into_inner();
        let searched_at = search_time(request.search_time)?;
        let step = Step::Quarantine { searched_at };
        let results = self.step(step, &request.mappings).await?;
        Ok(Response::new(pb::QuarantineUidsResponse { results }))
    }

    async fn restore_uids(
        &self,
        request: Request<pb::RestoreUidsRequest>,
    ) -> Result<Response<pb::RestoreUidsResponse>, Status> {
        let results = self.step(Step::Restore, &request.into_inner().mappings).await?;
        Ok(Response::new(pb::RestoreUidsResponse { results }))
    }

    async fn release_uids(
        &self,
        request: Request<pb::ReleaseUidsRequest>,
    ) -> Result<Response<pb::ReleaseUidsResponse>, Status> {
        let request = request.into_inner();
        let searched_at = search_time(request.search_time)?;
        if self.uids.has_other_writers() && !request.other_caches_dropped {
            let rule =
                "is false, but other programs can write to this table: their caches must be dropped first";
            return Err(invalid_field("other_caches_dropped", rule));
        }
        let step = Step::Release { searched_at };
        let results = self.step(step, &request.mappings).await?;
        Ok(Response::new(pb::ReleaseUidsResponse { results }))
    }

    async fn list_reclaimed_uids(
        &self,
        _request: Request<pb::ListReclaimedUidsRequest>,
    ) -> Result<Response<MessageStream<pb::ListReclaimedUidsResponse>>, Status> {
        let records = self.uids.reclaimed().await;
        let records = records.map_err(|failure| status::status(&failure))?;
        let quarantine = self.uids.quarantine();
        let batches = records.map_err(|failure| status::status(&failure));
        // A batch of the store has at most as many rows as a message has records.
        let batches = batches.map_ok(move |records| pb::ListReclaimedUidsResponse {
            uids: records
                .iter()
                .filter_map(|record| reclaimed(record, quarantine))
                .collect(),
        });
        let batches = batches.try_filter(|batch| std::future::ready(!batch.uids.is_empty()));
        Ok(Response::new(batches.boxed()))
    }

    async fn count_uid_quotas(
        &self,
        _request: Request<pb::CountUidQuotasRequest>,
    ) -> Result<Response<pb::CountUidQuotasResponse>, Status> {
        let quotas = self.uids.quotas().await;
        let quotas = quotas.map_err(|failure| status::status(&failure))?;
        let uids = Arc::clone(&self.uids);
        tokio::spawn(async move {
            if let Err(error) = uids.count_quotas(SystemTime::now()).await {
                warn!(%error, "failed to count the names of the quotas");
            }
        });
        let quotas = quotas.iter().map(usage::quota).collect();
        Ok(Response::new(pb::CountUidQuotasResponse { quotas }))
    }
}

impl UidReclaimServiceHandler {
    async fn step(&self, step: Step, mappings: &[pb::UidMapping]) -> Result<Vec<pb::ReclaimResult>, Status> {
        convert::check_batch("mappings", mappings.len(), convert::MAX_BATCH)?;
        let width = |kind| self.uids.layout().width(kind);
        let (valid, invalid) = super::partition(mappings, |index, mapping| {
            convert::stored_mapping(index, mapping, width)
        });
        let outcomes = self.uids.reclaim(step, &valid, SystemTime::now()).await;
        // When nothing was done, the call may as well be repeated as a whole.
        if !outcomes.iter().any(Result::is_ok)
            && let Some(failure) = outcomes.iter().find_map(unavailable)
        {
            return Err(failure);
        }
        Ok(super::in_order(invalid, outcomes, |outcome| pb::ReclaimResult {
            error: match outcome {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(item(&error)),
                Err(error) => Some(error),
            },
        }))
    }
}

fn unavailable(outcome: &Result<(), ReclaimError>) -> Option<Status> {
    match outcome {
        Err(ReclaimError::Service(failure)) if status::is_unavailable(failure) => {
            Some(status::status(failure))
        }
        _ => None,
    }
}

fn search_time(time: Option<Timestamp>) -> Result<SystemTime, Status> {
    let time = time.ok_or_else(|| invalid_field("search_time", "is missing"))?;
    SystemTime::try_from(time).map_err(|error| invalid_field("search_time", error.to_string()))
}

fn reclaimed(record: &Record, quarantine: Duration) -> Option<pb::ReclaimedUid> {
    let state = match record.state {
        State::Done => return None,
        State::Quarantining => pb::ReclaimState::Quarantining,
        State::Quarantined => pb::ReclaimState::Quarantined,
        State::Restoring => pb::ReclaimState::Restoring,
        State::Releasing => pb::ReclaimState::Releasing,
        State::Free => pb::ReclaimState::Free,
    };
    let waits = matches!(record.state, State::Quarantined | State::Free);
    let mapping = Mapping {
        kind: record.kind,
        name: record.name.clone(),
        uid: record.uid,
    };
    Some(pb::ReclaimedUid {
        mapping: Some(convert::mapping(&mapping)),
        state: state.into(),
        state_time: Some(record.since.into()),
        not_before: waits.then(|| (record.since + quarantine).into()),
    })
}

fn item(error: &ReclaimError) -> ItemError {
    let (code, reason, kind, uid) = match error {
        ReclaimError::OtherUid { kind, uid, .. } => (Code::Aborted, ErrorReason::UidMismatch, kind, uid),
        ReclaimError::Changed { kind, uid, .. } => (Code::Aborted, ErrorReason::StateChanged, kind, uid),
        ReclaimError::TooEarly { kind, uid, .. } => {
            (Code::FailedPrecondition, ErrorReason::ReclaimTooEarly, kind, uid)
        }
        ReclaimError::Service(failure) => return status::item(failure),
    };
    let uid = uid.to_string();
    let mut metadata = vec![("kind", convert::kind_name(*kind)), ("uid", uid.as_str())];
    let name;
    if let ReclaimError::OtherUid { name: of_error, .. } = error {
        name = of_error.to_text();
        metadata.push(("name", &name));
    }
    item_error(code, reason, error.to_string(), &metadata)
}
