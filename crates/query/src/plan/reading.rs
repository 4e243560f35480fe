//! How rows are found: one by one, or by a scan of each salt bucket.
//!
//! It helps to know which series are wanted: because the question names them, or because the index has all
//! series of the metric, and the filters were evaluated on these once, in place of on every row.
//!
//! ```text
//!   the question has TSUIDs, or literal values of all tags     Named
//!   the filters want nearly all series                         NotAsked
//!   the index has the series of the metric                     Matched
//!   it does not                                                NotListed
//! ```
//!
//! Where they are known and few, their rows are read one by one, or, if these are many over all hours, by
//! a scan that jumps from one to the next. Else all keys of the ranges are looked at, as far as filters
//! do not say where to go on.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use oxtsdb_schema::{MetricUid, RowKeyLayout, TagkUid, TagvUid, Tsuid, UidWidths};
use rustc_hash::FxHashSet;

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::hours::Hours;
use crate::plan::selection::{Selection, ValueTest};
use crate::plan::single_rows::SingleRows;
use crate::series_index::{NotListed, SeriesIndex};

/// How rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Ranges of row keys, from the first key (inside) to the second (outside): one for each salt
    /// bucket, ascending. A series lies in one of them.
    Ranges(Vec<(Vec<u8>, Vec<u8>)>),
    /// Single rows, because their series are known.
    Rows(SingleRows),
}

/// What was known of the wanted series when a plan was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Which there are at most: the question names them.
    Named,
    /// Nothing, and it was not asked for: the filters want nearly all series.
    NotAsked,
    /// How many of all series of the metric are wanted, whether they have points in the range or not.
    Matched {
        /// The wanted ones.
        matching: u64,
        /// All that there are.
        listed: u64,
    },
    /// Nothing.
    NotListed(NotListed),
}

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => f.write_str("the question names its series"),
            Self::NotAsked => f.write_str("nearly all series are wanted"),
            Self::Matched { matching, listed } => {
                write!(f, "{matching} of {listed} series match, says the index")
            }
            Self::NotListed(why) => write!(f, "the index is not used: {why}"),
        }
    }
}

/// Up to so many rows are read one by one where the question names their series: nobody knows how many of
/// them there are.
const MAX_NAMED_ROWS: usize = 1024;

/// Up to so many rows are read one by one where their series are known to be there. Single rows are the
/// faster way, but an answer that is told before it is whole needs a scan.
const MAX_SINGLE_ROWS: usize = 4096;

/// Series are known one by one if they are one of so many, or fewer. To look for one row takes as long as to
/// pass over between 4 and 10 in a scan, depending on how much of both is in memory.
const FEW: usize = 8;

/// What a decision needs.
pub(super) struct Reading<'a> {
    pub(super) layout: &'a RowKeyLayout,
    pub(super) hours: Hours,
    pub(super) directory: &'a dyn NameDirectory,
    pub(super) index: Option<&'a dyn SeriesIndex>,
    pub(super) deadline: Option<Instant>,
}

impl Reading<'_> {
    /// How the rows of a metric are read; the selection learns which series there are.
    pub(super) async fn of_metric(
        &self,
        metric: MetricUid,
        selection: &mut Selection,
        explicit_tags: bool,
    ) -> Result<(Read, Known), QueryError> {
        let limit = MAX_NAMED_ROWS / self.hours.count().max(1);
        if explicit_tags && let Some(tsuids) = all_series(selection, metric, limit) {
            return Ok((self.rows(tsuids), Known::Named));
        }
        let (known, few) = matching(
            metric,
            selection,
            &self.layout.widths,
            self.directory,
            self.index,
            self.deadline,
        )
        .await?;
        let Some(few) = few else {
            return Ok((
                Read::Ranges(metric_ranges(metric, self.layout, self.hours)),
                known,
            ));
        };
        let read = if few.len().saturating_mul(self.hours.count()) <= MAX_SINGLE_ROWS {
            self.rows(few)
        } else {
            self.jumps(&few, selection)
        };
        Ok((read, known))
    }

    /// How the rows of series are read, which are of one metric; the selection learns which these are.
    pub(super) fn of_series(&self, tsuids: &[Tsuid], selection: &mut Selection) -> Read {
        if tsuids.len().saturating_mul(self.hours.count()) <= MAX_NAMED_ROWS {
            self.rows(tsuids)
        } else {
            self.jumps(tsuids, selection)
        }
    }

    fn rows(&self, tsuids: impl Into<Arc<[Tsuid]>>) -> Read {
        Read::Rows(SingleRows::new(self.layout, tsuids, self.hours))
    }

    /// A scan of the buckets that hold series, from one to the next.
    fn jumps(&self, tsuids: &[Tsuid], selection: &mut Selection) -> Read {
        let metric_width = self.layout.widths.metric.bytes();
        let tags = |tsuid: &Tsuid| tsuid.as_bytes().get(metric_width..).unwrap_or_default().into();
        let mut series: Vec<Box<[u8]>> = tsuids.iter().map(tags).collect();
        series.sort_unstable();
        *selection = selection.clone().of_known(series);
        Read::Ranges(series_ranges(tsuids, self.layout, self.hours))
    }
}

/// What the index knows, and the wanted series if they are few.
pub(super) async fn matching(
    metric: MetricUid,
    selection: &Selection,
    widths: &UidWidths,
    directory: &dyn NameDirectory,
    index: Option<&dyn SeriesIndex>,
    deadline: Option<Instant>,
) -> Result<(Known, Option<Vec<Tsuid>>), QueryError> {
    if !selection.is_selective() {
        return Ok((Known::NotAsked, None));
    }
    let list = match index {
        None => Err(NotListed::Untrusted),
        Some(index) => index.list(metric).await,
    };
    let list = match list {
        Ok(list) => list,
        Err(why) => return Ok((Known::NotListed(why), None)),
    };
    let matching = selection
        .matching(&list, list.len() / FEW, directory, deadline)
        .await?;
    let known = Known::Matched {
        matching: matching.count as u64,
        listed: list.len() as u64,
    };
    let tsuid = |tags: &[u8]| Tsuid::from_bytes(&[metric.as_bytes(), tags].concat(), widths).ok();
    // Without one if the index has a row that is no series: a scan tells.
    let few = matching
        .series
        .and_then(|series| series.iter().map(|tags| tsuid(tags)).collect());
    Ok((known, few))
}

/// All series that a selection by explicit tags can have, unless a filter is not of literal values
/// or there are more than `limit`.
fn all_series(selection: &Selection, metric: MetricUid, limit: usize) -> Option<Vec<Tsuid>> {
    let mut series: Vec<Vec<(TagkUid, TagvUid)>> = vec![Vec::new()];
    for test in selection.tests() {
        let ValueTest::In(values) = &test.test else {
            return None;
        };
        if series.len().saturating_mul(values.len()) > limit {
            return None;
        }
        let with = |tags: &Vec<_>, value: TagvUid| [tags.as_slice(), &[(test.tagk, value)]].concat();
        series = series
            .iter()
            .flat_map(|tags| values.iter().map(move |value| with(tags, *value)))
            .collect();
    }
    series
        .iter_mut()
        .map(|tags| Tsuid::new(metric, tags).ok())
        .collect()
}

/// The ranges of a metric, ascending.
fn metric_ranges(metric: MetricUid, layout: &RowKeyLayout, hours: Hours) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut ranges: Vec<_> = layout
        .salt
        .buckets()
        .map(|bucket| hours.range(layout, metric, bucket))
        .collect();
    // With more buckets than the salt's bytes can tell apart, some are the same.
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

/// The ranges that hold series which may be of several metrics, ascending.
pub fn series_ranges(tsuids: &[Tsuid], layout: &RowKeyLayout, hours: Hours) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bucket = |tsuid: &Tsuid| {
        if layout.salt.width() == 0 {
            0
        } else {
            layout.salt.bucket(tsuid.as_bytes())
        }
    };
    let mut ranges: Vec<_> = tsuids
        .iter()
        .map(|tsuid| (bucket(tsuid), tsuid.metric(&layout.widths)))
        .collect::<FxHashSet<_>>()
        .into_iter()
        .map(|(bucket, metric)| hours.range(layout, metric, bucket))
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}
