//! Queries: from a question to groups of points.
//!
//! ```text
//!   time, language, filter ─► spec      what is asked, read from OpenTSDB's language
//!   glob, regexp                        patterns of filters
//!   calendar    windows of days, weeks, months and years
//!   plan        which rows: hours, salt buckets, filters as UIDs
//!   scan        rows from the store; those that no filter wants are never made
//!   span        all points of one series, as columns, downsampled as they come
//!   rate        first derivative of each span
//!   group       spans that become one result, and the tags of it
//!   aggregate   the series of a group become one
//!   expression  what is made of answers: functions, arithmetic
//!   engine      runs the stages, keeps to deadline and limits, sends frames
//! ```
//!
//! The order is fixed: downsample, rate, aggregate, cut to the range. Everything after `scan` is
//! pure. Source: OpenTSDB 2.4, `TsdbQuery`, `SpanGroup`, `AggregationIterator.create`.

pub mod aggregate;
pub mod budget;
pub mod calendar;
pub mod collect;
pub mod compute;
pub mod downsample;
pub mod engine;
pub mod error;
pub mod estimate;
pub mod expression;
pub mod filter;
pub mod frame;
pub mod function;
pub mod glob;
pub mod group;
pub mod hours;
pub mod language;
pub mod names;
pub mod open_groups;
pub mod plan;
pub mod points;
pub mod quirks;
pub mod rate;
pub mod regexp;
pub mod resources;
pub mod running;
pub mod scan;
pub mod selection;
pub mod single_rows;
pub mod span;
pub mod spec;
pub mod survey;
pub mod text;
pub mod time;
mod whole_groups;

pub use budget::{Limits, Resource};
pub use calendar::{CalendarInterval, CalendarUnit};
pub use downsample::{Downsample, Fill, Interval};
pub use engine::Engine;
pub use error::QueryError;
pub use filter::{TagFilter, TagMatcher};
pub use frame::{Frame, Group, Statistics};
pub use function::Aggregator;
pub use names::NameDirectory;
pub use points::{Number, Points, Values};
pub use quirks::Quirks;
pub use rate::RateOptions;
pub use resources::{QueryResources, RequestContext};
pub use spec::{QuerySpec, SeriesFilter, Source, SubQuery};
