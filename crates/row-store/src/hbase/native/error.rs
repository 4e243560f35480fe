//! Errors of calls, the remedy for each, and their translation to [`StoreError`].
//!
//! Source: HBase 2.6.1, `ClientExceptionsUtil`, `AsyncRpcRetryingCaller`, and the exceptions that region servers throw.

use super::super::exception_text::{first_line, rejection};
use super::messages::{ExceptionResponse, NameBytesPair};
use crate::{StoreError, TableName};

/// Error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// The request was not sent.
    NotSent { server: String, detail: String },
    /// The connection broke after the request may have been received.
    Lost { server: String, detail: String },
    /// No response by the deadline.
    TimedOut { server: String, detail: String },
    /// The response exceeds `max_reply_bytes`.
    TooLarge { server: String, detail: String },
    /// The response is not one of HBase's.
    Malformed { detail: String },
    /// The table does not exist.
    NoTable,
    /// No region has the row for now: it moves, splits, or its server is down.
    NoRegion { detail: String },
    /// An exception of HBase.
    Exception(ServerException),
}

/// An exception that a server returned; the connection remains usable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerException {
    pub(super) server: String,
    /// The class, with its package.
    pub(super) class: String,
    /// The first line of its text.
    pub(super) line: String,
    /// The server says that a retry has the same result.
    pub(super) is_final: bool,
    /// The server says that it is overloaded.
    pub(super) is_overloaded: bool,
    /// The server that has the region now.
    pub(super) moved_to: Option<(String, u16)>,
}

/// The reaction to an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The region is elsewhere: find it, and send the request again; it was not applied.
    Locate,
    /// The region is about to open: send the request again.
    Wait,
    /// The server does not serve: forget its connection, and find its regions.
    OtherServer,
    /// The server has too much to do: send the request again, later.
    WaitLonger,
    /// Send the request again now.
    AtOnce,
    /// The scanner is gone: open another one behind the last row.
    NewScanner,
    /// None.
    None,
}

/// Classes of exceptions and their remedies; the first that is in the text applies.
const REMEDIES: [(&str, Remedy); 26] = [
    ("UnknownScannerException", Remedy::NewScanner),
    ("LeaseException", Remedy::NewScanner),
    ("OutOfOrderScannerNextException", Remedy::NewScanner),
    ("ScannerResetException", Remedy::NewScanner),
    ("NotServingRegionException", Remedy::Locate),
    ("WrongRegionException", Remedy::Locate),
    ("RegionMovedException", Remedy::Locate),
    ("RegionOfflineException", Remedy::Locate),
    ("RegionOpeningException", Remedy::Wait),
    ("RegionInRecoveryException", Remedy::Wait),
    ("RegionServerStoppedException", Remedy::OtherServer),
    ("RegionServerAbortedException", Remedy::OtherServer),
    ("ServerNotRunningYetException", Remedy::OtherServer),
    ("StoppedRpcClientException", Remedy::OtherServer),
    ("FailedServerException", Remedy::OtherServer),
    ("RegionTooBusyException", Remedy::WaitLonger),
    ("CallQueueTooBigException", Remedy::WaitLonger),
    ("CallDroppedException", Remedy::WaitLonger),
    ("CallTimeoutException", Remedy::WaitLonger),
    ("RpcThrottlingException", Remedy::WaitLonger),
    ("MultiActionResultTooLarge", Remedy::AtOnce),
    ("RetryImmediatelyException", Remedy::AtOnce),
    ("PleaseHoldException", Remedy::OtherServer),
    ("MasterNotRunningException", Remedy::OtherServer),
    ("MasterStoppedException", Remedy::OtherServer),
    ("MasterRegistryFetchException", Remedy::OtherServer),
];

impl CallError {
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::Malformed {
            detail: detail.into(),
        }
    }

    /// The remedy; after a lost connection it is another server, if the request may be repeated.
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::NotSent { .. } | Self::Lost { .. } => Remedy::OtherServer,
            Self::NoRegion { .. } => Remedy::Locate,
            Self::Exception(exception) => exception.remedy(),
            Self::TimedOut { .. } | Self::TooLarge { .. } | Self::Malformed { .. } | Self::NoTable => {
                Remedy::None
            }
        }
    }

    /// Whether the request may have taken effect.
    pub(super) const fn may_have_taken_effect(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::TimedOut { .. } | Self::TooLarge { .. } | Self::Malformed { .. }
        )
    }

    /// The error for the caller of the store.
    pub(super) fn into_store_error(self, table: Option<&TableName>) -> StoreError {
        match self {
            Self::NotSent { server, detail } => StoreError::Unavailable {
                detail: format!("{server}: {detail}"),
            },
            Self::NoRegion { detail } => StoreError::Unavailable { detail },
            Self::Lost { server, detail } => StoreError::Io {
                place: server,
                detail,
            },
            Self::TimedOut { server, detail } => StoreError::TimedOut {
                detail: format!("{server}: {detail}"),
            },
            Self::TooLarge { server, detail } => StoreError::Invalid {
                detail: format!("{server}: {detail}"),
            },
            Self::Malformed { detail } => StoreError::Io {
                place: "HBase".to_owned(),
                detail,
            },
            Self::NoTable => match table {
                Some(table) => StoreError::NoSuchTable { table: table.clone() },
                None => StoreError::Unavailable {
                    detail: "a table of HBase is missing".to_owned(),
                },
            },
            Self::Exception(exception) => exception.into_store_error(table),
        }
    }
}

impl ServerException {
    /// The exception of a response.
    pub(super) fn from_response(server: &str, response: ExceptionResponse) -> Self {
        let class = response.exception_class_name.unwrap_or_default();
        let text = response.stack_trace.unwrap_or_default();
        let hint = response
            .hostname
            .zip(response.port.and_then(|port| u16::try_from(port).ok()));
        Self {
            is_final: response.do_not_retry.unwrap_or_default(),
            is_overloaded: response.server_overloaded.unwrap_or_default(),
            ..Self::new(server, class, &text, hint)
        }
    }

    /// The exception of one action of several.
    pub(super) fn from_action(server: &str, exception: &NameBytesPair) -> Self {
        let text = String::from_utf8_lossy(exception.value.as_deref().unwrap_or_default()).into_owned();
        Self::new(server, exception.name.clone(), &text, None)
    }

    /// An exception by its class and its text.
    pub(super) fn new(server: &str, class: String, text: &str, hint: Option<(String, u16)>) -> Self {
        let line = first_line(text);
        let hint = hint.filter(|(host, _)| !host.is_empty());
        let moved_to = hint.or_else(|| class.contains("RegionMoved").then(|| moved_to(&line)).flatten());
        Self {
            server: server.to_owned(),
            is_final: class.ends_with("DoNotRetryIOException"),
            class,
            line,
            is_overloaded: false,
            moved_to,
        }
    }

    /// Whether it is of a class, by its simple name, or says that it was caused by one.
    pub(super) fn names(&self, class: &str) -> bool {
        self.class.ends_with(class) || self.line.contains(class)
    }

    fn remedy(&self) -> Remedy {
        let entry = REMEDIES.iter().find(|(class, _)| self.names(class));
        match entry {
            Some((_, remedy)) => *remedy,
            None if self.is_overloaded => Remedy::WaitLonger,
            None => Remedy::None,
        }
    }

    fn into_store_error(self, table: Option<&TableName>) -> StoreError {
        if let Some(error) = rejection(&self.line, |class| self.names(class), table) {
            return error;
        }
        let is_temporary = self.remedy() != Remedy::None || self.names("TableNotEnabledException");
        let detail = if self.line.contains(&self.class) {
            self.line
        } else {
            format!("{}: {}", self.class, self.line)
        };
        if is_temporary {
            return StoreError::Unavailable {
                detail: format!("{}: {detail}", self.server),
            };
        }
        StoreError::Io {
            place: self.server,
            detail,
        }
    }
}

/// The server in `Region moved to: hostname=H port=P startCode=S. As of locationSeqNum=N.`
fn moved_to(line: &str) -> Option<(String, u16)> {
    let word = |key: &str| line.split_once(key)?.1.split_whitespace().next();
    Some((word("hostname=")?.to_owned(), word("port=")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(class: &str, text: &str) -> CallError {
        CallError::Exception(ServerException::new("a:1", class.to_owned(), text, None))
    }

    #[test]
    fn each_class_has_a_remedy() {
        for (class, text, remedy) in [
            (
                "org.apache.hadoop.hbase.NotServingRegionException",
                "",
                Remedy::Locate,
            ),
            (
                "java.io.IOException",
                "java.io.IOException: NotServingRegionException: x",
                Remedy::Locate,
            ),
            (
                "org.apache.hadoop.hbase.RegionTooBusyException",
                "Over memstore limit",
                Remedy::WaitLonger,
            ),
            (
                "org.apache.hadoop.hbase.UnknownScannerException",
                "",
                Remedy::NewScanner,
            ),
            (
                "org.apache.hadoop.hbase.DoNotRetryIOException",
                "no",
                Remedy::None,
            ),
        ] {
            assert_eq!(exception(class, text).remedy(), remedy, "{class}");
        }
        let lost = CallError::Lost {
            server: String::new(),
            detail: String::new(),
        };
        assert!(lost.may_have_taken_effect() && lost.remedy() == Remedy::OtherServer);
    }

    #[test]
    fn texts_name_families_counters_and_servers() {
        let table: TableName = "t".parse().unwrap();
        let family = exception(
            "org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException",
            "x: Column family c does not exist in region r\n\tat y",
        );
        assert_eq!(
            family.into_store_error(Some(&table)),
            StoreError::NoSuchFamily {
                table,
                family: "c".to_owned()
            }
        );
        let counter = exception("DoNotRetryIOException", "Field is not a long, it's 7 bytes wide");
        assert_eq!(
            counter.into_store_error(None),
            StoreError::NotACounter { length: 7 }
        );
        let moved = "RegionMovedException: Region moved to: hostname=h2 port=16020 startCode=3. As of locationSeqNum=1.";
        let moved = ServerException::new("a:1", "RegionMovedException".to_owned(), moved, None);
        assert_eq!(moved.moved_to, Some(("h2".to_owned(), 16020)));
    }
}
