//! Plans: which rows answer a question.
//!
//! The hours to read are in [`crate::plan::hours`]; the rest of a plan says which rows of them are wanted, and
//! how they are found: see [`reading`].
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.configureFromQuery`.

pub mod estimate;
pub mod hours;
mod reading;
pub mod selection;
pub mod single_rows;

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{MetricUid, RowKeyLayout, TagkUid, TagvUid, Tsuid, Uid, UidKind, UidWidths};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::QueryError;
use crate::exec::budget::{Budget, Held, Resource};
use crate::filter::{FilterError, TagFilter, TagMatcher};
use crate::function::aggregator::Function;
use crate::function::calendar::CalendarWindows;
use crate::function::downsample::{Downsample, Fill, FilledWindows, Interval, WindowLayout, Windows};
use crate::names::NameDirectory;
use crate::plan::hours::Hours;
use crate::plan::selection::{NameTest, Selection, TagTest, ValueTest};
use crate::quirks::Quirks;
use crate::series_index::SeriesIndex;
use crate::spec::{QuerySpec, SeriesFilter, Source, SubQuery};
pub use reading::{Known, Read, series_ranges};
use reading::{Reading, matching};

/// Which rows answer a question, and what is made of them.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Name of the metric, if the question gave it.
    pub metric: Option<Arc<str>>,
    /// The hours that are read.
    pub hours: Hours,
    /// Series whose first point is later do not count.
    pub begins_until_ms: i64,
    /// How they are read.
    pub read: Read,
    /// What is known of their series.
    pub known: Known,
    /// Which rows are wanted.
    pub selection: Selection,
    /// The tag keys that series are grouped by, ascending.
    pub group_by: Vec<TagkUid>,
    /// How each series is downsampled.
    pub downsample: Option<(Windows, Function)>,
    /// The memory of the windows of a fill policy.
    _windows: Option<Arc<Held>>,
}

/// What a plan is made with.
#[derive(Clone, Copy, Debug)]
pub struct PlanContext<'a> {
    /// How row keys are built.
    pub layout: &'a RowKeyLayout,
    /// What the query may use.
    pub budget: &'a Budget,
    /// Where windows are computed.
    pub compute: &'a ComputePool,
    /// Names and UIDs.
    pub directory: &'a dyn NameDirectory,
    /// The series of metrics, if they are known.
    pub index: Option<&'a dyn SeriesIndex>,
    /// Until when names are looked up.
    pub deadline: Option<Instant>,
}

/// Memory of the start of a window.
const START_BYTES: u64 = size_of::<i64>() as u64;

/// So many windows are made inline; with those of a calendar it takes less than a millisecond.
const WINDOWS_INLINE: u64 = 4096;

/// Two literal filters of one key are one as long as they have fewer values than this together.
const EXPANSION_LIMIT: usize = 4096;

impl Plan {
    /// Looks up the names of a question and decides how it is read.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`], the errors of TSUIDs, [`QueryError::OverBudget`] if a fill
    /// policy alone would make too many, and those of the UID service.
    pub async fn new(
        query: &QuerySpec,
        sub_query: &SubQuery,
        context: PlanContext<'_>,
    ) -> Result<Self, QueryError> {
        let PlanContext {
            layout,
            budget,
            compute,
            directory,
            index,
            deadline,
        } = context;
        let quirks = query.quirks;
        let hours = Hours::of_query(
            query.start_ms,
            query.end_ms,
            sub_query.downsample.as_ref(),
            quirks,
        );
        let range_hours = hours;
        let filter = &sub_query.filter;
        let names_all_keys = filter.explicit_tags && !filter.tags.is_empty();
        let (hours, begins_until_ms) = match &sub_query.source {
            Source::Metric(_) if names_all_keys && quirks.explicit_tags_read_an_hour_more => {
                (hours.one_more(), hours.stop_ms())
            }
            Source::Metric(_) | Source::Tsuids(_) => (hours, i64::MAX),
        };
        let reading = Reading {
            layout,
            hours,
            directory,
            index,
            deadline,
        };
        let mut plan = match &sub_query.source {
            Source::Metric(metric) => {
                let MetricSeries {
                    metric: uid,
                    mut selection,
                    group_by,
                } = MetricSeries::resolve(metric, filter, quirks, layout, directory, deadline).await?;
                let (read, known) = reading
                    .of_metric(uid, &mut selection, filter.explicit_tags)
                    .await?;
                let metric = Some(Arc::from(metric.as_str()));
                Self {
                    metric,
                    hours,
                    begins_until_ms,
                    read,
                    known,
                    selection,
                    group_by,
                    downsample: None,
                    _windows: None,
                }
            }
            Source::Tsuids(tsuids) => {
                let mut tsuids = check_tsuids(tsuids, layout)?;
                let (tests, group_by) = match name_tests(&filter.tags, quirks, directory, deadline).await? {
                    Some(tests) => tests,
                    // No series has a key that nobody has written.
                    None => {
                        tsuids.clear();
                        (Vec::new(), Vec::new())
                    }
                };
                let mut selection = Selection::of_series(layout, tsuids.iter().map(Tsuid::as_bytes), tests);
                let read = reading.of_series(&tsuids, &mut selection);
                let group_by = if quirks.tsuids_are_one_group {
                    Vec::new()
                } else {
                    group_by
                };
                Self {
                    metric: None,
                    hours,
                    begins_until_ms,
                    read,
                    known: Known::Named,
                    selection,
                    group_by,
                    downsample: None,
                    _windows: None,
                }
            }
        };
        if sub_query.aggregator.is_none() {
            plan.group_by.clear();
        }
        // Last: a query for unknown names fails before any window is made.
        if let Some(downsample) = &sub_query.downsample {
            let (windows, held) = windows(query, downsample, &range_hours, budget, compute).await?;
            plan.downsample = Some((windows, downsample.function.under(quirks)));
            plan._windows = held.map(Arc::new);
        }
        Ok(plan)
    }
}

/// Filters that look at names only, and the keys that group, ascending; `None` if one of the keys that have to
/// be there is unknown.
async fn name_tests(
    filters: &[TagFilter],
    quirks: Quirks,
    directory: &dyn NameDirectory,
    deadline: Option<Instant>,
) -> Result<Option<(Vec<TagTest>, Vec<TagkUid>)>, QueryError> {
    if filters.is_empty() {
        return Ok(Some((Vec::new(), Vec::new())));
    }
    let keys: Vec<_> = filters
        .iter()
        .map(|filter| (UidKind::Tagk, filter.key.as_str()))
        .collect();
    let uids = directory.uids(&keys, deadline).await?;
    let mut tests = Vec::with_capacity(filters.len());
    let mut group_by = Vec::new();
    for (filter, uid) in filters.iter().zip(uids) {
        let needs_key = !(quirks.filters_of_tsuids_pass_without_key && filter.matcher.takes_unnamed());
        let Some(uid) = uid else {
            if needs_key {
                return Ok(None);
            }
            continue;
        };
        let tagk = TagkUid::new(uid);
        group_by.extend(filter.group_by.then_some(tagk));
        let test = NameTest::new(filter.matcher.predicate(quirks)?);
        let test = if needs_key {
            ValueTest::Name(test)
        } else {
            ValueTest::NameIfThere(test)
        };
        tests.push(TagTest { tagk, test });
    }
    group_by.sort_unstable();
    group_by.dedup();
    Ok(Some((tests, group_by)))
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
    /// The wanted series, ascending, if it is known which they are and that they are few of the metric's.
    ///
    /// # Errors
    ///
    /// Those of the UID service.
    pub async fn few(
        &self,
        widths: &UidWidths,
        directory: &dyn NameDirectory,
        index: Option<&dyn SeriesIndex>,
        deadline: Option<Instant>,
    ) -> Result<Option<Vec<Tsuid>>, QueryError> {
        let (_, few) = matching(self.metric, &self.selection, widths, directory, index, deadline).await?;
        Ok(few)
    }

    /// Looks up metric, tag keys and literal values with one call.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`] for the metric, for the key of any filter and for the values of
    /// `literal_or`; those of the UID service.
    pub async fn resolve(
        metric: &str,
        filter: &SeriesFilter,
        quirks: Quirks,
        layout: &RowKeyLayout,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let filters = &filter.tags;
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
                matcher if matcher.takes_all() => ValueTest::Any,
                matcher => ValueTest::Name(NameTest::new(matcher.predicate(quirks)?)),
            };
            tests.push(TagTest { tagk, test });
        }
        if quirks.literals_of_a_key_add_up {
            tests = added_up(tests);
        }
        group_by.sort_unstable();
        group_by.dedup();
        let keys: FxHashSet<TagkUid> = tests.iter().map(|test| test.tagk).collect();
        let tag_count = (filter.explicit_tags && !filters.is_empty()).then_some(keys.len());
        Ok(Self {
            metric,
            selection: Selection::of_tags(layout, tests, tag_count),
            group_by,
        })
    }
}

/// Literal values of the lowest key come together. Of those of another key only the last test of this key holds:
/// what is left of the others is that the key has to be there.
fn added_up(tests: Vec<TagTest>) -> Vec<TagTest> {
    let lowest = tests.iter().map(|test| test.tagk).min();
    let places = tests.iter().enumerate().map(|(place, test)| (test.tagk, place));
    let last: FxHashMap<TagkUid, usize> = places.collect();
    let mut added = Vec::with_capacity(tests.len());
    for (place, mut test) in tests.into_iter().enumerate() {
        if Some(test.tagk) == lowest {
            add_test(&mut added, test);
            continue;
        }
        if matches!(test.test, ValueTest::In(_)) && last.get(&test.tagk) != Some(&place) {
            test.test = ValueTest::Any;
        }
        added.push(test);
    }
    added
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

/// The windows of a sub-query. Those that a fill policy gives to every series are made in advance, once
/// their number is known to fit into the budget, together with the memory that they take.
async fn windows(
    query: &QuerySpec,
    downsample: &Downsample,
    hours: &Hours,
    budget: &Budget,
    compute: &ComputePool,
) -> Result<(Windows, Option<Held>), QueryError> {
    let (layout, nominal_ms) = match &downsample.interval {
        Interval::Fixed { length_ms } => (
            WindowLayout::Fixed {
                length_ms: *length_ms,
            },
            *length_ms,
        ),
        Interval::Calendar(interval) => (
            WindowLayout::Calendar(CalendarWindows::under(interval.clone(), query.quirks)),
            interval.nominal_ms(),
        ),
        Interval::WholeRange => {
            let excluded = i64::from(!query.quirks.whole_range_excludes_end);
            let layout = WindowLayout::Whole {
                start_ms: query.start_ms,
                stop_ms: query.end_ms.saturating_add(excluded),
            };
            return Ok((Windows::new(layout), None));
        }
    };
    let from_ms = layout.ceil(hours.start.millis());
    let value = match downsample.fill {
        Fill::None => {
            let windows = Windows {
                layout,
                from_ms,
                filled: None,
            };
            return Ok((windows, None));
        }
        Fill::Zero => 0.0,
        Fill::Nan | Fill::Null => f64::NAN,
    };
    let stop_ms = i64::try_from(hours.last_stop()).unwrap_or(i64::MAX / 1000);
    let stop_ms = layout.floor(stop_ms.saturating_mul(1000));
    let floor_ms = layout.floor(hours.start.millis());
    let first_ms = if query.quirks.filled_windows_begin_early {
        floor_ms
    } else {
        from_ms
    };
    // Where the only window is cut short it is there all the same.
    let is_one = matches!(layout, WindowLayout::Calendar(_)) && stop_ms == floor_ms;
    let stop_ms = if is_one { layout.next(stop_ms) } else { stop_ms };
    let range_ms = stop_ms.saturating_sub(first_ms).max(0);
    let about = (range_ms / nominal_ms).unsigned_abs();
    budget.limits().check(Resource::Points, about)?;
    let mut held = budget.hold(about.saturating_mul(START_BYTES))?;
    let make = {
        let layout = layout.clone();
        move || layout.starts(first_ms, stop_ms).collect::<Arc<[i64]>>()
    };
    let starts_ms = if about <= WINDOWS_INLINE {
        make()
    } else {
        compute.run(make).await?
    };
    let bytes = starts_ms.len() as u64 * START_BYTES;
    held.grow(bytes.saturating_sub(held.bytes()))?;
    let windows = Windows {
        layout,
        from_ms,
        filled: Some(FilledWindows { starts_ms, value }),
    };
    Ok((windows, Some(held)))
}

#[cfg(test)]
mod tests;
