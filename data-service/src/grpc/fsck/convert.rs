//! Findings and rules as messages.

use oxtsdb_maintenance::fsck::CheckedRow;
use oxtsdb_proto::data::v1::{self as pb, DuplicateChoice, RowCellChange};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_schema::row::{FindingSeverity, KeepDuplicate, RowChange, RowFinding, RowFindingType};
use tonic::Status;

use super::super::query::field_error::no_such;
use super::repair::MAX_CHANGES;

pub(super) fn keep(field: &str, number: i32) -> Result<KeepDuplicate, Status> {
    match DuplicateChoice::try_from(number) {
        Ok(DuplicateChoice::Unspecified | DuplicateChoice::Oldest) => Ok(KeepDuplicate::Oldest),
        Ok(DuplicateChoice::Newest) => Ok(KeepDuplicate::Newest),
        Err(_) => Err(no_such(field, number)),
    }
}

pub(super) fn finding_type(field: &str, number: i32) -> Result<RowFindingType, Status> {
    if pb::RowFindingType::try_from(number) == Ok(pb::RowFindingType::Unspecified) {
        return Err(invalid_field(field, "is 0, expected one of the named values"));
    }
    let known = RowFindingType::ALL.into_iter();
    known
        .into_iter()
        .find(|finding| i32::from(type_message(*finding)) == number)
        .ok_or_else(|| no_such(field, number))
}

pub(super) fn row_message(row: CheckedRow) -> pb::CheckedRow {
    let is_removal = row.check.changes.iter().all(|change| change.new.is_none());
    let mut repairs = Vec::new();
    let key = bytes::Bytes::from(row.key);
    let mut add = |changes: Vec<RowChange>| {
        repairs.push(pb::RowRepair {
            row_key: key.clone(),
            changes: changes.into_iter().map(change_message).collect(),
        });
    };
    let mut changes = row.check.changes;
    // Cells are removed independently of each other.
    while is_removal && changes.len() > MAX_CHANGES {
        add(changes.split_off(changes.len() - MAX_CHANGES));
    }
    if (1..=MAX_CHANGES).contains(&changes.len()) {
        add(changes);
    }
    pb::CheckedRow {
        row_key: key,
        findings: row.check.findings.into_iter().map(finding_message).collect(),
        repairs,
    }
}

fn finding_message(finding: RowFinding) -> pb::RowFinding {
    pb::RowFinding {
        r#type: type_message(finding.finding).into(),
        severity: severity_message(finding.finding.severity()).into(),
        count: finding.count,
        qualifier: finding.qualifier.into(),
        message: finding.message,
    }
}

fn change_message(change: RowChange) -> RowCellChange {
    let (old_value, old_timestamp_ms) = change.old.unzip();
    let (new_value, new_timestamp_ms) = change.new.unzip();
    RowCellChange {
        qualifier: change.qualifier.into(),
        old_value: old_value.map(Into::into),
        new_value: new_value.map(Into::into),
        old_timestamp_ms,
        new_timestamp_ms,
    }
}

pub(super) const fn severity_message(severity: FindingSeverity) -> pb::RowFindingSeverity {
    match severity {
        FindingSeverity::Error => pb::RowFindingSeverity::Error,
        FindingSeverity::Warning => pb::RowFindingSeverity::Warning,
        FindingSeverity::Note => pb::RowFindingSeverity::Note,
    }
}

pub(super) const fn type_message(finding: RowFindingType) -> pb::RowFindingType {
    use RowFindingType as T;
    use pb::RowFindingType as M;

    match finding {
        T::BadKey => M::BadKey,
        T::NoTags => M::NoTags,
        T::BaseTime => M::BaseTime,
        T::TagOrder => M::TagOrder,
        T::WrongSalt => M::WrongSalt,
        T::UnknownUid => M::UnknownUid,
        T::UnknownCell => M::UnknownCell,
        T::FutureCell => M::FutureCell,
        T::ValueLength => M::ValueLength,
        T::WrongFlags => M::WrongFlags,
        T::FloatLength => M::FloatLength,
        T::CompactedLength => M::CompactedLength,
        T::MetaByte => M::MetaByte,
        T::MetaByteMismatch => M::MetaByteMismatch,
        T::CompactedOrder => M::CompactedOrder,
        T::AppendedCutOff => M::AppendedCutOff,
        T::BeyondHour => M::BeyondHour,
        T::Duplicate => M::Duplicate,
        T::Redundant => M::Redundant,
        T::LongInteger => M::LongInteger,
        T::UnreadableAnnotation => M::UnreadableAnnotation,
        T::UnreadableHistogram => M::UnreadableHistogram,
    }
}
