//! The calls that rename and delete mappings.

use std::sync::Arc;
use std::time::SystemTime;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_schema::{Name, NameRules, Uid, UidKind};
use oxtsdb_uids::change::ChangeRequest;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::uids::Uids;
use tonic::{Response, Status};

use super::{convert, status};

pub(super) async fn rename(
    uids: &Arc<Uids>,
    request: pb::RenameUidRequest,
) -> Result<Response<pb::RenameUidResponse>, Status> {
    let change = change_request(uids, request.kind, &request.name, &request.expected_uid)?;
    let to = name("new_name", &request.new_name, &uids.layout().name_rules)?;
    if to == change.name.1 {
        return Err(invalid_field("new_name", "is the same as name"));
    }
    let mapping = in_task(uids, change, Some(to))
        .await?
        .map_err(|error| status::status(&error))?;
    Ok(Response::new(pb::RenameUidResponse {
        mapping: Some(convert::mapping(&mapping)),
    }))
}

pub(super) async fn delete(
    uids: &Arc<Uids>,
    request: pb::DeleteUidRequest,
) -> Result<Response<pb::DeleteUidResponse>, Status> {
    let change = change_request(uids, request.kind, &request.name, &request.expected_uid)?;
    let mapping = match in_task(uids, change, None).await? {
        Ok(mapping) => Some(convert::mapping(&mapping)),
        Err(UidServiceError::NameNotFound { .. }) if request.allow_missing => None,
        Err(error) => return Err(status::status(&error)),
    };
    Ok(Response::new(pb::DeleteUidResponse { mapping }))
}

/// Makes the change in a task of its own: a call that is cancelled does not leave it half done.
async fn in_task(
    uids: &Arc<Uids>,
    change: ChangeRequest,
    to: Option<Name>,
) -> Result<Result<Mapping, UidServiceError>, Status> {
    let uids = Arc::clone(uids);
    let task = tokio::spawn(async move {
        match to {
            Some(to) => uids.rename(&change, &to, SystemTime::now()).await,
            None => uids.delete(&change, SystemTime::now()).await,
        }
    });
    task.await
        .map_err(|_panicked| status::status(&UidServiceError::Interrupted))
}

fn change_request(uids: &Uids, kind: i32, current: &str, expected: &[u8]) -> Result<ChangeRequest, Status> {
    let kind = convert::kind_of("kind", kind)?;
    Ok(ChangeRequest {
        name: (kind, name("name", current, convert::any_stored())?),
        expected: expected_uid(uids, kind, expected)?,
    })
}

fn expected_uid(uids: &Uids, kind: UidKind, bytes: &[u8]) -> Result<Option<Uid>, Status> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let width = uids.layout().width(kind);
    match Uid::from_bytes(bytes) {
        Ok(uid) if uid.width() == width => Ok(Some(uid)),
        _ => Err(invalid_field_because(
            "expected_uid",
            ErrorReason::InvalidUidWidth,
            format!("has {} bytes, expected {width}", bytes.len()),
        )),
    }
}

fn name(field: &str, text: &str, rules: &NameRules) -> Result<Name, Status> {
    Name::parse(text, rules)
        .map_err(|error| invalid_field_because(field, ErrorReason::InvalidName, error.to_string()))
}
