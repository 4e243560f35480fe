//! Rich errors: a gRPC status with `google.rpc` details, and the error of one item of a batch.

use std::collections::HashMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::common::v1::{ErrorReason, ItemError};

/// The `domain` of every `google.rpc.ErrorInfo` that our services send.
pub const ERROR_DOMAIN: &str = "oxtsdb.dev";

/// How long a client should wait after UNAVAILABLE.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The longest message of a status, and the longest value of its metadata, in bytes. A status is sent
/// in HTTP headers, and clients take 8 KiB of headers: a longer status breaks the stream in place of being read.
const MAX_MESSAGE: usize = 1024;
const MAX_METADATA: usize = 256;

/// A status with `ErrorInfo`, and with `RetryInfo` where a retry helps.
///
/// `metadata` is what the comment of the reason promises, as key and value.
pub fn status(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    metadata: &[(&str, &str)],
) -> Status {
    with_details(code, reason, message, metadata, ErrorDetails::new())
}

/// INVALID_ARGUMENT for one field, with `BadRequest`.
///
/// `field` is a path such as `points[3].series.name.metric`; `description` says what is wrong with
/// its value.
pub fn invalid_field(field: &str, description: impl Into<String>) -> Status {
    invalid_field_because(field, ErrorReason::InvalidField, description)
}

/// As [`invalid_field`], with a reason of its own.
pub fn invalid_field_because(field: &str, reason: ErrorReason, description: impl Into<String>) -> Status {
    invalid_field_with(field, reason, description, &[])
}

/// As [`invalid_field_because`], with metadata beside the field.
pub fn invalid_field_with(
    field: &str,
    reason: ErrorReason,
    description: impl Into<String>,
    metadata: &[(&str, &str)],
) -> Status {
    let description = shortened(description.into(), MAX_MESSAGE);
    let message = format!("{field}: {description}");
    let details = ErrorDetails::with_bad_request_violation(field, description);
    let metadata: Vec<(&str, &str)> = [("field", field)]
        .into_iter()
        .chain(metadata.iter().copied())
        .collect();
    with_details(Code::InvalidArgument, reason, message, &metadata, details)
}

/// INVALID_ARGUMENT for a message that is not what its call expects.
pub fn malformed_message(name: &str, what: impl std::fmt::Display) -> Status {
    let message = format!("message is not a valid {name}: {what}");
    status(Code::InvalidArgument, ErrorReason::MalformedMessage, message, &[])
}

/// INVALID_ARGUMENT for a message with more elements in a repeated field than its bound.
pub(crate) fn too_many_items(field: &str, limit: u32) -> Status {
    let rule = format!("has more than {limit} elements in the message");
    over_a_bound(field, rule, &limit.to_string())
}

/// INVALID_ARGUMENT for a message with elements that would take too much memory together.
pub(crate) fn unfolds_to_too_much(field: &str, limit_bytes: u64) -> Status {
    let limit = format!("{} MiB", limit_bytes >> 20);
    let rule =
        format!("with its elements the message takes more than {limit} of memory; send less at a time");
    over_a_bound(field, rule, &limit)
}

fn over_a_bound(field: &str, rule: String, limit: &str) -> Status {
    let message = format!("{field}: {rule}");
    let details = ErrorDetails::with_bad_request_violation(field, rule);
    let metadata = [("field", field), ("limit", limit)];
    with_details(
        Code::InvalidArgument,
        ErrorReason::BatchTooLarge,
        message,
        &metadata,
        details,
    )
}

/// The error of one item of a batch.
pub fn item_error(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    metadata: &[(&str, &str)],
) -> ItemError {
    let retryable = is_retryable(code);
    ItemError {
        code: code as i32,
        reason: reason as i32,
        message: message.into(),
        metadata: owned(metadata),
        retryable,
        retry_delay: retryable.then(|| {
            prost_types::Duration::try_from(RETRY_DELAY).expect("a tenth of a second is a Duration")
        }),
    }
}

/// INVALID_ARGUMENT for one field of one item of a batch.
pub fn invalid_item(field: &str, description: impl std::fmt::Display) -> ItemError {
    item_error(
        Code::InvalidArgument,
        ErrorReason::InvalidField,
        format!("{field}: {description}"),
        &[("field", field)],
    )
}

/// The reason that our services gave; `None` for errors of others, such as a proxy.
pub fn reason_of(status: &Status) -> Option<ErrorReason> {
    let info = status.get_details_error_info()?;
    if info.domain != ERROR_DOMAIN {
        return None;
    }
    ErrorReason::from_str_name(&format!("{PREFIX}{}", info.reason))
}

/// The name of a reason as `ErrorInfo` has it: `UID_NOT_FOUND`.
pub fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

const PREFIX: &str = "ERROR_REASON_";

/// Whether the same request may succeed later without a change.
fn is_retryable(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::DeadlineExceeded | Code::Aborted)
}

fn with_details(
    code: Code,
    reason: ErrorReason,
    message: impl Into<String>,
    metadata: &[(&str, &str)],
    mut details: ErrorDetails,
) -> Status {
    let message = shortened(message.into(), MAX_MESSAGE);
    let short = owned(metadata)
        .into_iter()
        .map(|(key, value)| (key, shortened(value, MAX_METADATA)));
    details.set_error_info(
        reason_name(reason),
        ERROR_DOMAIN,
        short.collect::<HashMap<_, _>>(),
    );
    if code == Code::Unavailable {
        details.set_retry_info(Some(RETRY_DELAY));
    }
    Status::with_error_details(code, message, details)
}

/// The text, or as much of its beginning as `limit` bytes hold, and `…`.
fn shortened(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let end = (0..=limit).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

fn owned(metadata: &[(&str, &str)]) -> HashMap<String, String> {
    metadata
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_its_reason() {
        let sent = status(
            Code::NotFound,
            ErrorReason::NameNotFound,
            "no such metric",
            &[("kind", "UID_KIND_METRIC")],
        );
        assert_eq!(reason_of(&sent), Some(ErrorReason::NameNotFound));
        let info = sent.get_details_error_info().unwrap();
        assert_eq!(
            (info.domain.as_str(), info.reason.as_str()),
            ("oxtsdb.dev", "NAME_NOT_FOUND")
        );
        assert_eq!(info.metadata["kind"], "UID_KIND_METRIC");
        assert!(sent.get_details_retry_info().is_none(), "a retry would not help");
    }

    #[test]
    fn unavailable_carries_retry_info() {
        let sent = status(
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            "store is closed",
            &[],
        );
        assert_eq!(
            sent.get_details_retry_info().unwrap().retry_delay,
            Some(RETRY_DELAY)
        );
        assert!(item_error(Code::Unavailable, ErrorReason::StoreUnavailable, "", &[]).retryable);
        assert!(!item_error(Code::ResourceExhausted, ErrorReason::UidSpaceExhausted, "", &[]).retryable);
        let full = status(Code::ResourceExhausted, ErrorReason::StoreFull, "full", &[]);
        assert!(
            full.get_details_retry_info().is_none(),
            "a retry would fail again"
        );
    }

    #[test]
    fn names_the_invalid_field() {
        let sent = invalid_field("queries[0].metric", "is empty");
        assert_eq!(sent.message(), "queries[0].metric: is empty");
        let violations = sent.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations[0].field, "queries[0].metric");
    }

    #[test]
    fn truncates_a_status_to_the_header_limit_of_clients() {
        let long = "日".repeat(1 << 20);
        let not_found = status(
            Code::NotFound,
            ErrorReason::NameNotFound,
            format!("no such name: {long}"),
            &[("kind", "UID_KIND_METRIC"), ("name", &long)],
        );
        for sent in [not_found, invalid_field("queries[0].metric", long.as_str())] {
            let response = sent.into_http::<()>();
            let headers = response.headers().iter();
            let size: usize = headers
                .map(|(name, value)| name.as_str().len() + value.len() + 32)
                .sum();
            assert!(size < 8192, "{size} bytes");
        }
    }

    #[test]
    fn a_status_of_a_proxy_has_no_reason() {
        assert_eq!(reason_of(&Status::not_found("from a proxy")), None);
    }
}
