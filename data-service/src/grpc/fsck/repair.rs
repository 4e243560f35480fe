//! `DataAdminService.RepairRows`.

use std::collections::HashSet;

use oxtsdb_maintenance::fsck::Fsck;
use oxtsdb_maintenance::fsck::repair::{RepairError, STORE_TIME};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::data::v1::repair_rows_response::result::Outcome;
use oxtsdb_proto::data::v1::repair_rows_response::{Effect, Result as ItemResult};
use oxtsdb_proto::data::v1::{RepairRowsRequest, RepairRowsResponse, RowRepair};
use oxtsdb_proto::error::{invalid_item, status};
use oxtsdb_row_store::repair::Applied;
use oxtsdb_schema::row::RowChange;
use oxtsdb_server::repairs::{self, Failure};
use tonic::{Code, Request, Response, Status};

use super::super::DataServiceHandler;

/// Maximum count of changes of a request, and so of a repair.
pub(super) const MAX_CHANGES: usize = 65_536;

/// `DataAdminService.RepairRows`.
pub(in crate::grpc) async fn repair_rows(
    handler: &DataServiceHandler,
    request: Request<RepairRowsRequest>,
) -> Result<Response<RepairRowsResponse>, Status> {
    let request = request.into_inner();
    let counts = request.repairs.iter().map(|repair| repair.changes.len());
    repairs::check_size(counts, MAX_CHANGES)?;
    let results = repairs::apply_each(request.repairs, |index, repair| {
        apply(handler.fsck.clone(), index, repair)
    });
    let results = results.await?.into_iter().map(|result| ItemResult {
        outcome: Some(match result {
            Ok(Applied::Changed) => Outcome::Effect(Effect::Changed.into()),
            Ok(Applied::Already) => Outcome::Effect(Effect::Unchanged.into()),
            Err(error) => Outcome::Error(error),
        }),
    });
    Ok(Response::new(RepairRowsResponse {
        results: results.collect(),
    }))
}

/// Applies a repair in a task of its own: it is not interrupted when the call is cancelled.
async fn apply(fsck: Fsck, index: usize, repair: RowRepair) -> Result<Applied, Failure> {
    let (row_key, changes) = changes(index, repair)?;
    let task = tokio::spawn(async move { fsck.repair(&row_key, &changes).await });
    let applied = task.await.map_err(|error| {
        let message = format!("the repair was interrupted: {error}");
        status(Code::Internal, ErrorReason::Internal, message, &[])
    })?;
    applied.map_err(|error| failure(index, error))
}

/// The row and the changes of a repair, checked.
fn changes(index: usize, repair: RowRepair) -> Result<(Vec<u8>, Vec<RowChange>), Box<ItemError>> {
    let invalid = |field: String, rule: &str| Box::new(invalid_item(&field, rule));
    if repair.row_key.is_empty() {
        return Err(invalid(format!("repairs[{index}].row_key"), "is empty"));
    }
    if repair.changes.is_empty() {
        let rule = "has no items, at least 1 is needed";
        return Err(invalid(format!("repairs[{index}].changes"), rule));
    }
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(repair.changes.len());
    for (number, change) in repair.changes.into_iter().enumerate() {
        if !seen.insert(change.qualifier.clone()) {
            let field = format!("repairs[{index}].changes[{number}]");
            return Err(invalid(field, "is a cell that another change has"));
        }
        let cell = |value: Option<bytes::Bytes>, timestamp_ms: Option<i64>| {
            value.map(|value| (value.to_vec(), timestamp_ms.unwrap_or(STORE_TIME)))
        };
        changes.push(RowChange {
            qualifier: change.qualifier.to_vec(),
            old: cell(change.old_value, change.old_timestamp_ms),
            new: cell(change.new_value, change.new_timestamp_ms),
        });
    }
    Ok((repair.row_key.to_vec(), changes))
}

fn failure(index: usize, error: RepairError) -> Failure {
    match &error {
        RepairError::StateChanged {
            row_key,
            qualifier,
            is_partly_applied,
        } => {
            let (row_key, qualifier) = (hex::encode_upper(row_key), hex::encode_upper(qualifier));
            Failure::state_changed(index, &error, (&row_key, &qualifier), *is_partly_applied)
        }
        RepairError::Store(error) => Failure::Store(error.clone()),
    }
}
