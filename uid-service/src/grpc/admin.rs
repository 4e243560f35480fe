//! The gRPC adapter of checks and repairs: `UidAdminService`.

use std::collections::HashSet;

use futures::StreamExt as _;
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_item, item_error};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::uid_admin_service_server::{UidAdminService, UidAdminServiceServer};
use oxtsdb_row_store::CellAddress;
use oxtsdb_server::repairs::{self, Failure};
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::fsck::repair::{Applied, RepairError};
use oxtsdb_uids::fsck::{CellChange, Event, Finding, FindingType, Fsck, Repair, Severity, Stage, Summary};
use oxtsdb_uids::table::{ID, NAME};
use tonic::{Code, Request, Response, Status};

use super::{MAX_REQUEST_BYTES, convert, status};

/// Maximum count of changes of a request.
const MAX_CHANGES: usize = 16_384;

/// Maximum count of changes of a repair.
const MAX_CHANGES_OF_REPAIR: usize = 256;

/// `UidAdminService` over [`Fsck`]. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidAdminHandler {
    fsck: Fsck,
}

/// The tonic service.
pub(crate) fn server(fsck: Fsck) -> UidAdminServiceServer<UidAdminHandler> {
    UidAdminServiceServer::new(UidAdminHandler { fsck }, MAX_REQUEST_BYTES)
}

#[tonic::async_trait]
impl UidAdminService for UidAdminHandler {
    async fn fsck_uids(
        &self,
        request: Request<pb::FsckUidsRequest>,
    ) -> Result<Response<MessageStream<pb::FsckUidsResponse>>, Status> {
        let request = request.into_inner();
        let kinds = convert::kinds("kinds", &request.kinds)?;
        let grace = repairs::grace_period(request.grace_period)?;
        let events = self
            .fsck
            .check(kinds, grace)
            .map_err(|error| status::status(&error))?;
        let messages = events.map(|event| match event {
            Ok(event) => Ok(message(event)),
            Err(error) => Err(status::status(&error)),
        });
        Ok(Response::new(messages.boxed()))
    }

    async fn repair_uids(
        &self,
        request: Request<pb::RepairUidsRequest>,
    ) -> Result<Response<pb::RepairUidsResponse>, Status> {
        use pb::repair_uids_response::{Effect, Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        let counts = request.repairs.iter().map(|repair| repair.changes.len());
        repairs::check_size(counts, MAX_CHANGES)?;
        let results = repairs::apply_each(request.repairs, |index, repair| {
            apply(self.fsck.clone(), index, repair)
        });
        let results = results.await?.into_iter().map(|result| ItemResult {
            outcome: Some(match result {
                Ok(Applied::Changed) => Outcome::Effect(Effect::Changed.into()),
                Ok(Applied::Already) => Outcome::Effect(Effect::Unchanged.into()),
                Err(error) => Outcome::Error(error),
            }),
        });
        Ok(Response::new(pb::RepairUidsResponse {
            results: results.collect(),
        }))
    }

    async fn raise_uid_counter(
        &self,
        request: Request<pb::RaiseUidCounterRequest>,
    ) -> Result<Response<pb::RaiseUidCounterResponse>, Status> {
        let request = request.into_inner();
        let kind = convert::kind_of("kind", request.kind)?;
        let max = self.fsck.layout().width(kind).max_number();
        if request.minimum > max {
            let rule = format!("is {}, the largest number of `{kind}` is {max}", request.minimum);
            return Err(invalid_field("minimum", rule));
        }
        let value = self.fsck.raise_counter(kind, request.minimum).await;
        let value = value.map_err(|error| status::status(&error))?;
        Ok(Response::new(pb::RaiseUidCounterResponse { value }))
    }
}

/// Applies a repair in a task of its own: if the call is cancelled, caches follow what was changed nevertheless.
async fn apply(fsck: Fsck, index: usize, repair: pb::UidRepair) -> Result<Applied, Failure> {
    let changes = changes(index, repair)?;
    let task = tokio::spawn(async move { fsck.repair(&changes).await });
    let applied = task
        .await
        .map_err(|_panicked| status::status(&UidServiceError::Interrupted))?;
    applied.map_err(|error| failure(index, error))
}

/// The changes of a repair, checked against the rules of the table.
fn changes(index: usize, repair: pb::UidRepair) -> Result<Vec<CellChange>, Box<ItemError>> {
    let invalid = |field: String, rule: String| Box::new(invalid_item(&field, rule));
    let count = repair.changes.len();
    if !(1..=MAX_CHANGES_OF_REPAIR).contains(&count) {
        let rule = format!("has {count} changes, 1 to {MAX_CHANGES_OF_REPAIR} are allowed");
        return Err(invalid(format!("repairs[{index}].changes"), rule));
    }
    let mut seen = HashSet::new();
    let mut changes = Vec::with_capacity(count);
    for (number, change) in repair.changes.into_iter().enumerate() {
        let field = |name: &str| format!("repairs[{index}].changes[{number}]{name}");
        if change.row.is_empty() {
            return Err(invalid(field(".row"), "is empty".to_owned()));
        }
        if change.family != ID && change.family != NAME {
            let rule = format!("`{}` is not a family of the table", change.family.escape_debug());
            return Err(invalid(field(".family"), rule));
        }
        if !seen.insert((
            change.row.clone(),
            change.family.clone(),
            change.qualifier.clone(),
        )) {
            return Err(invalid(field(""), "is a cell that another change has".to_owned()));
        }
        changes.push(CellChange {
            cell: CellAddress::new(change.row, change.family, change.qualifier),
            old: change.old_value.map(Into::into),
            new: change.new_value.map(Into::into),
        });
    }
    Ok(changes)
}

fn failure(index: usize, error: RepairError) -> Failure {
    match &error {
        RepairError::StateChanged {
            cell,
            is_partly_applied,
        } => {
            let qualifier = String::from_utf8_lossy(&cell.qualifier);
            let cell = (&*hex::encode(&cell.row), &*qualifier);
            Failure::state_changed(index, &error, cell, *is_partly_applied)
        }
        RepairError::InProgress => {
            let message = format!("repairs[{index}]: {error}");
            let reason = ErrorReason::OperationInProgress;
            Failure::Item(Box::new(item_error(Code::Aborted, reason, message, &[])))
        }
        RepairError::Store(error) => Failure::Store(error.clone()),
    }
}

fn message(event: Event) -> pb::FsckUidsResponse {
    use pb::fsck_uids_response::{Event as Message, Findings, Progress, progress};

    let event = match event {
        Event::Findings(findings) => Message::Findings(Findings {
            findings: findings.into_iter().map(finding_message).collect(),
        }),
        Event::Progress(progress) => Message::Progress(Progress {
            stage: match progress.stage {
                Stage::Names => progress::Stage::Names,
                Stage::Uids => progress::Stage::Uids,
                Stage::Suspects => progress::Stage::Suspects,
            }
            .into(),
            rows: progress.rows,
            findings: progress.findings,
        }),
        Event::Summary(summary) => Message::Summary(summary_message(&summary)),
    };
    pb::FsckUidsResponse { event: Some(event) }
}

fn summary_message(summary: &Summary) -> pb::fsck_uids_response::Summary {
    use pb::fsck_uids_response::summary::Count;

    let counts = summary.findings.iter().map(|(finding, count)| Count {
        r#type: type_message(*finding).into(),
        severity: severity_message(finding.severity()).into(),
        count: *count,
    });
    pb::fsck_uids_response::Summary {
        rows: summary.rows,
        names: summary.names,
        findings: counts.collect(),
        left_alone: summary.left_alone,
    }
}

fn finding_message(finding: Finding) -> pb::UidFinding {
    let text = |name: &Vec<u8>| name.iter().map(|byte| char::from(*byte)).collect();
    pb::UidFinding {
        r#type: type_message(finding.finding).into(),
        severity: severity_message(finding.finding.severity()).into(),
        kind: finding.kind.map(convert::kind_number),
        names: finding.names.iter().map(text).collect(),
        uid: finding.uid.unwrap_or_default().into(),
        message: finding.message,
        repair: finding.repair.map(repair_message),
        alternatives: finding.alternatives.into_iter().map(repair_message).collect(),
    }
}

fn repair_message(repair: Repair) -> pb::UidRepair {
    let change = |change: CellChange| pb::UidCellChange {
        row: change.cell.row.into(),
        family: change.cell.family,
        qualifier: change.cell.qualifier.into(),
        old_value: change.old.map(Into::into),
        new_value: change.new.map(Into::into),
    };
    pb::UidRepair {
        label: repair.label,
        description: repair.description,
        changes: repair.changes.into_iter().map(change).collect(),
    }
}

const fn severity_message(severity: Severity) -> pb::UidFindingSeverity {
    match severity {
        Severity::Error => pb::UidFindingSeverity::Error,
        Severity::Warning => pb::UidFindingSeverity::Warning,
        Severity::Note => pb::UidFindingSeverity::Note,
    }
}

const fn type_message(finding: FindingType) -> pb::UidFindingType {
    match finding {
        FindingType::MissingReverse => pb::UidFindingType::MissingReverse,
        FindingType::MissingForward => pb::UidFindingType::MissingForward,
        FindingType::MismatchedReverse => pb::UidFindingType::MismatchedReverse,
        FindingType::DuplicateUid => pb::UidFindingType::DuplicateUid,
        FindingType::DuplicateReverse => pb::UidFindingType::DuplicateReverse,
        FindingType::CounterMissing => pb::UidFindingType::CounterMissing,
        FindingType::CounterUnreadable => pb::UidFindingType::CounterUnreadable,
        FindingType::CounterNegative => pb::UidFindingType::CounterNegative,
        FindingType::CounterBehind => pb::UidFindingType::CounterBehind,
        FindingType::CounterAhead => pb::UidFindingType::CounterAhead,
        FindingType::CounterBeyondWidth => pb::UidFindingType::CounterBeyondWidth,
        FindingType::WrongWidth => pb::UidFindingType::WrongWidth,
        FindingType::EmptyValue => pb::UidFindingType::EmptyValue,
        FindingType::UnknownCell => pb::UidFindingType::UnknownCell,
        FindingType::InvalidName => pb::UidFindingType::InvalidName,
        FindingType::OrphanedMetadata => pb::UidFindingType::OrphanedMetadata,
        FindingType::UnreadableMetadata => pb::UidFindingType::UnreadableMetadata,
        FindingType::MetadataType => pb::UidFindingType::MetadataType,
    }
}
