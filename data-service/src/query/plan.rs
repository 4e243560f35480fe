//! Plans: which rows answer a question.
//!
//! Rows hold whole hours, so the range of a query is widened to hours before it is read. What lies
//! in these hours but outside of the query is seen by interpolation, rates and fill policies, and
//! cut off from the answer. In seconds:
//!
//! ```text
//!   start   down to a window of downsampling, then down to an hour
//!   stop    end + 1, then without downsampling  up to the next hour, a whole one if it is one
//!                    with downsampling          up to the next window, then up to an hour
//! ```
//!
//! So the hour before the start is never read, and the hour after the end sometimes.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.getScanStartTimeSeconds`, `TsdbQuery.getScanEndTimeSeconds`,
//! `TsdbQuery.configureFromQuery`.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_schema::row_key::{metric_range, write_row_key};
use oxtsdb_schema::{BaseTime, HOUR_SECONDS, MetricUid, RowKeyLayout, TagkUid, TagvUid, Tsuid, Uid, UidKind};
use rustc_hash::{FxHashMap, FxHashSet};

use super::downsample::{Downsample, Fill, FillRange, Interval, Windows};
use super::error::QueryError;
use super::filter::{FilterError, TagFilter, TagMatcher};
use super::function::Function;
use super::names::NameDirectory;
use super::selection::{NameTest, Selection, TagTest, ValueTest};
use super::spec::{Limits, QuerySpec, Source, SubQuery};

/// Which rows answer a question, and what is made of them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the metric, if the question gave it.
    pub metric: Option<Arc<str>>,
    /// The hours that are read.
    pub hours: Hours,
    /// How they are read.
    pub read: Read,
    /// Which rows are wanted.
    pub selection: Selection,
    /// The tag keys that series are grouped by, ascending.
    pub group_by: Vec<TagkUid>,
    /// How each series is downsampled.
    pub downsample: Option<(Windows, Function)>,
}

/// How rows are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Ranges of row keys, from the first key (inside) to the second (outside): one for each salt
    /// bucket, ascending. A series lies in one of them.
    Ranges(Vec<(Vec<u8>, Vec<u8>)>),
    /// Single rows, because all tags are known; those of one series in order of time.
    Rows(Vec<Vec<u8>>),
}

/// Hours from one, inside, to another, outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// First hour that is read, seconds since the epoch.
    pub start: BaseTime,
    /// Seconds since the epoch of the first hour that is not read; a multiple of 3600, or beyond
    /// all hours there are.
    pub stop_seconds: u64,
}

/// Two literal filters of one key are one as long as they have fewer values than this together.
const EXPANSION_LIMIT: usize = 4096;

/// Up to so many rows are read one by one in place of a scan.
const MAX_SINGLE_ROWS: usize = 1024;

impl Hours {
    /// The hours to read for a range of instants, both ends inside.
    pub fn of_query(start_ms: i64, end_ms: i64, downsample: Option<&Downsample>) -> Self {
        let hour = i64::from(HOUR_SECONDS);
        let mut start = start_ms.div_euclid(1000);
        let mut stop = end_ms.div_euclid(1000).saturating_add(1);
        match downsample.map(|downsample| downsample.interval) {
            None => stop = stop.saturating_add(hour - stop.rem_euclid(hour)),
            Some(Interval::WholeRange) => stop = up_to_hour(stop),
            Some(Interval::Fixed { length_ms }) => {
                let past = |seconds: i64| seconds.saturating_mul(1000).rem_euclid(length_ms);
                start -= past(start) / 1000;
                stop = up_to_hour(stop.saturating_add((length_ms - past(stop)) / 1000));
            }
        }
        let start = u32::try_from(start.max(0)).unwrap_or(u32::MAX);
        Self {
            start: BaseTime::of_seconds(start),
            stop_seconds: u64::try_from(stop).unwrap_or(0),
        }
    }

    /// The hours that overlap a range of instants, both ends inside.
    pub fn overlapping(start_ms: i64, end_ms: i64) -> Self {
        let seconds = |ms: i64| u32::try_from(ms.max(0) / 1000).unwrap_or(u32::MAX);
        let last = BaseTime::of_seconds(seconds(end_ms));
        Self {
            start: BaseTime::of_seconds(seconds(start_ms)),
            stop_seconds: u64::from(last.seconds()) + u64::from(HOUR_SECONDS),
        }
    }

    /// How many hours there are.
    pub fn count(&self) -> usize {
        let seconds = self.last_stop().saturating_sub(u64::from(self.start.seconds()));
        usize::try_from(seconds / u64::from(HOUR_SECONDS)).unwrap_or(usize::MAX)
    }

    /// The hours in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = BaseTime> + use<> {
        let hours = u32::try_from(self.count()).unwrap_or(u32::MAX);
        let first = self.start.seconds();
        (0..hours).map(move |index| BaseTime::of_seconds(first.saturating_add(index * HOUR_SECONDS)))
    }

    /// Whether an hour is among them.
    pub fn contains(&self, hour: BaseTime) -> bool {
        hour >= self.start && u64::from(hour.seconds()) < self.stop_seconds
    }

    /// The row keys of a metric in one bucket that lie in these hours.
    pub fn range(&self, layout: &RowKeyLayout, metric: MetricUid, bucket: u32) -> (Vec<u8>, Vec<u8>) {
        let stop = u32::try_from(self.stop_seconds).map_or(BaseTime::MAX, BaseTime::of_seconds);
        metric_range(layout, metric, self.start, stop, bucket)
    }

    fn last_stop(&self) -> u64 {
        self.stop_seconds
            .min(u64::from(BaseTime::MAX.seconds()) + u64::from(HOUR_SECONDS))
    }
}

fn up_to_hour(seconds: i64) -> i64 {
    let hour = i64::from(HOUR_SECONDS);
    match seconds.rem_euclid(hour) {
        0 => seconds,
        past => seconds.saturating_add(hour - past),
    }
}

impl Plan {
    /// Looks up the names of a question and decides how it is read.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`], the errors of TSUIDs, [`QueryError::TooManyPoints`] if a fill
    /// policy alone would make too many, and those of the UID service.
    pub async fn new(
        query: &QuerySpec,
        sub_query: &SubQuery,
        layout: &RowKeyLayout,
        limits: &Limits,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let hours = Hours::of_query(query.start_ms, query.end_ms, sub_query.downsample.as_ref());
        let downsample = match &sub_query.downsample {
            Some(downsample) => Some((windows(query, downsample, &hours, limits)?, downsample.function)),
            None => None,
        };
        let mut plan = match &sub_query.source {
            Source::Metric {
                metric,
                filters,
                explicit_tags,
            } => {
                let series =
                    MetricSeries::resolve(metric, filters, *explicit_tags, layout, directory, deadline);
                let MetricSeries {
                    metric: uid,
                    selection,
                    group_by,
                } = series.await?;
                let read = read_of(&selection, *explicit_tags, uid, layout, hours);
                let metric = Some(Arc::from(metric.as_str()));
                Self {
                    metric,
                    hours,
                    read,
                    selection,
                    group_by,
                    downsample,
                }
            }
            Source::Tsuids(tsuids) => {
                Self::of_tsuids(&check_tsuids(tsuids, layout)?, layout, hours, downsample)
            }
        };
        if sub_query.aggregator.is_none() {
            plan.group_by.clear();
        }
        Ok(plan)
    }

    fn of_tsuids(
        tsuids: &[Tsuid],
        layout: &RowKeyLayout,
        hours: Hours,
        downsample: Option<(Windows, Function)>,
    ) -> Self {
        let selection = Selection::of_series(layout, tsuids.iter().map(Tsuid::as_bytes));
        let read = if tsuids.len().saturating_mul(hours.count()) <= MAX_SINGLE_ROWS {
            Read::Rows(single_rows(tsuids, layout, hours))
        } else {
            series_ranges(tsuids, layout, hours)
        };
        Self {
            metric: None,
            hours,
            read,
            selection,
            group_by: Vec::new(),
            downsample,
        }
    }
}

/// The series of a metric that pass filters, with names looked up.
#[derive(Clone, Debug)]
pub struct MetricSeries {
    /// The metric.
    pub metric: MetricUid,
    /// Which of its rows are wanted.
    pub selection: Selection,
    /// The tag keys of the filters that group, ascending.
    pub group_by: Vec<TagkUid>,
}

impl MetricSeries {
    /// Looks up metric, tag keys and literal values with one call.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`] for the metric, for the key of any filter and for the values of
    /// `literal_or`; those of the UID service.
    pub async fn resolve(
        metric: &str,
        filters: &[TagFilter],
        explicit_tags: bool,
        layout: &RowKeyLayout,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let mut names = vec![(UidKind::Metric, metric)];
        for filter in filters {
            names.push((UidKind::Tagk, filter.key.as_str()));
            if let TagMatcher::LiteralOr(values) | TagMatcher::NotLiteralOr(values) = &filter.matcher {
                names.extend(values.iter().map(|value| (UidKind::Tagv, value.as_str())));
            }
        }
        let uids = directory.uids(&names, deadline).await?;
        let known: FxHashMap<(UidKind, &str), Uid> = names
            .iter()
            .zip(uids)
            .filter_map(|(name, uid)| Some((*name, uid?)))
            .collect();
        let uid_of = |kind, name: &str| {
            let uid = known.get(&(kind, name)).copied();
            uid.ok_or_else(|| QueryError::UnknownName {
                kind,
                name: name.to_owned(),
            })
        };

        let metric = MetricUid::new(uid_of(UidKind::Metric, metric)?);
        let mut tests = Vec::with_capacity(filters.len());
        let mut group_by = Vec::new();
        for filter in filters {
            let tagk = TagkUid::new(uid_of(UidKind::Tagk, &filter.key)?);
            if filter.group_by {
                group_by.push(tagk);
            }
            let test = match &filter.matcher {
                TagMatcher::LiteralOr(values) => {
                    if values.iter().any(String::is_empty) {
                        return Err(FilterError::EmptyAlternative.into());
                    }
                    let uids = values
                        .iter()
                        .map(|value| uid_of(UidKind::Tagv, value).map(TagvUid::new));
                    ValueTest::In(uids.collect::<Result<_, _>>()?)
                }
                TagMatcher::NotLiteralOr(values) => {
                    let uids = values
                        .iter()
                        .filter_map(|value| uid_of(UidKind::Tagv, value).ok());
                    ValueTest::NotIn(uids.map(TagvUid::new).collect())
                }
                TagMatcher::Wildcard(glob) | TagMatcher::Iwildcard(glob) if glob.is_any() => ValueTest::Any,
                matcher => ValueTest::Name(NameTest::new(matcher.clone())),
            };
            add_test(&mut tests, TagTest { tagk, test });
        }
        group_by.sort_unstable();
        group_by.dedup();
        let keys: FxHashSet<TagkUid> = tests.iter().map(|test| test.tagk).collect();
        let tag_count = (explicit_tags && !filters.is_empty()).then_some(keys.len());
        Ok(Self {
            metric,
            selection: Selection::of_tags(layout, tests, tag_count),
            group_by,
        })
    }
}

/// Adds a test. Literal values of one key come together: a series has to have one of all of them.
fn add_test(tests: &mut Vec<TagTest>, added: TagTest) {
    if let ValueTest::In(values) = &added.test {
        for test in tests.iter_mut().filter(|test| test.tagk == added.tagk) {
            if let ValueTest::In(others) = &mut test.test
                && others.len() + values.len() < EXPANSION_LIMIT
            {
                others.extend(values);
                return;
            }
        }
    }
    tests.push(added);
}

/// How the rows of a metric are read: one by one if the filters say all there is to know of their
/// keys, else by a scan of each bucket.
fn read_of(
    selection: &Selection,
    explicit_tags: bool,
    metric: MetricUid,
    layout: &RowKeyLayout,
    hours: Hours,
) -> Read {
    if explicit_tags
        && let Some(tsuids) = all_series(selection, metric, MAX_SINGLE_ROWS / hours.count().max(1))
    {
        return Read::Rows(single_rows(&tsuids, layout, hours));
    }
    let mut ranges: Vec<_> = layout
        .salt
        .buckets()
        .map(|bucket| hours.range(layout, metric, bucket))
        .collect();
    // With more buckets than the salt's bytes can tell apart, some are the same.
    ranges.sort_unstable();
    ranges.dedup();
    Read::Ranges(ranges)
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

fn single_rows(tsuids: &[Tsuid], layout: &RowKeyLayout, hours: Hours) -> Vec<Vec<u8>> {
    let mut keys = Vec::with_capacity(tsuids.len() * hours.count());
    for hour in hours.iter() {
        for tsuid in tsuids {
            let mut key = Vec::new();
            write_row_key(layout, tsuid.as_bytes(), hour, &mut key);
            keys.push(key);
        }
    }
    keys
}

/// The ranges that hold series which may be of several metrics, ascending.
pub fn series_ranges(tsuids: &[Tsuid], layout: &RowKeyLayout, hours: Hours) -> Read {
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
    Read::Ranges(ranges)
}

/// Checks TSUIDs of one question; each is kept once.
fn check_tsuids(tsuids: &[Vec<u8>], layout: &RowKeyLayout) -> Result<Vec<Tsuid>, QueryError> {
    let mut checked = Vec::with_capacity(tsuids.len());
    for bytes in tsuids {
        checked.push(check_tsuid(bytes, layout)?);
    }
    checked.sort_unstable();
    checked.dedup();
    let metrics = checked.iter().map(|tsuid| tsuid.metric(&layout.widths));
    for (first, second) in metrics.clone().zip(metrics.skip(1)) {
        if first != second {
            return Err(QueryError::TsuidMetrics {
                first: first.uid(),
                second: second.uid(),
            });
        }
    }
    Ok(checked)
}

/// Checks the bytes of a TSUID.
///
/// # Errors
///
/// [`QueryError::Tsuid`].
pub fn check_tsuid(bytes: &[u8], layout: &RowKeyLayout) -> Result<Tsuid, QueryError> {
    Tsuid::from_bytes(bytes, &layout.widths).map_err(|error| QueryError::Tsuid {
        reason: error.to_string(),
    })
}

fn windows(
    query: &QuerySpec,
    downsample: &Downsample,
    hours: &Hours,
    limits: &Limits,
) -> Result<Windows, QueryError> {
    let length_ms = match downsample.interval {
        Interval::Fixed { length_ms } => length_ms,
        Interval::WholeRange => {
            let excluded = i64::from(!query.quirks.whole_range_excludes_end);
            let stop_ms = query.end_ms.saturating_add(excluded);
            return Ok(Windows::Whole {
                start_ms: query.start_ms,
                stop_ms,
            });
        }
    };
    let value = match downsample.fill {
        Fill::None => {
            return Ok(Windows::Fixed {
                length_ms,
                fill: None,
            });
        }
        Fill::Zero => 0.0,
        Fill::Nan | Fill::Null => f64::NAN,
    };
    let stop_ms = i64::try_from(hours.last_stop()).map_or(i64::MAX, |seconds| seconds.saturating_mul(1000));
    let fill = FillRange::of_scan(length_ms, hours.start.millis(), stop_ms, value);
    limits.check_points(fill.count(length_ms))?;
    Ok(Windows::Fixed {
        length_ms,
        fill: Some(fill),
    })
}

#[cfg(test)]
mod tests;
