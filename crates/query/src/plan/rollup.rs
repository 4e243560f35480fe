//! Chooses the table that serves a sub-query: points, pre-aggregates, or rollups of an interval.
//!
//! ```text
//!   sub-query                                          tables, each if the one before has no series
//!   no downsampling, or by no multiple of an interval  points
//!   ROLLUP_RAW, histograms                             points
//!   the longest interval is the default one            points
//!   ROLLUP_NOFALLBACK                                  the longest interval
//!   ROLLUP_FALLBACK                                    the intervals from the longest on; points for the default one
//!   ROLLUP_FALLBACK_RAW                                the longest interval, points
//! ```
//!
//! Pre-aggregates, which a sub-query requests by a flag or by a literal value of their tag, are in a second table of
//! each interval; without rollups they are the points of the default interval's second table.
//!
//! OpenTSDB falls back to points with windows of the rollup's interval; here the windows are the requested ones.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.transformDownSamplerToRollupQuery`, `TsdbQuery.tableToBeScanned`,
//! `FallbackRollupOnEmptyResult`, `TsdbQuery.getScanStartTimeSeconds`.

use std::collections::VecDeque;

use oxtsdb_row_store::TableName;
use oxtsdb_schema::rollup::NoIdError;
use oxtsdb_schema::{BaseTime, RollupInterval};

use crate::function::aggregator::Function;
use crate::function::downsample::{Downsample, Interval};
use crate::plan::hours::Hours;
use crate::rollup::{RollupChoiceError, RollupUsage, Rollups};
use crate::spec::{QuerySpec, SubQuery};

/// The table and the values that a sub-query reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableRead {
    /// The table; `None`: the table of points.
    pub table: Option<TableName>,
    /// How its cells are read, if they are rollups.
    pub rollup: Option<RollupRead>,
}

/// The rollups that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupRead {
    /// Their interval.
    pub interval: RollupInterval,
    /// The name and id of the aggregate that is read; for an average, of the sums.
    pub value: (String, u8),
    /// The name and id of the counts that sums are divided by, for an average.
    pub count: Option<(String, u8)>,
}

/// The reads of a sub-query, in order: each if the one before has no series. There is at least one.
pub(crate) fn choices(
    sub_query: &SubQuery,
    rollups: Option<&Rollups>,
) -> Result<VecDeque<TableRead>, RollupChoiceError> {
    if sub_query.histogram.is_some() {
        return Ok(VecDeque::from([TableRead::default()]));
    }
    let Some(rollups) = rollups else {
        return match sub_query.rollup.pre_aggregate {
            true => Err(RollupChoiceError::NoPreAggregates),
            false => Ok(VecDeque::from([TableRead::default()])),
        };
    };
    let pre_aggregate = sub_query.rollup.pre_aggregate || names_pre_aggregates(sub_query, rollups);
    let points = || {
        let table = match pre_aggregate {
            true => {
                let interval = rollups.config().default_interval();
                let interval = interval.ok_or(RollupChoiceError::NoPreAggregates)?;
                rollups.table(interval.pre_aggregation_table()).cloned()
            }
            false => None,
        };
        Ok::<_, RollupChoiceError>(TableRead { table, rollup: None })
    };
    let usage = sub_query.rollup.usage.unwrap_or_default();
    let downsample = sub_query.downsample.as_ref();
    let intervals = downsample
        .filter(|_| usage != RollupUsage::Raw)
        .and_then(seconds)
        .map(|seconds| rollups.config().intervals_of(seconds))
        .unwrap_or_default();
    let mut choices = VecDeque::new();
    for interval in intervals {
        if interval.is_default() {
            choices.push_back(points()?);
            break;
        }
        // Only downsampling has intervals.
        let function = downsample.map_or("", |downsample| downsample.name);
        let table = match pre_aggregate {
            true => interval.pre_aggregation_table(),
            false => interval.table(),
        };
        choices.push_back(TableRead {
            table: rollups.table(table).cloned(),
            rollup: Some(RollupRead::new(interval.clone(), function, rollups)?),
        });
        match usage {
            RollupUsage::Fallback => {}
            RollupUsage::FallbackRaw => {
                choices.push_back(points()?);
                break;
            }
            RollupUsage::Raw | RollupUsage::NoFallback => break,
        }
    }
    if choices.is_empty() {
        choices.push_back(points()?);
    }
    Ok(choices)
}

/// Whether a filter names values of the tag of pre-aggregates.
fn names_pre_aggregates(sub_query: &SubQuery, rollups: &Rollups) -> bool {
    let mut filters = sub_query.filter.tags.iter();
    filters.any(|filter| {
        filter.key == rollups.rules().aggregate_tag
            && filter.echo.0 == "literal_or"
            && filter.echo.1 != rollups.rules().raw_value
    })
}

/// The length of a window in whole seconds.
fn seconds(downsample: &Downsample) -> Option<u32> {
    let length_ms = match &downsample.interval {
        Interval::Fixed { length_ms } => *length_ms,
        Interval::Calendar(interval) => interval.nominal_ms(),
        Interval::WholeRange => return None,
    };
    u32::try_from(length_ms / 1000).ok()
}

impl RollupRead {
    fn new(interval: RollupInterval, function: &str, rollups: &Rollups) -> Result<Self, NoIdError> {
        let of = |name: &str| Ok::<_, NoIdError>((name.to_owned(), rollups.config().id(name)?));
        let (value, count) = match function {
            "avg" => (of("sum")?, Some(of("count")?)),
            "zimsum" => (of("sum")?, None),
            "mimmax" => (of("max")?, None),
            "mimmin" => (of("min")?, None),
            name => (of(name)?, None),
        };
        Ok(Self {
            interval,
            value,
            count,
        })
    }

    /// The function over the stored values of a window.
    pub(crate) fn function(&self, downsample: &Downsample, query: &QuerySpec) -> Function {
        match self.value.0.as_str() {
            _ if self.count.is_some() => Function::Sum,
            "count" => Function::Sum,
            _ => downsample.function.under(query.quirks),
        }
    }

    /// The base times of the rows to read for the hours that points would be read for: whole rows, and one more before
    /// them for the first rate.
    pub(crate) fn hours(&self, hours: Hours, sub_query: &SubQuery) -> Hours {
        let mut start = self.interval.base_time(hours.start.seconds());
        if sub_query.rate.is_some() && start > BaseTime::MIN {
            start = self.interval.base_time(start.seconds() - 1);
        }
        Hours { start, ..hours }
    }
}
