//! Errors of a point, or a whole write, that was not stored.

use std::fmt;
use std::time::Duration;

use oxtsdb_metadata::uids::{UidRejection, UidsError};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::rollup::RollupError;
use oxtsdb_schema::tsuid::TsuidError;
use oxtsdb_schema::value::ValueError;
use oxtsdb_schema::{HistogramError, NameError, Uid, UidKind};

use super::TimeUnit;

/// The place of a name in a point.
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

/// Error of a point that was not stored. Names in it are [`oxtsdb_schema::name::excerpt`]s.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PointErrorReason {
    /// The point names no series.
    #[error("series is missing")]
    NoSeries,
    /// A name that cannot be stored.
    #[error("{place}: {error}")]
    InvalidName {
        /// The name's place in the point.
        place: NamePlace,
        /// The name, as it came.
        name: String,
        /// The rule that the name breaks.
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
    #[error("tag key `{tagk}` occurs twice, with the values `{first}` and `{second}`")]
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
    /// A TSUID with a UID that is not assigned.
    #[error("TSUID has the UID {uid}, which is not assigned in {kind}")]
    UnknownUid {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// The UID service has no UID for a name.
    #[error("{place} `{name}` {rejection}")]
    NoUid {
        /// The name's place in the point.
        place: NamePlace,
        /// The name.
        name: String,
        /// The reason.
        rejection: UidRejection,
    },
    /// The caller has no right to write the metric.
    #[error(transparent)]
    Refused(oxtsdb_access::Refusal),
    /// The series is not known, and the UID service is unavailable. The same point may be stored later.
    #[error("series cannot be resolved now: {0}")]
    Unresolved(UidsError),
    /// A timestamp that cannot be stored.
    #[error("timestamp {timestamp} {unit} is out of range, expected 1 to {}", unit.last())]
    TimestampOutOfRange {
        /// The timestamp.
        timestamp: i64,
        /// Its unit.
        unit: TimeUnit,
    },
    /// A timestamp that probably has another unit.
    #[error(
        "timestamp {timestamp} {unit} is {}, expected 2000-01-01 to 366 days after the server's clock; \
         correct the time_unit, or set allow_any_time",
        date(*timestamp_ms)
    )]
    ImplausibleTimestamp {
        /// The timestamp.
        timestamp: i64,
        /// Its unit.
        unit: TimeUnit,
        /// The instant.
        timestamp_ms: i64,
    },
    /// A timestamp of a day that retention drops.
    #[error(
        "timestamp {timestamp_ms} ms ({}) is before the retention's edge, {} (--retention)",
        date(*timestamp_ms),
        date(*edge_ms)
    )]
    BeforeRetention {
        /// The timestamp.
        timestamp_ms: i64,
        /// The first instant that is kept.
        edge_ms: i64,
    },
    /// A fraction of a second, with the precision of seconds.
    #[error("timestamp {timestamp_ms} ms is not a whole second, which precision SECONDS requires")]
    NotWholeSecond {
        /// The timestamp.
        timestamp_ms: i64,
    },
    /// Delta timestamps that fail their check; none of the block's points is stored.
    #[error(transparent)]
    DeltaTimestamps(DeltaError),
    /// NaN or an infinity.
    #[error(transparent)]
    InvalidValue(ValueError),
    /// A histogram that cannot be stored.
    #[error(transparent)]
    InvalidHistogram(HistogramError),
    /// A rollup with an unknown interval or aggregator, or a time that its row cannot hold.
    #[error(transparent)]
    InvalidRollup(AggregateError),
    /// Columns that do not fit each other; none of their points is stored.
    #[error(transparent)]
    Shape(ShapeError),
}

/// Error of a rollup or pre-aggregate that cannot be stored, in OpenTSDB's words where it has some.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AggregateError {
    /// There are no rollups.
    #[error("No rollup or aggregations were configured")]
    NotConfigured,
    /// An argument.
    #[error("{0}")]
    Rule(String),
    /// Neither an interval nor a group-by.
    #[error("Interval cannot be null for a non-group by point")]
    NoInterval,
    /// An unknown interval.
    #[error("No rollups configured for the interval: {interval}")]
    NoSuchInterval {
        /// Its text.
        interval: String,
    },
    /// A time that cannot be stored.
    #[error(transparent)]
    Place(#[from] RollupError),
}

/// Error of columns of a block or a series that do not fit each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Timestamps in both forms.
    #[error("`timestamps` and `delta_timestamps` are both given, expected one of them")]
    BothTimestamps,
    /// Values of both types.
    #[error("`values` and `int_values` both have elements, expected one of them")]
    BothValues,
    /// Another number of values than of timestamps.
    #[error("{timestamps} timestamps and {values} values, expected one value for each timestamp")]
    Values {
        /// Elements of the timestamp column.
        timestamps: usize,
        /// Elements of the value column.
        values: usize,
    },
    /// Another number of values than of delta timestamps.
    #[error(
        "{deltas} deltas encode {} timestamps, but there are {values} values; `first` is the timestamp of the \
         first point, `deltas` has one element fewer than there are values",
        deltas + 1
    )]
    Deltas {
        /// Elements of the delta column.
        deltas: usize,
        /// Elements of the value column.
        values: usize,
    },
    /// Neither one series nor one for each point.
    #[error("{series} series and {points} points, expected 1 series or one for each point")]
    Series {
        /// Elements of the series column.
        series: usize,
        /// Points.
        points: usize,
    },
}

/// Error of delta timestamps that do not add up to the last timestamp.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`first` plus all `deltas` is {}, `last` is {last}; each delta is the difference from the timestamp \
     before it, neither an offset from `first` nor a timestamp",
    sum.map_or_else(|| "beyond 64 bits".to_owned(), |sum| sum.to_string())
)]
pub struct DeltaError {
    /// `None`: more than 64 bits.
    pub sum: Option<i64>,
    /// The last timestamp, as declared.
    pub last: i64,
}

/// An instant as people write it.
pub fn date(timestamp_ms: i64) -> String {
    let timestamp = jiff::Timestamp::from_millisecond(timestamp_ms);
    timestamp.map_or_else(|_| "no date".to_owned(), |timestamp| timestamp.to_string())
}

impl PointErrorReason {
    /// Whether the same point may be stored later, without a change to it or to the deployment.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unresolved(_)
                | Self::NoUid {
                    rejection: UidRejection::Unavailable { .. },
                    ..
                }
        )
    }
}

/// Error of a whole write. Some of its points may have been stored; writing all again is safe.
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
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) => error.is_transient(),
            Self::Uids(error) => error.is_transient(),
            Self::Overloaded { .. } | Self::DeadlineExceeded => true,
        }
    }
}
