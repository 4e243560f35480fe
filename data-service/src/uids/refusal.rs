//! Why there is no UID.

use oxtsdb_client::{Code, Error, ErrorReason, Rejection};
use oxtsdb_schema::UidKind;

/// Why the UID service could not be asked, or its answer not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidsError {
    /// The service is not there. The same call may succeed later.
    #[error("UID service is unavailable: {detail}")]
    Unavailable {
        /// What it said, or why it was not reached.
        detail: String,
    },
    /// The service has no capacity for this call, or ended it. The same call may succeed later; calls of
    /// others are not concerned.
    #[error("UID service did not take the call: {detail}")]
    Busy {
        /// What it said.
        detail: String,
    },
    /// The deadline passed.
    #[error("UID service did not answer before the deadline")]
    DeadlineExceeded,
    /// The service refused the call.
    #[error("UID service refused: {detail}")]
    Refused {
        /// What it said.
        detail: String,
    },
    /// The service does not fit this deployment's settings.
    #[error("UID service does not fit: {detail}")]
    Layout {
        /// What is different.
        detail: String,
    },
    /// The answer breaks the contract.
    #[error("UID service gave an impossible answer: {detail}")]
    BadAnswer {
        /// What is impossible.
        detail: String,
    },
}

impl UidsError {
    /// Whether the same call may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::Busy { .. } | Self::DeadlineExceeded => true,
            Self::Refused { .. } | Self::Layout { .. } | Self::BadAnswer { .. } => false,
        }
    }

    /// Whether the service is away for all callers, as far as this call tells.
    pub(super) fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::DeadlineExceeded => true,
            Self::Busy { .. } | Self::Refused { .. } | Self::Layout { .. } | Self::BadAnswer { .. } => false,
        }
    }

    pub(super) fn from_client(error: Error) -> Self {
        let code = error.code();
        let is_overloaded = error.reason() == Some(ErrorReason::Overloaded);
        let detail = match error {
            Error::Connection { message, .. } => return Self::Unavailable { detail: message },
            Error::Protocol { message } => return Self::BadAnswer { detail: message },
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
            code => Self::Refused {
                detail: format!("{code:?}: {detail}"),
            },
        }
    }

    pub(super) fn of_item(kind: UidKind, item: &str, rejection: Rejection) -> Self {
        let detail = format!("{kind} `{item}`: {}", rejection.message);
        match rejection.code {
            _ if !rejection.is_retry_safe() => Self::Refused { detail },
            _ if rejection.reason == Some(ErrorReason::Overloaded) => Self::Busy { detail },
            Code::Unavailable | Code::DeadlineExceeded => Self::Unavailable { detail },
            _ => Self::Busy { detail },
        }
    }
}

/// Why the UID service assigned no UID to a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UidRefusal {
    /// The deployment does not assign UIDs of this kind on write.
    #[error("is unknown, and is not assigned on write")]
    AutoCreateDisabled,
    /// All UIDs of the kind are in use.
    #[error("cannot be assigned: all UIDs of its kind are in use")]
    SpaceExhausted,
    /// The service's rules of names are stricter than ours.
    #[error("is refused: {detail}")]
    InvalidName {
        /// What it said.
        detail: String,
    },
    /// The disk of the service's store is full.
    #[error("cannot be assigned: {detail}")]
    StoreFull {
        /// What it said.
        detail: String,
    },
    /// It may succeed later.
    #[error("cannot be assigned now: {detail}")]
    Unavailable {
        /// What it said.
        detail: String,
    },
    /// Another error.
    #[error("cannot be assigned: {detail}")]
    Other {
        /// What it said.
        detail: String,
    },
}

impl UidRefusal {
    pub(super) fn of_item(rejection: Rejection) -> Self {
        let retryable = rejection.is_retry_safe();
        let detail = rejection.message;
        match rejection.reason {
            Some(ErrorReason::AutoCreateDisabled) => Self::AutoCreateDisabled,
            Some(ErrorReason::UidSpaceExhausted) => Self::SpaceExhausted,
            Some(ErrorReason::InvalidName) => Self::InvalidName { detail },
            Some(ErrorReason::StoreFull) => Self::StoreFull { detail },
            _ if retryable => Self::Unavailable { detail },
            _ => Self::Other { detail },
        }
    }
}
