//! Why a point, or a whole write, was not stored.

use std::fmt;
use std::time::Duration;

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::tsuid::TsuidError;
use oxtsdb_schema::value::ValueError;
use oxtsdb_schema::{NameError, Uid, UidKind};

use crate::uids::{UidRefusal, UidsError};

/// Which name of a point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamePlace {
    /// The metric.
    Metric,
    /// A tag key.
    Tagk {
        /// The tag's value.
        tagv: String,
    },
    /// A tag value.
    Tagv {
        /// The tag's key.
        tagk: String,
    },
}

impl NamePlace {
    /// The kind of the name.
    pub fn kind(&self) -> UidKind {
        match self {
            Self::Metric => UidKind::Metric,
            Self::Tagk { .. } => UidKind::Tagk,
            Self::Tagv { .. } => UidKind::Tagv,
        }
    }
}

impl fmt::Display for NamePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric => f.write_str("metric"),
            Self::Tagk { tagv } => write!(f, "tag key with value `{tagv}`"),
            Self::Tagv { tagk } => write!(f, "tag value with key `{tagk}`"),
        }
    }
}

/// Why one point was not stored. Names in it are [`oxtsdb_schema::name::excerpt`]s.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointErrorReason {
    /// The point names no series.
    #[error("series is missing")]
    NoSeries,
    /// A name that cannot be stored.
    #[error("{place}: {error}")]
    InvalidName {
        /// Which name.
        place: NamePlace,
        /// The name, as it came.
        name: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// No tags: every series has at least one.
    #[error("series has no tags, at least 1 is needed")]
    NoTags,
    /// More tags than the deployment allows.
    #[error("series has {count} tags, at most {max} are allowed")]
    TooManyTags {
        /// Tags of the point.
        count: usize,
        /// The setting.
        max: usize,
    },
    /// Two tags with one key, be their values equal or not.
    #[error("tag key `{tagk}` is there twice, with the values `{first}` and `{second}`")]
    DuplicateTagk {
        /// The key.
        tagk: String,
        /// Its value.
        first: String,
        /// Its other value.
        second: String,
    },
    /// The bytes are no TSUID of this deployment.
    #[error(transparent)]
    InvalidTsuid(TsuidError),
    /// A TSUID with a UID that is nobody's.
    #[error("TSUID has the UID {uid}, which is none of kind {kind}")]
    UnknownUid {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// The UID service has no UID for a name.
    #[error("{place} `{name}` {refusal}")]
    NoUid {
        /// Which name.
        place: NamePlace,
        /// The name.
        name: String,
        /// Why.
        refusal: UidRefusal,
    },
    /// The series is not known, and the UID service is unavailable. The same point may be stored later.
    #[error("series cannot be resolved now: {0}")]
    Unresolved(UidsError),
    /// Milliseconds outside 1 to 4294967295999.
    #[error("timestamp {timestamp_ms} ms is out of range, expected 1 to 4294967295999")]
    TimestampOutOfRange {
        /// The timestamp.
        timestamp_ms: i64,
    },
    /// Seconds were asked for, and this is between two.
    #[error("timestamp {timestamp_ms} ms is not a whole second, which the precision asks for")]
    NotWholeSecond {
        /// The timestamp.
        timestamp_ms: i64,
    },
    /// Timestamp deltas whose sum no timestamp can be, here or before in the block.
    #[error("timestamp is out of range, the deltas overflow 64 bits")]
    TimestampOverflow,
    /// No value.
    #[error("value is missing")]
    NoValue,
    /// NaN or an infinity.
    #[error(transparent)]
    InvalidValue(ValueError),
    /// A block of columns whose parts do not fit each other; none of its points is stored.
    #[error("block has {series} series, {timestamps} timestamps and {values} values, {rule}")]
    BlockShape {
        /// Elements of its series column.
        series: usize,
        /// Elements of its timestamp column.
        timestamps: usize,
        /// Elements of its value column.
        values: usize,
        /// What is expected.
        rule: &'static str,
    },
}

impl PointErrorReason {
    /// Whether the same point may be stored later, without a change to it or to the deployment.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unresolved(_)
                | Self::NoUid {
                    refusal: UidRefusal::Unavailable { .. },
                    ..
                }
        )
    }
}

/// Why a whole write failed. Some of its points may have been stored; writing all again is safe.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The UID service failed.
    #[error(transparent)]
    Uids(#[from] UidsError),
    /// There were more unconfirmed writes than memory is set aside for.
    #[error(
        "writes of {} MiB are with the store, the limit (--max-writes-mib); waited {} ms, retry later",
        limit_bytes >> 20,
        waited.as_millis()
    )]
    Overloaded {
        /// The setting.
        limit_bytes: usize,
        /// How long it waited for a permit.
        waited: Duration,
    },
    /// The deadline passed before the store confirmed; the points may or may not be stored.
    #[error("store did not confirm before the deadline")]
    DeadlineExceeded,
}

impl WriteError {
    /// Whether the same write may succeed later, without a change to it or to the deployment. Writing a point twice
    /// stores it once.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Uids(error) => error.is_transient(),
            Self::Overloaded { .. } | Self::DeadlineExceeded => true,
        }
    }
}
