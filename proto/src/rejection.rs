//! The error that a service reports for a call or an item that it rejects.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::common::v1::{ErrorReason, ItemError};
use crate::error::reason_of;

/// A call, or one item of a batch, that a service rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The gRPC code.
    pub code: Code,
    /// The reason of the contract; `None` for statuses of others, such as a proxy, and for reasons that are
    /// newer than this client.
    pub reason: Option<ErrorReason>,
    /// For people; not stable.
    pub message: String,
    /// The values that the comment of the reason lists, for example `kind` and `name`.
    pub metadata: BTreeMap<String, String>,
    /// The fields of the request that are not valid (`google.rpc.BadRequest`).
    pub field_violations: Vec<FieldViolation>,
    /// How long to wait before a retry; `None` if the service did not name it.
    pub retry_delay: Option<Duration>,
    /// Whether the service marks the item as retryable; `None` for a call.
    retryable: Option<bool>,
}

/// A field of the request that is not valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Its path, for example `queries[0].metric`.
    pub field: String,
    /// Why its value is not valid.
    pub description: String,
}

impl Rejection {
    /// Whether the same request can be sent again, and may succeed without a change.
    pub fn is_retry_safe(&self) -> bool {
        if let Some(retryable) = self.retryable {
            return retryable;
        }
        match (self.code, self.reason) {
            (Code::Unavailable | Code::DeadlineExceeded, _) => true,
            // The server dropped a slow reader; nothing is wrong with the request.
            (Code::Aborted, Some(ErrorReason::ClientTooSlow)) => true,
            (_, reason) => reason == Some(ErrorReason::Overloaded),
        }
    }
}

impl From<&Status> for Rejection {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let metadata = details.error_info().map(|info| info.metadata.clone());
        let violations = details.bad_request().map(|bad| bad.field_violations.clone());
        Self {
            code: status.code(),
            reason: reason_of(status),
            message: status.message().to_owned(),
            metadata: metadata.unwrap_or_default().into_iter().collect(),
            field_violations: violations
                .unwrap_or_default()
                .into_iter()
                .map(|violation| FieldViolation {
                    field: violation.field,
                    description: violation.description,
                })
                .collect(),
            retry_delay: details.retry_info().and_then(|info| info.retry_delay),
            retryable: None,
        }
    }
}

impl From<ItemError> for Rejection {
    fn from(item: ItemError) -> Self {
        let reason = Some(item.reason()).filter(|reason| *reason != ErrorReason::Unspecified);
        Self {
            code: Code::from(item.code),
            reason,
            message: item.message,
            metadata: item.metadata.into_iter().collect(),
            field_violations: Vec::new(),
            // A negative delay is no delay.
            retry_delay: item.retry_delay.and_then(|delay| delay.try_into().ok()),
            retryable: Some(item.retryable),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = one_line(&self.message);
        write!(f, "{}: {message}", code_name(self.code))?;
        for violation in &self.field_violations {
            let text = format!("{}: {}", violation.field, violation.description);
            if !message.contains(&text) {
                write!(f, "; {text}")?;
            }
        }
        Ok(())
    }
}

/// The text without line breaks.
pub fn one_line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" ")
}

/// gRPC's name of a code: `NOT_FOUND`.
pub const fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;
    use crate::error::item_error;

    #[test]
    fn the_service_decides_whether_an_item_is_retryable() {
        let transient = item_error(
            Code::Unavailable,
            ErrorReason::UidServiceUnavailable,
            "not reached",
            &[],
        );
        let rejection = Rejection::from(transient.clone());
        assert!(rejection.is_retry_safe());
        assert_eq!(rejection.retry_delay, Some(Duration::from_millis(100)));
        let permanent = ItemError {
            retryable: false,
            ..transient
        };
        assert!(!Rejection::from(permanent).is_retry_safe());
    }

    #[test]
    fn violations_that_the_message_does_not_name_are_displayed() {
        let details = ErrorDetails::with_bad_request_violation("range.end_ms", "is before the start");
        let status = Status::with_error_details(Code::InvalidArgument, "bad\nrequest", details);
        assert_eq!(
            Rejection::from(&status).to_string(),
            "INVALID_ARGUMENT: bad request; range.end_ms: is before the start"
        );
    }
}
