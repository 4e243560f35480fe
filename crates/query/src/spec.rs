//! What is asked.

use oxtsdb_schema::DuplicatePolicy;

use crate::context::running::QueryDescription;
use crate::filter::regexp::MAX_REGEXPS;
use crate::filter::{FilterError, TagFilter, TagMatcher};
use crate::function::aggregator::Aggregator;
use crate::function::downsample::Downsample;
use crate::function::rate::RateOptions;
use crate::quirks::Quirks;

/// A query: a range of time, and questions about it.
#[derive(Clone, Debug, PartialEq)]
pub struct QuerySpec {
    /// First instant inside, milliseconds since the epoch.
    pub start_ms: i64,
    /// Last instant inside; after the start, or equal to it.
    pub end_ms: i64,
    /// The questions, answered in this order.
    pub sub_queries: Vec<SubQuery>,
    /// What to do about two values for one instant.
    pub duplicates: DuplicatePolicy,
    /// Points that may be read from the store; `None`, or more than the engine's limit: that limit.
    pub max_scanned_points: Option<u64>,
    /// Which of OpenTSDB's oddities the answer has.
    pub quirks: Quirks,
    /// Leave out rows whose cells cannot be decoded, and tell which, in place of failing.
    pub skip_damaged_rows: bool,
    /// Answer also with points around the range, as far as they are read: see [`crate::plan::hours`].
    pub with_surroundings: bool,
}

impl QuerySpec {
    /// The query in the list of running queries.
    pub fn description(&self) -> QueryDescription {
        QueryDescription {
            sub_queries: self.sub_queries.iter().map(ToString::to_string).collect(),
            range_ms: (self.start_ms, self.end_ms),
        }
    }

    /// Refuses more regular expressions than a query may have.
    ///
    /// # Errors
    ///
    /// [`FilterError::TooManyRegexps`].
    pub fn check_regexps(&self) -> Result<(), FilterError> {
        let filters = self.sub_queries.iter().flat_map(|query| &query.filter.tags);
        let count = filters
            .filter(|filter| matches!(filter.matcher, TagMatcher::Regexp(_)))
            .count();
        if count > MAX_REGEXPS {
            return Err(FilterError::TooManyRegexps { count });
        }
        Ok(())
    }
}

/// Leaves out sub-queries that are equal to an earlier one, as OpenTSDB does, and what is beside them.
pub fn without_identical<T>(sub_queries: Vec<(SubQuery, T)>) -> (Vec<SubQuery>, Vec<T>) {
    let (mut kept, mut beside) = (Vec::with_capacity(sub_queries.len()), Vec::new());
    for (sub_query, other) in sub_queries {
        if !kept.contains(&sub_query) {
            kept.push(sub_query);
            beside.push(other);
        }
    }
    (kept, beside)
}

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct SubQuery {
    /// Which series.
    pub source: Source,
    /// Which of them.
    pub filter: SeriesFilter,
    /// How the series of a group become one.
    pub aggregator: Aggregator,
    /// One value for each interval of each series; `None`: all points.
    pub downsample: Option<Downsample>,
    /// First derivative of each series, after downsampling; `None`: values as they are.
    pub rate: Option<RateOptions>,
}

/// Which series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Those of a metric, by its name.
    Metric(String),
    /// These, as bytes of TSUIDs that share their metric.
    Tsuids(Vec<Vec<u8>>),
}

/// Which of the series of a source are wanted, and how they are grouped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesFilter {
    /// All must pass.
    pub tags: Vec<TagFilter>,
    /// Only series whose tag keys are just those of the filters. Without filters it means nothing, nor
    /// for series that are asked for by TSUIDs.
    pub explicit_tags: bool,
}
