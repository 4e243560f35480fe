//! `DataAdminService.RepairRows`.

use std::collections::HashSet;

use oxtsdb_maintenance::fsck::repair::{Applied, RepairError, STORE_TIME};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::data::v1::repair_rows_response::result::Outcome;
use oxtsdb_proto::data::v1::repair_rows_response::{Effect, Result as ItemResult};
use oxtsdb_proto::data::v1::{RepairRowsRequest, RepairRowsResponse, RowRepair};
use oxtsdb_proto::error::{invalid_field_because, item_error, status};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::row::RowChange;
use oxtsdb_server::code_of_store_error;
use tonic::{Code, Request, Response, Status};

use super::super::DataServiceHandler;
use super::super::status::store_status;

/// Maximum count of repairs of a request.
const MAX_REPAIRS: usize = 1024;

/// Maximum count of changes of a request, and so of a repair.
pub(super) const MAX_CHANGES: usize = 65_536;

/// `DataAdminService.RepairRows`.
pub(in crate::grpc) async fn repair_rows(
    handler: &DataServiceHandler,
    request: Request<RepairRowsRequest>,
) -> Result<Response<RepairRowsResponse>, Status> {
    let request = request.into_inner();
    check_size(&request.repairs)?;
    let mut results = Vec::with_capacity(request.repairs.len());
    let mut unavailable: Option<StoreError> = None;
    for (index, repair) in request.repairs.into_iter().enumerate() {
        let outcome = match changes(index, repair) {
            Ok((row_key, changes)) => match in_task(handler, row_key, changes).await? {
                Ok(Applied::Changed) => Outcome::Effect(Effect::Changed.into()),
                Ok(Applied::Already) => Outcome::Effect(Effect::Unchanged.into()),
                Err(error) => {
                    if let RepairError::Store(error) = &error {
                        unavailable.get_or_insert(error.clone());
                    }
                    Outcome::Error(repair_error(index, &error))
                }
            },
            Err(error) => Outcome::Error(*error),
        };
        results.push(outcome);
    }
    // When nothing was done, the call may as well be repeated as a whole.
    let is_error = |outcome: &Outcome| matches!(outcome, Outcome::Error(_));
    if let Some(error) = unavailable
        && results.iter().all(is_error)
    {
        return Err(store_status(&error));
    }
    let results = results.into_iter().map(|outcome| ItemResult {
        outcome: Some(outcome),
    });
    Ok(Response::new(RepairRowsResponse {
        results: results.collect(),
    }))
}

/// Makes a repair in a task of its own: it is not interrupted when the call is cancelled.
async fn in_task(
    handler: &DataServiceHandler,
    row_key: Vec<u8>,
    changes: Vec<RowChange>,
) -> Result<Result<Applied, RepairError>, Status> {
    let fsck = handler.fsck.clone();
    let task = tokio::spawn(async move { fsck.repair(&row_key, &changes).await });
    task.await.map_err(|error| {
        let message = format!("the repair was interrupted: {error}");
        status(Code::Internal, ErrorReason::Internal, message, &[])
    })
}

fn check_size(repairs: &[RowRepair]) -> Result<(), Status> {
    let changes: usize = repairs.iter().map(|repair| repair.changes.len()).sum();
    let rule = if !(1..=MAX_REPAIRS).contains(&repairs.len()) {
        format!("has {} items, 1 to {MAX_REPAIRS} are allowed", repairs.len())
    } else if changes > MAX_CHANGES {
        format!("has {changes} changes, at most {MAX_CHANGES} are allowed")
    } else {
        return Ok(());
    };
    Err(invalid_field_because("repairs", ErrorReason::BatchTooLarge, rule))
}

/// The row and the changes of a repair, checked.
fn changes(index: usize, repair: RowRepair) -> Result<(Vec<u8>, Vec<RowChange>), Box<ItemError>> {
    let invalid = |field: String, rule: String| {
        Box::new(item_error(
            Code::InvalidArgument,
            ErrorReason::InvalidField,
            format!("{field}: {rule}"),
            &[("field", &field)],
        ))
    };
    if repair.row_key.is_empty() {
        return Err(invalid(
            format!("repairs[{index}].row_key"),
            "is empty".to_owned(),
        ));
    }
    if repair.changes.is_empty() {
        let rule = "has no items, at least 1 is needed".to_owned();
        return Err(invalid(format!("repairs[{index}].changes"), rule));
    }
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(repair.changes.len());
    for (number, change) in repair.changes.into_iter().enumerate() {
        if !seen.insert(change.qualifier.clone()) {
            let field = format!("repairs[{index}].changes[{number}]");
            return Err(invalid(field, "is a cell that another change has".to_owned()));
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

fn repair_error(index: usize, error: &RepairError) -> ItemError {
    let message = format!("repairs[{index}]: {error}");
    match error {
        RepairError::StateChanged {
            row_key,
            qualifier,
            is_partly_applied,
        } => {
            let (row_key, qualifier) = (hex::encode_upper(row_key), hex::encode_upper(qualifier));
            let metadata = [
                ("row_key", &*row_key),
                ("qualifier", &*qualifier),
                (
                    "partly_applied",
                    if *is_partly_applied { "true" } else { "false" },
                ),
            ];
            let error = item_error(Code::Aborted, ErrorReason::StateChanged, message, &metadata);
            // The same repair fails again.
            ItemError {
                retryable: false,
                retry_delay: None,
                ..error
            }
        }
        RepairError::Store(error) => {
            let (code, reason) = code_of_store_error(error);
            item_error(code, reason, message, &[])
        }
    }
}
