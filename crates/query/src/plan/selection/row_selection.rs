//! Selects the rows of a metric by their keys.
//!
//! A row key holds UIDs, filters compare names. Literal values are resolved before the scan and compared as UIDs.
//! Patterns need the names of the UIDs: a row with an unresolved value passes the store, its name is resolved together
//! with the other names of the batch, and the match is cached for the rest of the query. So each value is matched once,
//! and later rows with a value that does not match are skipped in the store.
//!
//! If all matching series are resolved, a row belongs to one of them or does not match (see
//! [`Selection::with_resolved_series`]).
//!
//! Row keys of one hour are sorted by their tags, so a key that does not match implies where the next
//! matching key can begin (see [`Selection::seek_after`]). A scan for few of many series seeks from one to
//! the next.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.createAndSetFilter`, `TsdbQuery.findSpans`.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_row_store::{KeyPart, KeyRange, Row, RowFilter, prefix_end};
use oxtsdb_schema::{BaseTime, HOUR_SECONDS, RowKeyLayout, TagkUid, TagvUid, Uid, UidKind};
use rustc_hash::FxHashSet;

use crate::error::QueryError;
use crate::names::NameDirectory;
use crate::plan::selection::tag_test::{NameTest, TagTest, ValueTest};

/// Selects rows. Clones share the match cache.
#[derive(Clone, Debug)]
pub struct Selection(pub(super) Arc<Inner>, Option<ResolvedSeries>);

/// The tags of all series that may match, ascending.
type ResolvedSeries = Arc<[Box<[u8]>]>;

#[derive(Debug)]
pub(super) struct Inner {
    /// Bytes in front of the tags: salt, metric and base time.
    tags_at: usize,
    /// Offset of the base time.
    base_at: usize,
    metric_at: usize,
    tagk_width: usize,
    tag_bytes: usize,
    /// Ascending by key.
    pub(super) tests: Vec<TagTest>,
    /// The number of tags of a row, all in `tests`; `None`: any.
    tag_count: Option<usize>,
    /// The row is of one of these series: TSUIDs.
    series: Option<FxHashSet<Box<[u8]>>>,
}

/// A row, or its key alone.
pub trait HasRowKey {
    /// The row key.
    fn row_key(&self) -> &[u8];
}

impl HasRowKey for Row {
    fn row_key(&self) -> &[u8] {
        self.key()
    }
}

impl HasRowKey for Box<[u8]> {
    fn row_key(&self) -> &[u8] {
        self
    }
}

impl Selection {
    /// Rows that pass all tests; with `tag_count` only rows with exactly this many tags.
    pub fn from_tests(layout: &RowKeyLayout, tests: Vec<TagTest>, tag_count: Option<usize>) -> Self {
        Self::new(layout, tests, tag_count, None)
    }

    /// Rows of these series, as TSUIDs, that pass all tests.
    pub fn from_series<'a>(
        layout: &RowKeyLayout,
        tsuids: impl IntoIterator<Item = &'a [u8]>,
        tests: Vec<TagTest>,
    ) -> Self {
        let series = tsuids.into_iter().map(Box::from).collect();
        Self::new(layout, tests, None, Some(series))
    }

    fn new(
        layout: &RowKeyLayout,
        mut tests: Vec<TagTest>,
        tag_count: Option<usize>,
        series: Option<FxHashSet<Box<[u8]>>>,
    ) -> Self {
        tests.sort_by_key(|test| test.tagk);
        let metric_at = layout.salt.width();
        let base_at = metric_at + layout.widths.metric.bytes();
        Self(
            Arc::new(Inner {
                tags_at: base_at + size_of::<u32>(),
                base_at,
                metric_at,
                tagk_width: layout.widths.tagk.bytes(),
                tag_bytes: layout.widths.tag_bytes(),
                tests,
                tag_count,
                series,
            }),
            None,
        )
    }

    /// The selection narrowed to series that are resolved, by their tags in ascending order. A scan then seeks
    /// from one of them to the next.
    #[must_use]
    pub fn with_resolved_series(self, series: impl Into<Arc<[Box<[u8]>]>>) -> Self {
        Self(self.0, Some(series.into()))
    }

    /// How many series may match, if they are resolved.
    pub fn resolved_series(&self) -> Option<usize> {
        self.1.as_ref().map(|series| series.len())
    }

    /// How many tags a matching series has, if that matters.
    pub fn tag_count(&self) -> Option<usize> {
        self.0.tag_count
    }

    /// The filters.
    pub fn tests(&self) -> &[TagTest] {
        &self.0.tests
    }

    /// Whether there is a filter that a series which has its key can fail.
    pub fn is_selective(&self) -> bool {
        let narrows = |test: &TagTest| !matches!(test.test, ValueTest::Any);
        self.0.tag_count.is_some() || self.0.tests.iter().any(narrows)
    }

    /// Whether every row matches.
    pub fn is_everything(&self) -> bool {
        self.0.tests.is_empty() && self.0.tag_count.is_none() && self.0.series.is_none() && self.1.is_none()
    }

    /// The selection as a filter for the store; `None` if every row matches.
    pub fn row_filter(&self) -> Option<RowFilter> {
        if self.is_everything() {
            return None;
        }
        let (keep, seek) = (self.clone(), self.clone());
        let filter = RowFilter::new(move |key| keep.may_match(key));
        // If filters only require keys, nearly all rows have them: there is nothing to skip.
        let only_keys = self.1.is_none()
            && self
                .0
                .tests
                .iter()
                .all(|test| matches!(test.test, ValueTest::Any));
        let ranges = self.clone();
        Some(if only_keys {
            filter
        } else {
            filter
                .with_ranges(move |start, stop, most| ranges.rows_between(start, stop, most))
                .with_seek(move |key| seek.seek_after(key))
                .with_parts(self.key_parts())
                .keeping_most(self.1.is_none() && self.0.tests.iter().all(TagTest::passes_most))
        })
    }

    /// The parts that keys of matching rows contain: for each filter of literal values, its key and one of them.
    fn key_parts(&self) -> Vec<KeyPart> {
        let parts = self.0.tests.iter().filter_map(|test| match &test.test {
            ValueTest::In(values) => Some(KeyPart {
                prefix: test.tagk.as_bytes().to_vec(),
                endings: values.iter().map(|value| value.as_bytes().to_vec()).collect(),
            }),
            _ => None,
        });
        parts.collect()
    }

    /// The rows of the resolved series between two keys, if both have one salt and one metric: a row for each hour and
    /// series, at most `most`.
    ///
    /// Rows of rollups begin at hours, too, so that theirs are among them.
    fn rows_between(&self, start: &[u8], stop: &[u8], most: usize) -> Option<Vec<KeyRange>> {
        let (series, inner) = (self.1.as_ref()?, &*self.0);
        let in_front = start.get(..inner.base_at)?;
        let seconds = |key: &[u8]| Some(u32::from_be_bytes(*key.get(inner.base_at..)?.first_chunk()?));
        if stop.get(..inner.base_at) != Some(in_front) {
            return None;
        }
        let (first, behind) = (seconds(start)?, seconds(stop)?);
        let first = first - first % HOUR_SECONDS;
        // The hour of `stop` has rows before it if it has tags.
        let hours = (first..behind.saturating_add(1)).step_by(HOUR_SECONDS as usize);
        if hours.len().checked_mul(series.len())? > most {
            return None;
        }
        let row = |hour: u32, tags: &[u8]| [in_front, &hour.to_be_bytes(), tags].concat();
        let rows = hours.flat_map(|hour| series.iter().map(move |tags| row(hour, tags)));
        let within = rows.filter(|row| row.as_slice() >= start && row.as_slice() < stop);
        Some(
            within
                .map(|row| {
                    let behind = [row.as_slice(), &[0]].concat();
                    (row, behind)
                })
                .collect(),
        )
    }

    /// A key such that no row between this one, which does not match, and that one matches; `None`
    /// if the next row may match.
    ///
    /// Tags ascend by their keys. So if a row has a greater key than one that a filter requires, or a value that
    /// does not match, all following rows with the same tags before that place have it too, until the value
    /// matches or those tags change:
    ///
    /// ```text
    ///   filter: tagk 2 = 7           a row            the next rows start at
    ///                                tags 1=5 2=4     tags 1=5 2=7
    ///                                tags 1=5 2=8     tags 1=6
    ///                                tags 1=5 3=1     tags 1=6
    ///                                tags 3=1         the next hour
    /// ```
    pub fn seek_after(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        let inner = &*self.0;
        if let Some(known) = &self.1 {
            let (in_front, tags) = row_key.split_at_checked(inner.tags_at)?;
            let next = known.partition_point(|series| **series <= *tags);
            let target = match known.get(next) {
                Some(series) => [in_front, series].concat(),
                None => prefix_end(in_front),
            };
            return Some(target).filter(|target| !target.is_empty());
        }
        let tags = row_key.get(inner.tags_at..)?;
        let mut place = 0;
        for test in inner.tests.iter().filter(|test| !test.passes_without()) {
            let (tagk, tagv) = loop {
                // Without its key the row is too short; a longer one may follow.
                let tag = tags.get(place..place + inner.tag_bytes)?;
                let (tagk, tagv) = tag.split_at(inner.tagk_width);
                if tagk >= test.tagk.as_bytes() {
                    break (tagk, tagv);
                }
                place += inner.tag_bytes;
            };
            let in_front = &row_key[..inner.tags_at + place];
            let next_value = if tagk == test.tagk.as_bytes() {
                let value = TagvUid::from_bytes(tagv).ok()?;
                if test.passes(&value) {
                    continue;
                }
                test.value_after(&value)
            } else {
                None
            };
            let target = match next_value {
                Some(value) => [in_front, tagk, &value].concat(),
                None => prefix_end(in_front),
            };
            return Some(target).filter(|target| !target.is_empty());
        }
        None
    }

    /// Whether a row matches, as far as names are resolved.
    pub fn may_match(&self, row_key: &[u8]) -> bool {
        let inner = &*self.0;
        // A truncated key is kept: the decoder reports it.
        let Some(tags) = row_key.get(inner.tags_at..) else {
            return true;
        };
        if let Some(series) = &inner.series {
            let metric = row_key.get(inner.metric_at..inner.base_at).unwrap_or_default();
            let mut tsuid = smallvec::SmallVec::<[u8; 64]>::from_slice(metric);
            tsuid.extend_from_slice(tags);
            if !series.contains(tsuid.as_slice()) {
                return false;
            }
        }
        let is_resolved =
            |known: &ResolvedSeries| known.binary_search_by(|series| (**series).cmp(tags)).is_ok();
        self.1.as_ref().is_none_or(is_resolved) && inner.may_match_tags(tags)
    }

    /// The hour of a row key; `None` if it has none.
    pub fn base_time(&self, row_key: &[u8]) -> Option<BaseTime> {
        let bytes = row_key.get(self.0.base_at..)?.first_chunk()?;
        BaseTime::from_seconds_exact(u32::from_be_bytes(*bytes)).ok()
    }

    /// Offset of the tags of a row key.
    pub fn tags_at(&self) -> usize {
        self.0.tags_at
    }

    /// Resolves the names that the filters need for these rows, and drops the rows that do not match.
    ///
    /// A row may have passed the store before another batch resolved its values: all rows are matched again,
    /// also if no name is missing now.
    ///
    /// # Errors
    ///
    /// [`QueryError::Names`], and [`QueryError::UidWithoutName`] for a value that has none.
    pub async fn resolve_and_filter<T: HasRowKey>(
        &self,
        rows: &mut Vec<T>,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<(), QueryError> {
        let mut needs_names = false;
        for test in &self.0.tests {
            let (ValueTest::Name(name_test) | ValueTest::NameIfPresent(name_test)) = &test.test else {
                continue;
            };
            needs_names = true;
            let keys = rows.iter().map(T::row_key);
            let unknown = self.unknown_values(keys, test.tagk, name_test);
            if unknown.is_empty() {
                continue;
            }
            let names = directory.names(UidKind::Tagv, &unknown, deadline).await?;
            let unnamed = unknown.iter().zip(&names).find(|(_, name)| name.is_none());
            if let Some((uid, _)) = unnamed {
                return Err(QueryError::UidWithoutName {
                    kind: UidKind::Tagv,
                    uid: *uid,
                });
            }
            name_test.add(&unknown, &names);
        }
        if needs_names {
            rows.retain(|row| self.may_match(row.row_key()));
        }
        Ok(())
    }

    /// Values of a tag key in these rows that are not resolved.
    fn unknown_values<'a>(
        &self,
        row_keys: impl Iterator<Item = &'a [u8]>,
        tagk: TagkUid,
        test: &NameTest,
    ) -> Vec<Uid> {
        let values = row_keys.filter_map(|key| self.0.value_of(key.get(self.0.tags_at..)?, tagk));
        test.matches.unresolved(values)
    }
}

impl Inner {
    /// Whether a series with these tags matches, as far as names are resolved.
    pub(super) fn may_match_tags(&self, tags: &[u8]) -> bool {
        if self
            .tag_count
            .is_some_and(|count| tags.len() != count * self.tag_bytes)
        {
            return false;
        }
        self.tests.iter().all(|test| {
            self.value_of(tags, test.tagk)
                .map_or(test.passes_without(), |value| test.passes(&value))
        })
    }

    /// The value of a key among the tags of a row.
    #[inline]
    pub(super) fn value_of(&self, tags: &[u8], tagk: TagkUid) -> Option<TagvUid> {
        tags.chunks_exact(self.tag_bytes)
            .map(|tag| tag.split_at(self.tagk_width))
            .find(|(key, _)| *key == tagk.as_bytes())
            .and_then(|(_, value)| TagvUid::from_bytes(value).ok())
    }
}

#[cfg(test)]
mod tests;
