//! Queries: a time range and sub-queries, after parsing and before planning.

use oxtsdb_schema::DuplicatePolicy;

use crate::context::running::QueryDescription;
use crate::filter::{FilterError, MAX_REGEXPS, TagFilter};
use crate::function::aggregator::Aggregator;
use crate::function::downsample::Downsample;
use crate::function::rate::RateOptions;
use crate::histogram::HistogramResults;
use crate::quirks::Quirks;
use crate::rollup::RollupRequest;

/// A query: a time range and its sub-queries.
#[derive(Clone, Debug, PartialEq)]
pub struct QuerySpec {
    /// First timestamp of the range, milliseconds since the epoch.
    pub start_ms: i64,
    /// Last timestamp of the range; not before the start.
    pub end_ms: i64,
    /// The sub-queries, which run in this order.
    pub sub_queries: Vec<SubQuery>,
    /// How several values at one timestamp are resolved.
    pub duplicates: DuplicatePolicy,
    /// Most points to read from the store; `None`, or more than the engine's limit: that limit.
    pub max_scanned_points: Option<u64>,
    /// OpenTSDB's quirks that apply.
    pub quirks: Quirks,
    /// Skip and report rows with cells that do not decode, instead of failing.
    pub skip_damaged_rows: bool,
    /// Also return points around the range, as far as the scan reads them: see `plan::hours`.
    pub with_surroundings: bool,
    /// Infinite results are values, not errors: expressions reject those that they evaluate.
    pub with_infinities: bool,
    /// The annotations to return.
    pub annotations: AnnotationSelection,
}

/// The annotations that a query returns, among all that begin in its range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnnotationSelection {
    /// The annotations of the series, with each group.
    pub of_series: bool,
    /// Global ones, once.
    pub global: bool,
}

impl QuerySpec {
    /// The entry in the list of running queries.
    pub fn description(&self) -> QueryDescription {
        QueryDescription {
            sub_queries: self.sub_queries.iter().map(ToString::to_string).collect(),
            range_ms: (self.start_ms, self.end_ms),
        }
    }

    /// Rejects more regular expressions than a query may have.
    ///
    /// # Errors
    ///
    /// [`FilterError::TooManyRegexps`].
    pub fn check_regexps(&self) -> Result<(), FilterError> {
        let filters = self.sub_queries.iter().flat_map(|query| &query.filter.tags);
        let count = filters.filter(|filter| filter.matcher.is_regexp()).count();
        if count > MAX_REGEXPS {
            return Err(FilterError::TooManyRegexps { count });
        }
        Ok(())
    }
}

/// Removes sub-queries that equal an earlier one, as OpenTSDB does, together with their second elements.
pub fn without_identical<T>(sub_queries: Vec<(SubQuery, T)>) -> (Vec<SubQuery>, Vec<T>) {
    let (mut kept, mut others) = (Vec::with_capacity(sub_queries.len()), Vec::new());
    for (sub_query, other) in sub_queries {
        if !kept.contains(&sub_query) {
            kept.push(sub_query);
            others.push(other);
        }
    }
    (kept, others)
}

/// A sub-query: series, and how they are aggregated.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQuery {
    /// The source of series.
    pub source: Source,
    /// Selects and groups series of the source.
    pub filter: SeriesFilter,
    /// Combines the series of a group.
    pub aggregator: Aggregator,
    /// One value for each interval of each series; `None`: all points.
    pub downsample: Option<Downsample>,
    /// First derivative of each series, after downsampling; `None`: values as they are.
    pub rate: Option<RateOptions>,
    /// Of histograms in place of points; see [`SubQuery::with_histograms`].
    pub histogram: Option<HistogramResults>,
    /// The tables to read.
    pub rollup: RollupRequest,
}

/// A source of series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// All series of a metric, by its name.
    Metric(String),
    /// Single series, as bytes of TSUIDs that share their metric.
    Tsuids(Vec<Vec<u8>>),
}

/// Selects series of a source and their grouping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesFilter {
    /// Filters; all must match.
    pub tags: Vec<TagFilter>,
    /// Only series with exactly the tag keys of the filters. Without filters, and for series by TSUIDs, it has no
    /// effect.
    pub explicit_tags: bool,
}
