//! OpenTSDB's query language over a row store: from a query's text to groups of points.
//!
//! ```text
//!   language   parses sub-queries, times and filters
//!   plan       resolves filters to UIDs; chooses the hours, and lets a reader choose the access path
//!   reader     the way to points: one trait, and a folder for each backend
//!   exec       admits, scans, groups and aggregates within a budget; emits frames
//!   function   aggregators, downsampling, calendar windows, rate
//!   expression functions and arithmetic over results
//!   last       the last point of each series
//!   java_regex Java's regular expressions, in linear time
//!   quirks     differences of OpenTSDB that can be switched on
//! ```
//!
//! The order of a sub-query's stages is fixed: downsample, rate, aggregate, cut to the range. Everything
//! after the scan is pure. The caller implements two traits: [`NameDirectory`] resolves names and UIDs,
//! [`SeriesIndex`] lists the series of a metric.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery`, `SeriesGroup`, `AggregationIterator.create`.

pub mod annotation;
mod context;
mod error;
mod exec;
pub mod expression;
pub mod filter;
pub mod function;
mod histogram;
pub mod java_regex;
pub mod language;
pub mod last;
mod names;
mod plan;
mod points;
mod quirks;
mod reader;
mod rollup;
mod row_scan;
mod series_index;
mod spec;
mod storage;
#[cfg(feature = "testing")]
pub mod testing;

/// The target of spans that are parts of traces, see the telemetry of `oxtsdb-server`.
pub(crate) const SPANS: &str = "oxtsdb::trace";

// A query and its parts.
pub use filter::{FilterType, TagFilter, TagMatcher};
pub use function::aggregator::Aggregator;
pub use function::calendar::{CalendarInterval, CalendarUnit};
pub use function::downsample::{Downsample, Fill, Interval};
pub use function::rate::RateOptions;
pub use histogram::{HistogramPart, HistogramQueryError, HistogramResults, MAX_PERCENTILES};
pub use quirks::Quirks;
pub use rollup::{RollupChoiceError, RollupRequest, RollupRules, RollupUsage, Rollups};
pub use spec::{AnnotationSelection, QuerySpec, SeriesFilter, Source, SubQuery, without_identical};

// Running queries and their limits.
pub use context::admission::{Admitted, PAUSE_AFTER, QueryResources, RequestContext};
pub use context::budget::{Budget, Held};
pub use context::limits::Limits;
pub use context::query_context::QueryContext;
pub use context::resource::{Limit, Resource};
pub use context::running::{CompletedQuery, QueryDescription, RunningQueries, RunningQuery};
pub use exec::encoded::GroupEncoder;
pub use exec::engine::{Engine, WholeResult};

// Results.
pub use error::{NameError, QueryError};
pub use exec::frame::{Delivery, EncodedGroups, Frame, Group};
pub use exec::statistics::{DamagedRow, RollupUse, Statistics};
pub use exec::totals::QueryTotals;
pub use points::{Number, Points, Values};

// Plans, and the reads of them, for operators.
pub use plan::hours::Hours;
pub use plan::query_plan::Plan;
pub use plan::selection::tag_test::{TagTest, ValueTest};
pub use plan::tsuids::check_tsuid;
pub use reader::access_path::{IndexUse, PathDescription, PathKind};
pub use reader::estimate::{Certainty, ColumnFigures, Estimate, Figure};

// The store, names and lists of series, which the caller provides.
pub use names::{NameDirectory, NameGeneration, ResolvedNames, check_metrics, uids_of_series};
pub use reader::columns::{ColumnReader, PointStorage, RollupPoints};
pub use reader::context::ReadContext;
pub use reader::rows::RowReader;
pub use reader::{PointDelete, PointReader, ResolvedSource, SeriesStep};
pub use series_index::{NotListed, SeriesIndex, SeriesList};
pub use storage::Storage;

// Scans of stored rows.
pub use reader::scan::RowBatch;
pub use row_scan::{RowScan, RowSource, scan_rows};
