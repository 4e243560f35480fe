//! Building simple queries; the contract's messages express all of them.

use std::time::Duration;

use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source};
use oxtsdb_proto::data::v1::tag_filter::FilterType;
use oxtsdb_proto::data::v1::{Aggregator, Downsample, QueryRequest, Rate, SubQuery, TagFilter, downsample};

use crate::Timestamp;

/// A query of metrics over a range of time.
///
/// Each [`metric`](Self::metric) adds a sub-query, which the methods after it refine. For what this builder
/// cannot express, fill a [`QueryRequest`].
///
/// ```
/// use std::time::Duration;
/// use oxtsdb_client::{AggregateFunction, Aggregator, Estimator, Query};
///
/// let query = Query::last(Duration::from_secs(3600))
///     .metric("sys.cpu.nice", AggregateFunction::Sum)
///     .tag("dc", "lga")
///     .group_by("host")
///     .downsample(Duration::from_secs(60), Aggregator::percentile(99.0, Estimator::R7));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Query(QueryRequest);

impl Query {
    /// A query from so long ago until now, by the server's clock.
    pub fn last(length: Duration) -> Self {
        Self::over(time_range::Start::StartAgo(duration(length)), None)
    }

    /// A query from an instant, included, to an instant, excluded.
    pub fn between(start: Timestamp, end: Timestamp) -> Self {
        let end = time_range::End::EndMs(end.millis());
        Self::over(time_range::Start::StartMs(start.millis()), Some(end))
    }

    fn over(start: time_range::Start, end: Option<time_range::End>) -> Self {
        let start = Some(start);
        Self(QueryRequest {
            range: Some(TimeRange { start, end }),
            ..QueryRequest::default()
        })
    }

    /// Accepts a range that ends before 2000 or begins more than 366 days ahead of the server's clock. Without, such a
    /// range is rejected, because it usually means seconds in place of milliseconds.
    #[must_use]
    pub fn allow_any_time(mut self) -> Self {
        self.0.allow_any_time = true;
        self
    }

    /// Adds a sub-query: the series of a metric, combined by an aggregator.
    /// [`AggregateFunction::None`](crate::AggregateFunction::None) returns each series by itself,
    /// [`Aggregator::percentile`](crate::Aggregator::percentile) a percentile.
    #[must_use]
    pub fn metric(mut self, metric: impl Into<String>, aggregator: impl Into<Aggregator>) -> Self {
        self.0.queries.push(SubQuery {
            source: Some(Source::Metric(MetricSource {
                metric: metric.into(),
                ..MetricSource::default()
            })),
            aggregator: Some(aggregator.into()),
            ..SubQuery::default()
        });
        self
    }

    /// Selects the series with this tag.
    #[must_use]
    pub fn tag(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.filter(TagFilter {
            key: key.into(),
            r#type: FilterType::LiteralOr.into(),
            values: vec![value.into()],
            ..TagFilter::default()
        })
    }

    /// Returns a series for each value of this tag key, in place of one over all.
    #[must_use]
    pub fn group_by(self, key: impl Into<String>) -> Self {
        self.filter(TagFilter {
            key: key.into(),
            r#type: FilterType::Wildcard.into(),
            pattern: "*".to_owned(),
            group_by: true,
            ..TagFilter::default()
        })
    }

    /// Replaces the points of each interval by one. Intervals are aligned to the epoch.
    #[must_use]
    pub fn downsample(mut self, interval: Duration, aggregator: impl Into<Aggregator>) -> Self {
        if let Some(query) = self.0.queries.last_mut() {
            query.downsample = Some(Downsample {
                interval: Some(downsample::Interval::Fixed(duration(interval))),
                aggregator: Some(aggregator.into()),
                ..Downsample::default()
            });
        }
        self
    }

    /// Returns the change per second.
    #[must_use]
    pub fn rate(mut self) -> Self {
        if let Some(query) = self.0.queries.last_mut() {
            query.rate = Some(Rate::default());
        }
        self
    }

    fn filter(mut self, filter: TagFilter) -> Self {
        let source = self.0.queries.last_mut().and_then(|query| query.source.as_mut());
        if let Some(Source::Metric(metric)) = source {
            metric.filters.push(filter);
        }
        self
    }
}

impl From<Query> for QueryRequest {
    fn from(query: Query) -> Self {
        query.0
    }
}

fn duration(length: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(length.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(length.subsec_nanos()).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::data::v1::AggregateFunction;

    use super::*;

    #[test]
    fn methods_refine_the_last_sub_query() {
        let query = Query::last(Duration::from_millis(1500))
            .metric("a", AggregateFunction::Sum)
            .metric("b", AggregateFunction::Max)
            .tag("host", "x")
            .group_by("dc")
            .rate();
        let request = QueryRequest::from(query);
        let [a, b] = &request.queries[..] else {
            panic!("{request:?}")
        };
        assert!(a.rate.is_none() && b.rate.is_some());
        let Some(Source::Metric(source)) = &b.source else {
            panic!("{b:?}")
        };
        let filters: Vec<_> = source
            .filters
            .iter()
            .map(|filter| (filter.key.as_str(), filter.group_by))
            .collect();
        assert_eq!(filters, [("host", false), ("dc", true)]);
        let start = request.range.and_then(|range| range.start);
        let ago = prost_types::Duration {
            seconds: 1,
            nanos: 500_000_000,
        };
        assert_eq!(start, Some(time_range::Start::StartAgo(ago)));
    }
}
