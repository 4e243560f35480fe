//! Why a call failed, and what the caller of the store is told.

use std::fmt;

use hbase_thrift::hbase::{AlreadyExists, IOError, IllegalArgument};
use thrift::{ProtocolErrorKind, TransportErrorKind};

use crate::{StoreError, TableName};

/// Why a call failed.
#[derive(Clone, Debug)]
pub(super) enum CallError {
    /// Nothing was sent.
    NotSent {
        /// Why not.
        detail: String,
    },
    /// The scanner that the call is about is gone, with its connection or by its lease.
    ScannerLost,
    /// The connection broke when the request may have been received.
    Lost { gateway: String, detail: String },
    /// No answer by the deadline.
    TimedOut { gateway: String, detail: String },
    /// The answer is longer than `max_reply_bytes`.
    TooLong { gateway: String, detail: String },
    /// The gateway answered that HBase, or itself, refused.
    Refused(Refusal),
}

/// An exception that came as an answer; the connection is as good as before.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) gateway: String,
    pub(super) kind: RefusalKind,
    /// The first line of a Java stack trace, mostly: class of the exception, and its message.
    pub(super) line: String,
}

/// Which of the exceptions of HBase's Thrift interface it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalKind {
    /// `IOError`: what HBase's client threw.
    Io,
    /// `IllegalArgument`.
    Argument,
    /// `AlreadyExists`.
    Exists,
}

/// The longest part of a foreign message that is passed on.
const MAX_DETAIL: usize = 400;

impl CallError {
    /// What a failed call of the generated client means.
    pub(super) fn of(error: thrift::Error, gateway: &str, call: &str) -> Self {
        let gateway = gateway.to_owned();
        let refused = |kind, message: Option<&str>| {
            Self::Refused(Refusal {
                gateway: gateway.clone(),
                kind,
                line: first_line(message.unwrap_or_default()),
            })
        };
        let detail = match error {
            thrift::Error::User(error) => {
                if let Some(error) = error.downcast_ref::<IOError>() {
                    return refused(RefusalKind::Io, error.message.as_deref());
                }
                if let Some(error) = error.downcast_ref::<IllegalArgument>() {
                    return refused(RefusalKind::Argument, error.message.as_deref());
                }
                if let Some(error) = error.downcast_ref::<AlreadyExists>() {
                    return refused(RefusalKind::Exists, error.message.as_deref());
                }
                format!("{call}: {error}")
            }
            thrift::Error::Transport(error) => match error.kind {
                TransportErrorKind::TimedOut => {
                    return Self::TimedOut {
                        gateway,
                        detail: format!("{call}: no answer in time"),
                    };
                }
                TransportErrorKind::EndOfFile => format!("{call}: the gateway closed the connection"),
                _ => format!("{call}: {}", first_line(&error.message)),
            },
            thrift::Error::Protocol(error) if error.kind == ProtocolErrorKind::SizeLimit => {
                return Self::TooLong {
                    gateway,
                    detail: format!("{call}: {} (max_reply_bytes)", error.message),
                };
            }
            thrift::Error::Protocol(error) => format!("{call}: received {}", first_line(&error.message)),
            // Of the gateway's server, or our own about an answer to something else.
            thrift::Error::Application(error) => {
                format!("{call}: {:?}: {}", error.kind, first_line(&error.message))
            }
        };
        Self::Lost { gateway, detail }
    }

    /// Whether the connection may be used for another request.
    pub(super) fn leaves_connection_usable(&self) -> bool {
        match self {
            Self::Refused(_) | Self::NotSent { .. } | Self::ScannerLost => true,
            Self::Lost { .. } | Self::TimedOut { .. } | Self::TooLong { .. } => false,
        }
    }

    /// What the store's caller is told; `table` is what the call was about.
    pub(super) fn into_store_error(self, table: Option<&TableName>) -> StoreError {
        match self {
            Self::NotSent { detail } => StoreError::Unavailable { detail },
            Self::ScannerLost => StoreError::Unavailable {
                detail: "the scanner is gone".to_owned(),
            },
            Self::Lost { gateway, detail } => StoreError::Io {
                place: gateway,
                detail,
            },
            Self::TimedOut { gateway, detail } => StoreError::TimedOut {
                detail: format!("{gateway}: {detail}"),
            },
            Self::TooLong { gateway, detail } => StoreError::Invalid {
                detail: format!("{gateway}: {detail}"),
            },
            Self::Refused(refusal) => refusal.into_store_error(table),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { detail } => f.write_str(detail),
            Self::ScannerLost => f.write_str("the scanner is gone"),
            Self::Lost { gateway, detail }
            | Self::TimedOut { gateway, detail }
            | Self::TooLong { gateway, detail } => write!(f, "{gateway}: {detail}"),
            Self::Refused(refusal) => write!(f, "{}: {}", refusal.gateway, refusal.line),
        }
    }
}

impl Refusal {
    /// Whether the exception of this class, or one that it wraps, is named in the message.
    ///
    /// HBase's client wraps the cause: `RetriesExhaustedWithDetailsException: Failed 1 action:
    /// org.apache.hadoop.hbase.TableNotFoundException: ...`.
    pub(super) fn names(&self, class: &str) -> bool {
        self.line
            .match_indices(class)
            .any(|(at, _)| self.line[..at].ends_with('.') || at == 0)
    }

    /// Whether it says that a scanner is no longer known, to the gateway or to a region server.
    pub(super) fn is_about_lease(&self) -> bool {
        let classes = [
            "UnknownScannerException",
            "LeaseException",
            "ScannerTimeoutException",
            "ScannerResetException",
            "OutOfOrderScannerNextException",
        ];
        self.kind == RefusalKind::Argument && self.line.contains("scanner ID is invalid")
            || classes.into_iter().any(|class| self.names(class))
    }

    fn into_store_error(self, table: Option<&TableName>) -> StoreError {
        if let Some(table) = table {
            if self.names("TableNotFoundException") {
                return StoreError::NoSuchTable { table: table.clone() };
            }
            if self.names("NoSuchColumnFamilyException") {
                return StoreError::NoSuchFamily {
                    table: table.clone(),
                    family: family_in(&self.line),
                };
            }
        }
        if let Some(length) = counter_length(&self.line) {
            return StoreError::NotACounter { length };
        }
        match self.kind {
            RefusalKind::Argument => StoreError::Invalid {
                detail: format!("{}: {}", self.gateway, self.line),
            },
            RefusalKind::Io | RefusalKind::Exists => StoreError::Io {
                place: self.gateway,
                detail: self.line,
            },
        }
    }
}

/// The first line of a message, shortened.
fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default().trim_end();
    match line.char_indices().nth(MAX_DETAIL) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// The family in `Column family c does not exist in region ...`.
fn family_in(line: &str) -> String {
    line.split("olumn family ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default()
        .to_owned()
}

/// The length in `Field is not a long, it's 7 bytes wide`.
fn counter_length(line: &str) -> Option<usize> {
    let (_, rest) = line.split_once("Field is not a long, it's ")?;
    rest.split_whitespace().next()?.parse().ok()
}
