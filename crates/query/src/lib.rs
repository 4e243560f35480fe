//! OpenTSDB's query language over a row store: from a query's text to groups of points.
//!
//! ```text
//!   language   parses sub-queries, times and filters
//!   plan       resolves filters to UIDs; chooses the hours, the access path, and estimates the cost
//!   exec       admits, scans, groups and aggregates within a budget; emits frames
//!   function   aggregators, downsampling, calendar windows, rate
//!   expression functions and arithmetic over results
//!   last       the last point of each series
//!   quirks     differences of OpenTSDB that can be switched on
//! ```
//!
//! The order of a sub-query's stages is fixed: downsample, rate, aggregate, cut to the range. Everything
//! after the scan is pure. The caller implements two traits: [`NameDirectory`] resolves names and UIDs,
//! [`SeriesIndex`] lists the series of a metric.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery`, `SeriesGroup`, `AggregationIterator.create`.

pub mod context;
pub mod error;
pub mod exec;
pub mod expression;
pub mod filter;
pub mod function;
pub mod language;
pub mod last;
pub mod names;
pub mod plan;
pub mod points;
pub mod quirks;
mod range_scan;
pub mod row_scan;
pub mod series_index;
pub mod spec;
pub mod storage;

pub use context::admission::{QueryResources, RequestContext};
pub use context::limits::Limits;
pub use context::query_context::QueryContext;
pub use context::resource::Resource;
pub use error::{NameError, QueryError};
pub use exec::engine::Engine;
pub use exec::frame::{Frame, Group};
pub use exec::statistics::Statistics;
pub use filter::{FilterType, TagFilter, TagMatcher};
pub use function::aggregator::Aggregator;
pub use function::calendar::{CalendarInterval, CalendarUnit};
pub use function::downsample::{Downsample, Fill, Interval};
pub use function::rate::RateOptions;
pub use names::NameDirectory;
pub use points::{Number, Points, Values};
pub use quirks::Quirks;
pub use series_index::{NotListed, SeriesIndex, SeriesList};
pub use spec::{QuerySpec, SeriesFilter, Source, SubQuery};
pub use storage::Storage;
