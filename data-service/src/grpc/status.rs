//! Which gRPC error a failure gets: one `match` for each kind of error, without `_`, so that a new
//! error does not compile until its caller's next step was thought of.

use oxtsdb_ingest::columns::{ProtocolViolation, SymbolUse};
use oxtsdb_ingest::{PointErrorReason, WriteError};
use oxtsdb_metadata::uids::{UidRejection, UidsError};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field_because, invalid_field_with, item_error, status};
pub(crate) use oxtsdb_proto::uid_kind_name as kind_name;
pub(crate) use oxtsdb_server::status_of_store_error as store_status;
use tonic::{Code, Status};

/// An error of the UID service.
pub(crate) fn uids_status(error: &UidsError) -> Status {
    let (code, reason) = match error {
        UidsError::Unavailable { .. } | UidsError::Busy { .. } => {
            (Code::Unavailable, ErrorReason::UidServiceUnavailable)
        }
        UidsError::DeadlineExceeded => (Code::DeadlineExceeded, ErrorReason::DeadlineExceeded),
        UidsError::Layout { .. } => (Code::FailedPrecondition, ErrorReason::TableMismatch),
        UidsError::Rejected { .. } | UidsError::InvalidResponse { .. } => {
            (Code::Internal, ErrorReason::Internal)
        }
    };
    status(code, reason, error.to_string(), &[])
}

/// A limit of the server is reached; the same call may succeed later.
pub(crate) fn overloaded(message: String, setting: &str) -> Status {
    status(
        Code::Unavailable,
        ErrorReason::Overloaded,
        message,
        &[("setting", setting)],
    )
}

/// A write that failed as a whole.
pub(crate) fn write_status(error: &WriteError) -> Status {
    match error {
        WriteError::Store(error) => store_status(error),
        WriteError::Uids(error) => uids_status(error),
        WriteError::Overloaded { limit_bytes, .. } => status(
            Code::Unavailable,
            ErrorReason::Overloaded,
            error.to_string(),
            &[
                ("limit", &limit_bytes.to_string()),
                ("setting", "--max-writes-mib"),
            ],
        ),
        WriteError::DeadlineExceeded => status(
            Code::DeadlineExceeded,
            ErrorReason::DeadlineExceeded,
            error.to_string(),
            &[],
        ),
    }
}

/// Columns that break the protocol. `within` is the path of the columns, with its dot.
pub(crate) fn violation_status(within: &str, violation: &ProtocolViolation) -> Status {
    use ProtocolViolation as V;

    let (reason, field) = match violation {
        V::SymbolsOutOfSequence { expected, .. } => {
            return out_of_sequence(&format!("{within}first_symbol"), *expected, violation);
        }
        V::SeriesOutOfSequence { expected, .. } => {
            return out_of_sequence(&format!("{within}first_series"), *expected, violation);
        }
        V::UndeclaredSymbol {
            declaration,
            symbol_use,
            ..
        } => {
            let field = match symbol_use {
                SymbolUse::Metric => "metric_symbol",
                SymbolUse::Tag => "tag_symbols",
            };
            let field = format!("new_series[{declaration}].{field}");
            (ErrorReason::UndeclaredReference, field)
        }
        V::UndeclaredSeries { block, .. } => (
            ErrorReason::UndeclaredReference,
            format!("blocks[{block}].series"),
        ),
        V::OddTagSymbols { declaration, .. } => {
            let field = format!("new_series[{declaration}].tag_symbols");
            (ErrorReason::InvalidTags, field)
        }
        V::TooManySeries { .. } => (ErrorReason::BatchTooLarge, "new_series".to_owned()),
        V::TooManySymbolBytes { symbol, .. } => {
            (ErrorReason::BatchTooLarge, format!("new_symbols[{symbol}]"))
        }
    };
    invalid_field_because(&format!("{within}{field}"), reason, violation.to_string())
}

fn out_of_sequence(field: &str, expected: usize, violation: &ProtocolViolation) -> Status {
    let reason = ErrorReason::DeclarationOutOfSequence;
    let metadata = [("expected", &*expected.to_string())];
    invalid_field_with(field, reason, violation.to_string(), &metadata)
}

/// A point that was not stored.
pub(crate) fn point_item_error(error: &PointErrorReason) -> ItemError {
    use PointErrorReason as E;

    let message = error.to_string();
    let invalid = |reason| item_error(Code::InvalidArgument, reason, message.clone(), &[]);
    match error {
        E::NoSeries | E::Shape(_) => invalid(ErrorReason::InvalidField),
        E::InvalidName { place, name, .. } => {
            let metadata = [("kind", kind_name(place.kind())), ("name", name)];
            item_error(
                Code::InvalidArgument,
                ErrorReason::InvalidName,
                message,
                &metadata,
            )
        }
        E::NoTags | E::TooManyTags { .. } | E::DuplicateTagk { .. } => invalid(ErrorReason::InvalidTags),
        E::InvalidTsuid(_) => invalid(ErrorReason::InvalidUidWidth),
        E::UnknownUid { kind, uid } => {
            let metadata = [("kind", kind_name(*kind)), ("uid", &uid.to_string())];
            item_error(Code::NotFound, ErrorReason::UidNotFound, message, &metadata)
        }
        E::Refused(refusal) => item_error(
            Code::PermissionDenied,
            ErrorReason::AccessDenied,
            message,
            &refusal.metadata(),
        ),
        E::Unresolved(_) => item_error(
            Code::Unavailable,
            ErrorReason::UidServiceUnavailable,
            message,
            &[],
        ),
        E::NoUid {
            place,
            name,
            rejection,
        } => {
            let (code, reason) = rejection_code(rejection);
            let mut metadata = vec![("kind", kind_name(place.kind())), ("name", name)];
            match rejection {
                UidRejection::Denied { rule } => metadata.push(("rule", rule)),
                UidRejection::QuotaExceeded(quota) => {
                    metadata.extend([("limit", quota.limit.as_str()), ("setting", &quota.setting)]);
                }
                _ => {}
            }
            if let oxtsdb_ingest::NamePlace::Tagv { tagk } = place {
                metadata.push(("tag_key", tagk));
            }
            item_error(code, reason, message, &metadata)
        }
        E::TimestampOutOfRange { .. } | E::NotWholeSecond { .. } | E::DeltaTimestamps(_) => {
            invalid(ErrorReason::InvalidTimestamp)
        }
        E::BeforeRetention {
            timestamp_ms,
            edge_ms,
        } => {
            let metadata = [
                ("timestamp_ms", &*timestamp_ms.to_string()),
                ("edge_ms", &edge_ms.to_string()),
                ("setting", "--retention"),
            ];
            item_error(
                Code::InvalidArgument,
                ErrorReason::BeforeRetention,
                message,
                &metadata,
            )
        }
        E::ImplausibleTimestamp { .. } => invalid(ErrorReason::ImplausibleTimestamp),
        E::InvalidRollup(_) => invalid(ErrorReason::InvalidField),
        E::InvalidValue(_) | E::InvalidHistogram(_) => invalid(ErrorReason::InvalidValue),
    }
}

fn rejection_code(rejection: &UidRejection) -> (Code, ErrorReason) {
    match rejection {
        UidRejection::AutoCreateDisabled => (Code::FailedPrecondition, ErrorReason::AutoCreateDisabled),
        UidRejection::Denied { .. } => (Code::FailedPrecondition, ErrorReason::AssignmentRejected),
        UidRejection::QuotaExceeded(_) => (Code::ResourceExhausted, ErrorReason::QuotaExceeded),
        UidRejection::SpaceExhausted => (Code::ResourceExhausted, ErrorReason::UidSpaceExhausted),
        UidRejection::CounterBehind { .. } => (Code::FailedPrecondition, ErrorReason::UidCounterBehind),
        UidRejection::InvalidName { .. } => (Code::InvalidArgument, ErrorReason::InvalidName),
        UidRejection::StoreFull { .. } => (Code::ResourceExhausted, ErrorReason::StoreFull),
        UidRejection::Unavailable { .. } => (Code::Unavailable, ErrorReason::UidServiceUnavailable),
        UidRejection::Other { .. } => (Code::Internal, ErrorReason::Internal),
    }
}
