//! Errors of look-ups and assignments of UIDs.

use oxtsdb_client::{Code, Error};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::rejection::Rejection;
use oxtsdb_schema::UidKind;

/// Why a call to the UID service failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidsError {
    /// The service is unavailable. The error is transient.
    #[error("UID service is unavailable: {detail}")]
    Unavailable {
        /// The error of the service or of the connection.
        detail: String,
    },
    /// The service has no capacity for this call, or cancelled it. The error is transient and does not affect
    /// other calls.
    #[error("UID service is busy: {detail}")]
    Busy {
        /// The error of the service.
        detail: String,
    },
    /// The deadline passed.
    #[error("UID service did not respond before the deadline")]
    DeadlineExceeded,
    /// The service rejected the call.
    #[error("UID service rejected the call: {detail}")]
    Rejected {
        /// The error of the service.
        detail: String,
    },
    /// The layout of the service does not match the settings, or its table is not the one that the points were written
    /// with.
    #[error("UID service does not fit: {detail}")]
    Layout {
        /// The difference.
        detail: String,
    },
    /// The response violates the contract.
    #[error("UID service sent an invalid response: {detail}")]
    InvalidResponse {
        /// The violation.
        detail: String,
    },
}

impl UidsError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Busy { .. } | Self::DeadlineExceeded => true,
            Self::Rejected { .. } | Self::Layout { .. } | Self::InvalidResponse { .. } => false,
        }
    }

    /// Whether the error means that the service is unavailable to all callers.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::DeadlineExceeded => true,
            Self::Busy { .. }
            | Self::Rejected { .. }
            | Self::Layout { .. }
            | Self::InvalidResponse { .. } => false,
        }
    }

    pub(crate) fn from_client(error: Error) -> Self {
        let code = error.code();
        let is_overloaded = error.reason() == Some(ErrorReason::Overloaded);
        let is_mismatch = error.reason() == Some(ErrorReason::TableMismatch);
        let detail = match error {
            Error::Connection { message, .. } => return Self::Unavailable { detail: message },
            Error::Protocol { message } => return Self::InvalidResponse { detail: message },
            Error::DeadlineExceeded => return Self::DeadlineExceeded,
            Error::InvalidArgument { message } => message,
            Error::Rejected(rejection) => rejection.message,
        };
        match code {
            Code::DeadlineExceeded => Self::DeadlineExceeded,
            // The service is reachable.
            Code::Unavailable if is_overloaded => Self::Busy { detail },
            Code::Unavailable => Self::Unavailable { detail },
            Code::ResourceExhausted | Code::Aborted | Code::Cancelled => Self::Busy { detail },
            Code::FailedPrecondition if is_mismatch => Self::Layout { detail },
            code => Self::Rejected {
                detail: format!("{code:?}: {detail}"),
            },
        }
    }

    pub(crate) fn from_item(kind: UidKind, item: &str, rejection: Rejection) -> Self {
        let detail = format!("{kind} `{item}`: {}", rejection.message);
        match rejection.code {
            _ if !rejection.is_retry_safe() => Self::Rejected { detail },
            _ if rejection.reason == Some(ErrorReason::Overloaded) => Self::Busy { detail },
            Code::Unavailable | Code::DeadlineExceeded => Self::Unavailable { detail },
            _ => Self::Busy { detail },
        }
    }
}

/// Why the UID service assigned no UID to a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidRejection {
    /// The deployment does not assign UIDs of this kind on write.
    #[error("is unknown, and is not assigned on write")]
    AutoCreateDisabled,
    /// A rule of the deployment denies the name a UID.
    #[error("is not assigned a UID: denied by `{rule}`")]
    Denied {
        /// The name of the rule.
        rule: String,
    },
    /// A quota of names is used up.
    #[error("cannot be assigned: {}", .0.detail)]
    QuotaExceeded(Box<ExceededQuota>),
    /// All UIDs of the kind are in use.
    #[error("cannot be assigned: all UIDs of its kind are in use")]
    SpaceExhausted,
    /// The service would assign UIDs that series use.
    #[error("cannot be assigned: {detail}")]
    CounterBehind {
        /// The error of the service.
        detail: String,
    },
    /// The name violates the service's rules, which are stricter than ours.
    #[error("is rejected: {detail}")]
    InvalidName {
        /// The error of the service.
        detail: String,
    },
    /// The disk of the service's store is full.
    #[error("cannot be assigned: {detail}")]
    StoreFull {
        /// The error of the service.
        detail: String,
    },
    /// A transient error.
    #[error("cannot be assigned now: {detail}")]
    Unavailable {
        /// The error of the service.
        detail: String,
    },
    /// Another error.
    #[error("cannot be assigned: {detail}")]
    Other {
        /// The error of the service.
        detail: String,
    },
}

/// A quota of names that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededQuota {
    /// The most names.
    pub limit: String,
    /// Its place in the rules file.
    pub setting: String,
    /// The error of the service.
    pub detail: String,
}

impl UidRejection {
    pub(super) fn from_item(rejection: Rejection) -> Self {
        let retryable = rejection.is_retry_safe();
        let detail = rejection.message;
        let mut metadata = rejection.metadata;
        let mut metadata = |key| metadata.remove(key).unwrap_or_default();
        match rejection.reason {
            Some(ErrorReason::AssignmentRejected) => Self::Denied {
                rule: metadata("rule"),
            },
            Some(ErrorReason::QuotaExceeded) => Self::QuotaExceeded(Box::new(ExceededQuota {
                limit: metadata("limit"),
                setting: metadata("setting"),
                detail,
            })),
            Some(ErrorReason::AutoCreateDisabled) => Self::AutoCreateDisabled,
            Some(ErrorReason::UidSpaceExhausted) => Self::SpaceExhausted,
            Some(ErrorReason::UidCounterBehind) => Self::CounterBehind { detail },
            Some(ErrorReason::InvalidName) => Self::InvalidName { detail },
            Some(ErrorReason::StoreFull) => Self::StoreFull { detail },
            _ if retryable => Self::Unavailable { detail },
            _ => Self::Other { detail },
        }
    }
}
