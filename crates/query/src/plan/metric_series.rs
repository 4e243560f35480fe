//! Resolves the filters of a metric to tests over UIDs.

use std::time::Instant;

use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, UidKind};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::QueryError;
use crate::filter::{FilterError, Resolution, TagFilter, TagMatcher};
use crate::names::ResolvedNames;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::{NameTest, TagTest, ValueTest};
use crate::quirks::Quirks;
use crate::spec::SeriesFilter;
use crate::storage::Storage;

/// Two literal filters of one key are one as long as they have fewer values than this together.
const EXPANSION_LIMIT: usize = 4096;

/// Filters that look at names only, and the keys that group, ascending; `None` if one of the keys that have to
/// be there is unknown.
pub(super) async fn name_tests(
    filters: &[TagFilter],
    quirks: Quirks,
    storage: &Storage,
    deadline: Option<Instant>,
) -> Result<Option<(Vec<TagTest>, Vec<TagkUid>)>, QueryError> {
    if filters.is_empty() {
        return Ok(Some((Vec::new(), Vec::new())));
    }
    let keys = filters.iter().map(|filter| (UidKind::Tagk, filter.key.as_str()));
    let known = ResolvedNames::resolve(keys, &*storage.directory, deadline).await?;
    let mut tests = Vec::with_capacity(filters.len());
    let mut group_by = Vec::new();
    for filter in filters {
        let needs_key = !(quirks.filters_of_tsuids_pass_without_key && filter.matcher.matches_without_tag());
        let Some(uid) = known.find(UidKind::Tagk, &filter.key) else {
            if needs_key {
                return Ok(None);
            }
            continue;
        };
        let tagk = TagkUid::new(uid);
        group_by.extend(filter.group_by.then_some(tagk));
        let test = name_test(tagk, &filter.matcher, quirks, storage)?;
        let test = if needs_key {
            ValueTest::Name(test)
        } else {
            ValueTest::NameIfPresent(test)
        };
        tests.push(TagTest { tagk, test });
    }
    group_by.sort_unstable();
    group_by.dedup();
    Ok(Some((tests, group_by)))
}

/// The test of a filter that looks at names.
fn name_test(
    tagk: TagkUid,
    matcher: &TagMatcher,
    quirks: Quirks,
    storage: &Storage,
) -> Result<NameTest, FilterError> {
    let predicate = matcher.predicate(quirks)?;
    let generation = storage.directory.generation();
    Ok(NameTest::new(
        predicate,
        storage.matches.get_or_insert(generation, tagk, matcher, quirks),
    ))
}

/// The series of a metric that pass filters, with names resolved.
#[derive(Clone, Debug)]
pub(crate) struct MetricSeries {
    /// The metric.
    pub metric: MetricUid,
    /// Selects its rows.
    pub selection: Selection,
    /// The tag keys of the filters that group, ascending.
    pub group_by: Vec<TagkUid>,
}

impl MetricSeries {
    /// Looks up metric, tag keys and literal values with one call.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownName`] for the metric, for the key of any filter and for the values of `literal_or`; the
    /// errors of the UID service.
    pub(crate) async fn resolve(
        metric: &str,
        filter: &SeriesFilter,
        quirks: Quirks,
        storage: &Storage,
        deadline: Option<Instant>,
    ) -> Result<Self, QueryError> {
        let filters = &filter.tags;
        let mut names = vec![(UidKind::Metric, metric)];
        for filter in filters {
            names.push((UidKind::Tagk, filter.key.as_str()));
            if let Resolution::In(values) | Resolution::NotIn(values) = filter.matcher.resolution() {
                names.extend(values.iter().map(|value| (UidKind::Tagv, value.as_str())));
            }
        }
        let known = ResolvedNames::resolve(names, &*storage.directory, deadline).await?;

        let metric = MetricUid::new(known.uid(UidKind::Metric, metric)?);
        let mut tests = Vec::with_capacity(filters.len());
        let mut group_by = Vec::new();
        for filter in filters {
            let tagk = TagkUid::new(known.uid(UidKind::Tagk, &filter.key)?);
            if filter.group_by {
                group_by.push(tagk);
            }
            let test = match filter.matcher.resolution() {
                Resolution::In(values) => {
                    if values.iter().any(String::is_empty) {
                        return Err(FilterError::EmptyAlternative.into());
                    }
                    let uids = values
                        .iter()
                        .map(|value| known.uid(UidKind::Tagv, value).map(TagvUid::new));
                    ValueTest::In(uids.collect::<Result<_, _>>()?)
                }
                Resolution::NotIn(values) => {
                    let uids = values
                        .iter()
                        .filter_map(|value| known.uid(UidKind::Tagv, value).ok());
                    ValueTest::NotIn(uids.map(TagvUid::new).collect())
                }
                Resolution::All => ValueTest::Any,
                Resolution::ByName => ValueTest::Name(name_test(tagk, &filter.matcher, quirks, storage)?),
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
            selection: Selection::from_tests(&storage.layout, tests, tag_count),
            group_by,
        })
    }
}

/// Merges literal values of the lowest key. For another key only its last test applies; the earlier ones only require
/// the key.
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

/// Adds a test. Literal values of one key merge: a series must have one of them.
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
