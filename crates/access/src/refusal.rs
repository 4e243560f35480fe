//! Refused requests: their messages, statuses and counts.

use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status;
use tonic::{Code, Status};

use crate::mode::Mode;
use crate::operation::Action;

/// Why a request is refused. Messages contain no part of a token or key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The credentials are not valid.
    #[error("invalid credentials: {0}")]
    InvalidCredentials(String),
    /// The caller has no credentials, and no rule grants the operation to such callers.
    #[error(
        "no credentials: `{operation}` needs a client certificate or a header `authorization: Bearer TOKEN`"
    )]
    NoCredentials {
        /// The operation.
        operation: String,
    },
    /// No rule of the policy grants the operation to the caller.
    #[error("`{identity}` may not {action} by `{operation}`")]
    NotGranted {
        /// The caller.
        identity: String,
        /// The right.
        action: Action,
        /// The operation.
        operation: String,
    },
    /// The rules that grant the operation do not include the metric.
    #[error("`{identity}` may not {action} metric `{metric}`")]
    Metric {
        /// The caller.
        identity: String,
        /// The right.
        action: Action,
        /// The metric.
        metric: String,
    },
    /// The metric of a TSUID. Its name is not shown, nor whether it has one: callers may guess TSUIDs.
    #[error("`{identity}` may not {action} the metric with UID {uid}")]
    MetricUid {
        /// The caller.
        identity: String,
        /// The right.
        action: Action,
        /// The UID of the metric.
        uid: String,
    },
    /// Global annotations belong to no metric, so that rules with `metrics` do not grant them.
    #[error("`{identity}` may read some metrics only, not global annotations")]
    GlobalAnnotations {
        /// The caller.
        identity: String,
    },
    /// The server does not serve the operation in its mode.
    #[error("the server is {} (--mode {mode}), `{operation}` is not served", mode.adjective())]
    Mode {
        /// The mode.
        mode: Mode,
        /// The operation.
        operation: String,
    },
    /// Telnet is off, or the connection comes from another machine.
    #[error("telnet is {0} where rights are on (`telnet` in --access-policy)")]
    Telnet(&'static str),
}

impl Refusal {
    /// The status of a call.
    pub fn to_status(&self) -> Status {
        let (code, reason) = match self {
            Self::InvalidCredentials(_) | Self::NoCredentials { .. } => {
                (Code::Unauthenticated, ErrorReason::InvalidCredentials)
            }
            Self::NotGranted { .. }
            | Self::Metric { .. }
            | Self::MetricUid { .. }
            | Self::GlobalAnnotations { .. }
            | Self::Telnet(_) => (Code::PermissionDenied, ErrorReason::AccessDenied),
            Self::Mode { .. } => (Code::FailedPrecondition, ErrorReason::FeatureDisabled),
        };
        status(code, reason, self.to_string(), &self.metadata())
    }

    /// The metadata of its error details.
    pub fn metadata(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::InvalidCredentials(_) | Self::NoCredentials { .. } => Vec::new(),
            Self::NotGranted {
                identity,
                action,
                operation,
            } => vec![
                ("identity", identity),
                ("right", action.as_str()),
                ("operation", operation),
            ],
            Self::Metric {
                identity,
                action,
                metric,
            } => vec![
                ("identity", identity),
                ("right", action.as_str()),
                ("metric", metric),
            ],
            Self::MetricUid {
                identity,
                action,
                uid,
            } => vec![("identity", identity), ("right", action.as_str()), ("uid", uid)],
            Self::GlobalAnnotations { identity } => {
                vec![("identity", identity), ("right", Action::Read.as_str())]
            }
            Self::Mode { .. } => vec![("setting", "--mode")],
            Self::Telnet(_) => vec![("setting", "--access-policy")],
        }
    }

    /// Whether valid credentials may help.
    pub const fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::InvalidCredentials(_) | Self::NoCredentials { .. })
    }
}

/// Refusals since the start, by kind.
#[derive(Debug, Default)]
pub struct RefusalCounts {
    /// Without credentials, or with invalid ones.
    pub unauthenticated: AtomicU64,
    /// Requests that no rule grants, telnet connections and global annotations included.
    pub not_granted: AtomicU64,
    /// Metrics that no rule grants: one for each series of a write, one for each query.
    pub metrics: AtomicU64,
    /// Requests that the mode of the server excludes.
    pub mode: AtomicU64,
}

impl RefusalCounts {
    pub(crate) fn count(&self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::InvalidCredentials(_) | Refusal::NoCredentials { .. } => &self.unauthenticated,
            Refusal::NotGranted { .. } | Refusal::GlobalAnnotations { .. } | Refusal::Telnet(_) => {
                &self.not_granted
            }
            Refusal::Metric { .. } | Refusal::MetricUid { .. } => &self.metrics,
            Refusal::Mode { .. } => &self.mode,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters by name.
    pub fn all(&self) -> [(&'static str, u64); 4] {
        [
            ("unauthenticated", &self.unauthenticated),
            ("not_granted", &self.not_granted),
            ("metric", &self.metrics),
            ("mode", &self.mode),
        ]
        .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
    }
}
