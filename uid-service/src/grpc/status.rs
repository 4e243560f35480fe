//! Maps errors to gRPC codes and reasons.

use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error;
use oxtsdb_schema::name::excerpt;
use oxtsdb_schema::uid_table::{COUNTER_ROW, meta_qualifier};
use oxtsdb_schema::{Uid, UidKind};
use oxtsdb_server::code_of_store_error;
use oxtsdb_uids::error::UidServiceError;
use tonic::{Code, Status};

use super::convert;

type Described = (Code, ErrorReason, Vec<(&'static str, String)>);

/// The error of a whole call.
pub(super) fn status(failure: &UidServiceError) -> Status {
    let (code, reason, metadata) = describe(failure);
    error::status(code, reason, failure.to_string(), &borrowed(&metadata))
}

/// The error of one item.
pub(super) fn item(failure: &UidServiceError) -> ItemError {
    let (code, reason, metadata) = describe(failure);
    error::item_error(code, reason, failure.to_string(), &borrowed(&metadata))
}

fn borrowed<'a>(metadata: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    metadata
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect()
}

/// Whether the store or the service was unavailable, so that other items would have failed as well.
/// [`ErrorReason::NoFreeUid`] concerns one kind of UID only.
pub(super) fn is_unavailable(failure: &UidServiceError) -> bool {
    let (code, reason, _) = describe(failure);
    code == Code::Unavailable && reason != ErrorReason::NoFreeUid
}

fn describe(failure: &UidServiceError) -> Described {
    use UidServiceError as E;
    match failure {
        E::NameNotFound { kind, name } => (
            Code::NotFound,
            ErrorReason::NameNotFound,
            name_metadata(*kind, &name.to_text()),
        ),
        E::UidNotFound { kind, uid } => (
            Code::NotFound,
            ErrorReason::UidNotFound,
            uid_metadata(*kind, *uid),
        ),
        E::UidWidth { kind, uid, expected } => {
            let mut metadata = uid_metadata(*kind, *uid);
            metadata.push(("expected_width", expected.to_string()));
            (Code::InvalidArgument, ErrorReason::InvalidUidWidth, metadata)
        }
        E::StoredWidth {
            kind,
            name,
            bytes,
            configured,
        } => {
            let mut metadata = name_metadata(*kind, &name.to_text());
            metadata.push(("stored_width", bytes.to_string()));
            metadata.push(("configured_width", configured.to_string()));
            (Code::FailedPrecondition, ErrorReason::TableMismatch, metadata)
        }
        E::AutoCreateDisabled { kind, name } => (
            Code::FailedPrecondition,
            ErrorReason::AutoCreateDisabled,
            name_metadata(*kind, &name.to_text()),
        ),
        E::AssignmentRejected {
            kind,
            name,
            tag_key,
            rule,
        } => {
            let mut metadata = name_metadata(*kind, &name.to_text());
            metadata.push(("rule", rule.clone()));
            metadata.extend(tag_key_metadata(tag_key.as_deref()));
            (
                Code::FailedPrecondition,
                ErrorReason::AssignmentRejected,
                metadata,
            )
        }
        E::QuotaExceeded {
            scope,
            limit,
            setting,
        } => {
            let mut metadata = kind_metadata(scope.kind);
            metadata.push(("limit", limit.to_string()));
            metadata.push(("setting", setting.clone()));
            metadata.extend(tag_key_metadata(scope.tag_key.as_deref()));
            (Code::ResourceExhausted, ErrorReason::QuotaExceeded, metadata)
        }
        E::SpaceExhausted { kind, .. } => (
            Code::ResourceExhausted,
            ErrorReason::UidSpaceExhausted,
            kind_metadata(*kind),
        ),
        // The next attempt draws other numbers, or continues from where the counter is now.
        E::NoFreeRandomUid { kind, .. } | E::CounterBehind { kind, .. } => {
            (Code::Unavailable, ErrorReason::NoFreeUid, kind_metadata(*kind))
        }
        E::CounterBelowUse {
            kind,
            counter,
            in_use,
        } => {
            let mut metadata = kind_metadata(*kind);
            metadata.push(("counter", counter.to_string()));
            metadata.push(("in_use", in_use.to_string()));
            (Code::FailedPrecondition, ErrorReason::UidCounterBehind, metadata)
        }
        E::OtherTable { .. } => (Code::FailedPrecondition, ErrorReason::TableMismatch, Vec::new()),
        E::TooManyInUse { kind, limit } => {
            let mut metadata = kind_metadata(*kind);
            metadata.push(("limit", limit.to_string()));
            (Code::ResourceExhausted, ErrorReason::MessageTooLarge, metadata)
        }
        E::CounterUnreadable { kind, .. } | E::CounterNegative { kind, .. } => (
            Code::DataLoss,
            ErrorReason::CorruptCell,
            cell_metadata(*kind, COUNTER_ROW),
        ),
        E::EmptyName { kind, uid } => (
            Code::DataLoss,
            ErrorReason::CorruptCell,
            cell_metadata(*kind, uid.as_bytes()),
        ),
        E::Contended { kind, name } => (
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            name_metadata(*kind, &name.to_text()),
        ),
        E::EtagMismatch { kind, uid, stored } => {
            let mut metadata = uid_metadata(*kind, *uid);
            metadata.push(("etag", stored.clone()));
            (Code::Aborted, ErrorReason::EtagMismatch, metadata)
        }
        E::CorruptMeta { kind, uid, .. } => (
            Code::DataLoss,
            ErrorReason::CorruptCell,
            vec![
                ("row_key", hex::encode(uid.as_bytes())),
                (
                    "qualifier",
                    String::from_utf8_lossy(meta_qualifier(*kind)).into_owned(),
                ),
            ],
        ),
        E::MetaContended { kind, uid } => (
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            uid_metadata(*kind, *uid),
        ),
        E::DocumentTooLarge { max_bytes, .. } => (
            Code::InvalidArgument,
            ErrorReason::InvalidField,
            vec![("field", "meta".to_owned()), ("limit", max_bytes.to_string())],
        ),
        E::TooLarge { max_bytes } => (
            Code::ResourceExhausted,
            ErrorReason::MessageTooLarge,
            vec![("limit", max_bytes.to_string())],
        ),
        E::NameTaken { kind, name, uid } => {
            let mut metadata = name_metadata(*kind, &name.to_text());
            metadata.push(("uid", uid.to_string()));
            (Code::AlreadyExists, ErrorReason::NameTaken, metadata)
        }
        E::UidMismatch { kind, name, uid, .. } => {
            let mut metadata = name_metadata(*kind, &name.to_text());
            metadata.push(("uid", uid.to_string()));
            (Code::Aborted, ErrorReason::UidMismatch, metadata)
        }
        E::InProgress { kind, name } => (
            Code::Aborted,
            ErrorReason::OperationInProgress,
            name_metadata(*kind, &name.to_text()),
        ),
        E::ChangedMeanwhile { kind, name } => {
            let metadata = cell_metadata(*kind, name.as_bytes());
            (Code::Aborted, ErrorReason::StateChanged, metadata)
        }
        E::OneWay { kind, uid, .. } => (
            Code::DataLoss,
            ErrorReason::CorruptCell,
            cell_metadata(*kind, uid.as_bytes()),
        ),
        E::CounterContended { kind } => (
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            kind_metadata(*kind),
        ),
        E::CheckRunning => (
            Code::Unavailable,
            ErrorReason::Overloaded,
            vec![("limit", "1".to_owned())],
        ),
        E::ResumeTokenExpired => (Code::OutOfRange, ErrorReason::ResumeTokenExpired, Vec::new()),
        E::InvalidResumeToken => (
            Code::InvalidArgument,
            ErrorReason::InvalidField,
            vec![("field", "resume_token".to_owned())],
        ),
        E::TooManyWatches { limit } => (
            Code::Unavailable,
            ErrorReason::Overloaded,
            vec![
                ("limit", limit.to_string()),
                ("setting", "--max-uid-watches".to_owned()),
            ],
        ),
        E::Overloaded { limit } => (
            Code::Unavailable,
            ErrorReason::Overloaded,
            vec![("limit", limit.to_string())],
        ),
        E::Interrupted => (Code::Internal, ErrorReason::Internal, Vec::new()),
        E::Store(failure) => {
            let (code, reason) = code_of_store_error(failure);
            (code, reason, Vec::new())
        }
    }
}

fn kind_metadata(kind: UidKind) -> Vec<(&'static str, String)> {
    vec![("kind", convert::kind_name(kind).to_owned())]
}

fn name_metadata(kind: UidKind, name: &str) -> Vec<(&'static str, String)> {
    let mut metadata = kind_metadata(kind);
    metadata.push(("name", name.to_owned()));
    metadata
}

fn tag_key_metadata(tag_key: Option<&str>) -> Option<(&'static str, String)> {
    tag_key.map(|tag_key| ("tag_key", excerpt(tag_key)))
}

fn uid_metadata(kind: UidKind, uid: Uid) -> Vec<(&'static str, String)> {
    let mut metadata = kind_metadata(kind);
    metadata.push(("uid", uid.to_string()));
    metadata
}

/// A cell of table `tsdb-uid`. Its qualifier is OpenTSDB's word for the kind.
fn cell_metadata(kind: UidKind, row: &[u8]) -> Vec<(&'static str, String)> {
    vec![("row_key", hex::encode(row)), ("qualifier", kind.to_string())]
}
