//! Errors, and whether a retry is safe.
//!
//! Every failure that a service can report arrives in one of two shapes: a gRPC status with `google.rpc`
//! details, which ends a call or a stream, or an `ItemError` for one item of a batch inside a response that is
//! itself OK. Both become a [`Rejection`], so that a program decides what to do by the same methods.

use std::time::Duration;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::rejection::{self, Rejection};
use tonic::{Code, Status};

/// Why a call, or a stream that had begun, failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A setting of the builder or an argument of a call is not valid. Nothing was sent.
    #[error("{message}")]
    InvalidArgument {
        /// Which, its value, and what is valid.
        message: String,
    },
    /// No connection could be established, or it broke before the response was complete.
    #[error("{}: {message}", rejection::code_name(*code))]
    Connection {
        /// The code that gRPC assigns to the failure.
        code: Code,
        /// The chain of causes.
        message: String,
    },
    /// The deadline of the call passed in the client.
    #[error("DEADLINE_EXCEEDED: no response within the deadline of the call")]
    DeadlineExceeded,
    /// The service rejected the call or one of its items.
    #[error("{0}")]
    Rejected(Box<Rejection>),
    /// A response violates the contract; the server is not the one that this client was built for.
    #[error("response violates the contract: {message}")]
    Protocol {
        /// How.
        message: String,
    },
}

impl Error {
    /// Whether the same call can be sent again: it has the same effect as sending it once, and may succeed
    /// without a change of the request or of the deployment.
    ///
    /// Of a stream of results a retry starts over. A cancelled query is not safe to retry: an operator
    /// stopped it on purpose.
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::InvalidArgument { .. } | Self::Protocol { .. } => false,
            Self::Connection { .. } | Self::DeadlineExceeded => true,
            Self::Rejected(rejection) => rejection.is_retry_safe(),
        }
    }

    /// How long to wait before a retry, if the service named it (`google.rpc.RetryInfo`).
    pub fn retry_delay(&self) -> Option<Duration> {
        match self {
            Self::Rejected(rejection) => rejection.retry_delay,
            _ => None,
        }
    }

    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidArgument { .. } => Code::InvalidArgument,
            Self::Connection { code, .. } => *code,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::Rejected(rejection) => rejection.code,
            Self::Protocol { .. } => Code::Internal,
        }
    }

    /// The reason of the contract, if the service gave one that this client knows.
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Rejected(rejection) => rejection.reason,
            _ => None,
        }
    }

    /// The rejection of a service.
    pub fn rejection(&self) -> Option<&Rejection> {
        match self {
            Self::Rejected(rejection) => Some(rejection),
            _ => None,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::InvalidArgument {
            message: message.into(),
        }
    }

    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::Protocol {
            message: message.into(),
        }
    }

    /// Whether the service could not be reached, or was unavailable, or did not respond in time: nothing is wrong
    /// with the call.
    pub fn is_outage(&self) -> bool {
        let is_overloaded = self.reason() == Some(ErrorReason::Overloaded);
        matches!(self, Self::DeadlineExceeded) || (self.is_unavailable() && !is_overloaded)
    }

    /// Whether another server may be able to serve the call now.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Connection { .. }) || self.code() == Code::Unavailable
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        // tonic reports a time-out of its own as CANCELLED.
        if status.code() == Code::Cancelled && status.message() == "Timeout expired" {
            return Self::DeadlineExceeded;
        }
        // A status that a server sent has no cause; one that tonic made of a broken connection has.
        if std::error::Error::source(&status).is_some() {
            return Self::Connection {
                code: status.code(),
                message: with_causes(&status),
            };
        }
        Self::Rejected(Box::new(Rejection::from(&status)))
    }
}

impl From<Rejection> for Error {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(Box::new(rejection))
    }
}

/// The message of a status and the messages of its causes.
fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // hyper and tonic repeat the messages of their causes.
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    rejection::one_line(&text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oxtsdb_proto::error::{invalid_field, status};

    use super::*;

    #[test]
    fn transient_rejections_are_retry_safe_and_carry_the_delay() {
        let error = Error::from(status(
            Code::Unavailable,
            ErrorReason::StoreUnavailable,
            "store is closed",
            &[],
        ));
        assert!(error.is_retry_safe());
        assert_eq!(error.retry_delay(), Some(Duration::from_millis(100)));
        assert_eq!(error.reason(), Some(ErrorReason::StoreUnavailable));
        assert_eq!(error.to_string(), "UNAVAILABLE: store is closed");
    }

    #[test]
    fn permanent_rejections_are_not_retry_safe() {
        let error = Error::from(status(
            Code::NotFound,
            ErrorReason::NameNotFound,
            "no such metric",
            &[("kind", "metrics")],
        ));
        assert!(!error.is_retry_safe());
        assert_eq!(error.retry_delay(), None);
        assert_eq!(error.rejection().unwrap().metadata["kind"], "metrics");
    }

    #[test]
    fn field_violations_are_decoded() {
        let error = Error::from(invalid_field("queries[0].metric", "is empty"));
        let violation = &error.rejection().unwrap().field_violations[0];
        assert_eq!(
            (violation.field.as_str(), violation.description.as_str()),
            ("queries[0].metric", "is empty")
        );
        assert_eq!(
            error.to_string(),
            "INVALID_ARGUMENT: queries[0].metric: is empty",
            "named once"
        );
    }

    #[test]
    fn broken_connections_are_retry_safe_and_name_their_causes() {
        let mut status = Status::unknown("transport error");
        let broken = std::io::Error::other("connection reset\nby peer");
        status.set_source(Arc::new(broken));
        let error = Error::from(status);
        assert!(error.is_retry_safe() && error.is_unavailable());
        assert_eq!(
            error.to_string(),
            "UNKNOWN: transport error: connection reset by peer"
        );
    }

    #[test]
    fn statuses_of_other_servers_have_no_reason() {
        let error = Error::from(Status::internal("from a proxy"));
        assert_eq!((error.code(), error.reason()), (Code::Internal, None));
        assert!(!error.is_retry_safe());
    }

    #[test]
    fn time_outs_of_the_transport_are_deadlines() {
        assert_eq!(
            Error::from(Status::cancelled("Timeout expired")),
            Error::DeadlineExceeded
        );
        assert_eq!(
            Error::from(Status::cancelled("by the caller")).code(),
            Code::Cancelled
        );
    }
}
