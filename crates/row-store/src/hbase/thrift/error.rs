//! Errors of Thrift calls, and their translation to [`StoreError`].

use std::fmt;

use hbase_thrift::hbase::{AlreadyExists, IOError, IllegalArgument};
use thrift::{ProtocolErrorKind, TransportErrorKind};

use crate::hbase::exception_text::{first_line, rejection};
use crate::{StoreError, TableName};

/// Error of a call.
#[derive(Clone, Debug)]
pub(super) enum CallError {
    /// The request was not sent.
    NotSent {
        /// The reason.
        detail: String,
    },
    /// The scanner of the request is gone, with its connection or because its lease expired.
    ScannerLost,
    /// The connection broke after the request may have been received.
    ConnectionLost { gateway: String, detail: String },
    /// No response by the deadline.
    TimedOut { gateway: String, detail: String },
    /// The response exceeds `max_reply_bytes`.
    ResponseTooLarge { gateway: String, detail: String },
    /// The response is an exception of HBase or of the gateway.
    Exception(ServerException),
}

/// An exception returned as a response; the connection remains usable.
#[derive(Clone, Debug)]
pub(super) struct ServerException {
    pub(super) gateway: String,
    pub(super) kind: ExceptionKind,
    /// Usually the first line of a Java stack trace: class and message of the exception.
    pub(super) line: String,
}

/// The exceptions of HBase's Thrift interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExceptionKind {
    /// `IOError`: any exception thrown by HBase's client.
    Io,
    /// `IllegalArgument`.
    Argument,
    /// `AlreadyExists`.
    Exists,
}

impl CallError {
    /// Classifies the error of a call of the generated client.
    pub(super) fn from_thrift(error: thrift::Error, gateway: &str, call: &str) -> Self {
        let gateway = gateway.to_owned();
        let exception = |kind, message: Option<&str>| {
            Self::Exception(ServerException {
                gateway: gateway.clone(),
                kind,
                line: first_line(message.unwrap_or_default()),
            })
        };
        let detail = match error {
            thrift::Error::User(error) => {
                if let Some(error) = error.downcast_ref::<IOError>() {
                    return exception(ExceptionKind::Io, error.message.as_deref());
                }
                if let Some(error) = error.downcast_ref::<IllegalArgument>() {
                    return exception(ExceptionKind::Argument, error.message.as_deref());
                }
                if let Some(error) = error.downcast_ref::<AlreadyExists>() {
                    return exception(ExceptionKind::Exists, error.message.as_deref());
                }
                format!("{call}: {error}")
            }
            thrift::Error::Transport(error) => match error.kind {
                TransportErrorKind::TimedOut => {
                    return Self::TimedOut {
                        gateway,
                        detail: format!("{call}: no response in time"),
                    };
                }
                TransportErrorKind::EndOfFile => format!("{call}: the gateway closed the connection"),
                _ => format!("{call}: {}", first_line(&error.message)),
            },
            thrift::Error::Protocol(error) if error.kind == ProtocolErrorKind::SizeLimit => {
                return Self::ResponseTooLarge {
                    gateway,
                    detail: format!("{call}: {} (max_reply_bytes)", error.message),
                };
            }
            thrift::Error::Protocol(error) => format!("{call}: received {}", first_line(&error.message)),
            // From the gateway's server, or from our client about the response to another call.
            thrift::Error::Application(error) => {
                format!("{call}: {:?}: {}", error.kind, first_line(&error.message))
            }
        };
        Self::ConnectionLost { gateway, detail }
    }

    /// Whether the connection can be used for another request.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::Exception(_) | Self::NotSent { .. } | Self::ScannerLost => true,
            Self::ConnectionLost { .. } | Self::TimedOut { .. } | Self::ResponseTooLarge { .. } => false,
        }
    }

    /// The error for the caller of the store; `context` describes the request.
    pub(super) fn into_store_error(self, context: RequestContext<'_>) -> StoreError {
        match self {
            Self::NotSent { detail } => StoreError::Unavailable { detail },
            Self::ScannerLost => StoreError::Unavailable {
                detail: "the scanner is gone".to_owned(),
            },
            Self::ConnectionLost { gateway, detail } => StoreError::Io {
                place: gateway,
                detail,
            },
            Self::TimedOut { gateway, detail } => StoreError::TimedOut {
                detail: format!("{gateway}: {detail}"),
            },
            Self::ResponseTooLarge { gateway, detail } => StoreError::Invalid {
                detail: format!("{gateway}: {detail}"),
            },
            Self::Exception(exception) => exception.into_store_error(context),
        }
    }
}

/// Whether a request may be sent again after its connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Idempotency {
    /// Twice has the same effect as once.
    Idempotent,
    /// The request may have taken effect, and must not take effect again.
    NotIdempotent,
}

/// The facts of a request that decide its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestContext<'a> {
    /// The table, if the request has one.
    pub(super) table: Option<&'a TableName>,
    /// Whether the request is idempotent.
    pub(super) idempotency: Idempotency,
}

impl<'a> RequestContext<'a> {
    /// A read or an idempotent write.
    pub(super) fn idempotent(table: &'a TableName) -> Self {
        Self {
            table: Some(table),
            idempotency: Idempotency::Idempotent,
        }
    }

    /// An operation that must not be repeated.
    pub(super) fn not_idempotent(table: &'a TableName) -> Self {
        Self {
            table: Some(table),
            idempotency: Idempotency::NotIdempotent,
        }
    }

    /// A request without a table.
    pub(super) const NO_TABLE: RequestContext<'static> = RequestContext {
        table: None,
        idempotency: Idempotency::Idempotent,
    };
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { detail } => f.write_str(detail),
            Self::ScannerLost => f.write_str("the scanner is gone"),
            Self::ConnectionLost { gateway, detail }
            | Self::TimedOut { gateway, detail }
            | Self::ResponseTooLarge { gateway, detail } => write!(f, "{gateway}: {detail}"),
            Self::Exception(exception) => write!(f, "{}: {}", exception.gateway, exception.line),
        }
    }
}

impl ServerException {
    /// Whether the message names an exception of this class, as the exception itself or as its cause.
    ///
    /// HBase's client wraps causes, with or without their package: `RetriesExhaustedWithDetailsException: Failed 1
    /// action: NotServingRegionException: 1 time`.
    pub(super) fn names(&self, class: &str) -> bool {
        self.line.match_indices(class).any(|(at, _)| {
            let before = self.line[..at].chars().next_back();
            before.is_none_or(|before| !before.is_alphanumeric() && before != '_')
        })
    }

    /// Whether the error is transient: a region moves or is too busy, or a server is starting or unreachable. The
    /// gateway has already retried for some time.
    fn is_temporary(&self) -> bool {
        TEMPORARY.into_iter().any(|class| self.names(class))
            // The message of a batch has this in place of `RegionTooBusyException`.
            || self.line.contains("Over memstore limit")
            || self.line.contains("RetriesExhaustedException: Failed after attempts")
    }

    /// Whether the gateway or a region server no longer knows the scanner.
    pub(super) fn is_scanner_expired(&self) -> bool {
        let classes = [
            "UnknownScannerException",
            "LeaseException",
            "ScannerTimeoutException",
            "ScannerResetException",
            "OutOfOrderScannerNextException",
        ];
        self.kind == ExceptionKind::Argument && self.line.contains("scanner ID is invalid")
            || classes.into_iter().any(|class| self.names(class))
    }

    fn into_store_error(self, context: RequestContext<'_>) -> StoreError {
        if let Some(error) = rejection(&self.line, |class| self.names(class), context.table) {
            return error;
        }
        match self.kind {
            ExceptionKind::Argument => StoreError::Invalid {
                detail: format!("{}: {}", self.gateway, self.line),
            },
            // The outcome of some of its parts may be unknown, but the request is idempotent.
            _ if context.idempotency == Idempotency::Idempotent && self.is_temporary() => {
                StoreError::Unavailable {
                    detail: format!("{}: {}", self.gateway, self.line),
                }
            }
            ExceptionKind::Io | ExceptionKind::Exists => StoreError::Io {
                place: self.gateway,
                detail: self.line,
            },
        }
    }
}

/// Transient exceptions.
const TEMPORARY: [&str; 21] = [
    "CallQueueTooBigException",
    "CallTimeoutException",
    "ConnectException",
    "ConnectionClosedException",
    "ConnectionClosingException",
    "ConnectTimeoutException",
    "FailedServerException",
    "MasterNotRunningException",
    "NoServerForRegionException",
    "NotServingRegionException",
    "PleaseHoldException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionServerAbortedException",
    "RegionServerStoppedException",
    "RegionTooBusyException",
    "RpcThrottlingException",
    "ServerNotRunningYetException",
    "SocketTimeoutException",
    "TableNotEnabledException",
    "ZooKeeperConnectionException",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(line: &str) -> ServerException {
        ServerException {
            gateway: "localhost:9090".to_owned(),
            kind: ExceptionKind::Io,
            line: line.to_owned(),
        }
    }

    #[test]
    fn finds_exception_classes_with_and_without_package() {
        assert!(
            exception("org.apache.hadoop.hbase.TableNotFoundException: tsdb").names("TableNotFoundException")
        );
        assert!(exception("Failed 2 actions: ConnectException: 2 times").names("ConnectException"));
        assert!(!exception("org.example.MyTableNotFoundException: tsdb").names("TableNotFoundException"));
        assert!(!exception("no such thing").names("TableNotFoundException"));
    }
}
