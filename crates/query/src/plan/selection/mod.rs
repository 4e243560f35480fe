//! Which rows of a metric are wanted, told by their keys.
//!
//! A row key holds UIDs, filters compare names. Literal values are looked up before the scan and
//! compared as UIDs. Patterns need the names behind the UIDs: a row with a value whose name is not
//! known yet passes, its name is looked up, together with those of the whole batch, and the verdict
//! is remembered for the rest of the query. So each value is judged once, and rows of values that
//! were judged before are passed over in the store, unread.
//!
//! Where all series that may be wanted are known, a row is one of them or not (see
//! [`Selection::of_known`]).
//!
//! Row keys of one hour are sorted by their tags, so a key that is not wanted says where the next one
//! that may be wanted begins (see [`Selection::seek_after`]). A scan for few of many series jumps from
//! one to the next in place of reading all keys between.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.createAndSetFilter`, `TsdbQuery.findSpans`.

mod matching;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use oxtsdb_row_store::{Row, RowFilter, prefix_end};
use oxtsdb_schema::{BaseTime, RowKeyLayout, TagkUid, TagvUid, Uid, UidKind};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::QueryError;
use crate::filter::Predicate;
use crate::names::NameDirectory;
pub use matching::Matching;

/// Which rows are wanted. Clones share their verdicts.
#[derive(Clone, Debug)]
pub struct Selection(Arc<Inner>, Option<KnownSeries>);

/// The tags of all series that may be wanted, ascending.
type KnownSeries = Arc<[Box<[u8]>]>;

#[derive(Debug)]
struct Inner {
    /// Bytes in front of the tags: salt, metric and base time.
    tags_at: usize,
    /// Where the base time is.
    base_at: usize,
    metric_at: usize,
    tagk_width: usize,
    tag_bytes: usize,
    /// Ascending by key.
    tests: Vec<TagTest>,
    /// The row has so many tags; those of `tests`.
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

/// A filter with its key as UID.
#[derive(Debug)]
pub struct TagTest {
    /// The tag key, which must be there but for [`ValueTest::NameIfThere`].
    pub tagk: TagkUid,
    /// Its value.
    pub test: ValueTest,
}

/// A filter of tag values as UIDs.
#[derive(Debug)]
pub enum ValueTest {
    /// Any value.
    Any,
    /// One of these.
    In(FxHashSet<TagvUid>),
    /// None of these.
    NotIn(FxHashSet<TagvUid>),
    /// One whose name matches.
    Name(NameTest),
    /// One whose name matches, or no tag with this key at all.
    NameIfThere(NameTest),
}

/// A filter that needs names.
pub struct NameTest {
    passes: Predicate,
    verdicts: RwLock<FxHashMap<TagvUid, bool>>,
}

impl TagTest {
    /// Whether a value passes, as far as names are known.
    fn passes(&self, value: &TagvUid) -> bool {
        match &self.test {
            ValueTest::Any => true,
            ValueTest::In(values) => values.contains(value),
            ValueTest::NotIn(values) => !values.contains(value),
            ValueTest::Name(test) | ValueTest::NameIfThere(test) => test.verdict(value).unwrap_or(true),
        }
    }

    /// Whether a row passes that does not have the key.
    fn passes_without(&self) -> bool {
        matches!(self.test, ValueTest::NameIfThere(_))
    }

    /// The bytes of the lowest value behind one which may pass; `None` if there is none.
    fn value_after(&self, value: &TagvUid) -> Option<Vec<u8>> {
        match &self.test {
            ValueTest::In(values) => {
                let next = values.iter().filter(|next| *next > value).min();
                next.map(|next| next.as_bytes().to_vec())
            }
            _ => {
                let next = prefix_end(value.as_bytes());
                // A carry over the first byte makes it shorter or empty: there is no greater value.
                (!next.is_empty()).then(|| {
                    let mut next = next;
                    next.resize(value.as_bytes().len(), 0);
                    next
                })
            }
        }
    }
}

impl NameTest {
    /// Nothing judged yet.
    pub fn new(passes: Predicate) -> Self {
        Self {
            passes,
            verdicts: RwLock::default(),
        }
    }

    fn verdict(&self, value: &TagvUid) -> Option<bool> {
        self.verdicts.read().get(value).copied()
    }
}

impl fmt::Debug for NameTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameTest")
            .field("verdicts", &self.verdicts)
            .finish_non_exhaustive()
    }
}

impl Selection {
    /// Rows that pass all tests; with `tag_count` only those that have just so many tags.
    pub fn of_tags(layout: &RowKeyLayout, tests: Vec<TagTest>, tag_count: Option<usize>) -> Self {
        Self::new(layout, tests, tag_count, None)
    }

    /// Rows of these series, as TSUIDs, that pass all tests.
    pub fn of_series<'a>(
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

    /// The selection where it is known that no other series than these, by their tags in ascending order,
    /// are wanted. A scan then jumps from one of them to the next.
    #[must_use]
    pub fn of_known(self, series: impl Into<Arc<[Box<[u8]>]>>) -> Self {
        Self(self.0, Some(series.into()))
    }

    /// How many series may be wanted, if that is known.
    pub fn known_series(&self) -> Option<usize> {
        self.1.as_ref().map(|series| series.len())
    }

    /// How many tags a wanted series has, if that matters.
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

    /// Whether every row is wanted.
    pub fn is_everything(&self) -> bool {
        self.0.tests.is_empty() && self.0.tag_count.is_none() && self.0.series.is_none() && self.1.is_none()
    }

    /// The selection as a filter for the store; `None` if every row is wanted.
    pub fn row_filter(&self) -> Option<RowFilter> {
        if self.is_everything() {
            return None;
        }
        let (keep, seek) = (self.clone(), self.clone());
        let filter = RowFilter::new(move |key| keep.may_keep(key));
        // Where a filter only wants a key to be there, nearly all rows have it: nothing to jump over.
        let wants_any = self.1.is_none()
            && self
                .0
                .tests
                .iter()
                .all(|test| matches!(test.test, ValueTest::Any));
        Some(if wants_any {
            filter
        } else {
            filter.with_seek(move |key| seek.seek_after(key))
        })
    }

    /// A key such that no row between this one, which is not wanted, and that one is wanted; `None`
    /// if the next row may be wanted.
    ///
    /// Tags ascend by their keys. So where a row has a key behind one that a filter wants, or a value
    /// that it does not, all rows behind with the same tags in front of that place have it too, until
    /// the value is one that the filter wants, or those in front change:
    ///
    /// ```text
    ///   filter: tagk 2 = 7           a row            the rows behind begin at
    ///                                tags 1=5 2=4     tags 1=5 2=7
    ///                                tags 1=5 2=8     tags 1=6
    ///                                tags 1=5 3=1     tags 1=6
    ///                                tags 3=1         the next hour
    /// ```
    pub fn seek_after(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        let inner = &*self.0;
        if let Some(known) = &self.1 {
            let (in_front, tags) = row_key.split_at_checked(inner.tags_at)?;
            let behind = known.partition_point(|series| **series <= *tags);
            let target = match known.get(behind) {
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

    /// Whether a row is wanted, as far as names are known.
    pub fn may_keep(&self, row_key: &[u8]) -> bool {
        let inner = &*self.0;
        // A key that is cut off is kept: whoever decodes it says what is wrong.
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
        let is_known = |known: &KnownSeries| known.binary_search_by(|series| (**series).cmp(tags)).is_ok();
        self.1.as_ref().is_none_or(is_known) && inner.may_keep_tags(tags)
    }

    /// The hour of a row key; `None` if it has none.
    pub fn base_time(&self, row_key: &[u8]) -> Option<BaseTime> {
        let bytes = row_key.get(self.0.base_at..)?.first_chunk()?;
        BaseTime::from_seconds_exact(u32::from_be_bytes(*bytes)).ok()
    }

    /// Where the tags of a row key begin.
    pub fn tags_at(&self) -> usize {
        self.0.tags_at
    }

    /// Looks up the names that the filters need for these rows, whatever they are kept as, and drops the
    /// rows that do not match.
    ///
    /// Rows may have passed the store when nothing was known of their values, and have been judged since by
    /// another batch: so all are looked at again, also if no name is missing now.
    ///
    /// # Errors
    ///
    /// [`QueryError::Names`], and [`QueryError::UidWithoutName`] for a value that has none.
    pub async fn judge<T: HasRowKey>(
        &self,
        rows: &mut Vec<T>,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
    ) -> Result<(), QueryError> {
        let mut needs_names = false;
        for test in &self.0.tests {
            let (ValueTest::Name(name_test) | ValueTest::NameIfThere(name_test)) = &test.test else {
                continue;
            };
            needs_names = true;
            let keys = rows.iter().map(T::row_key);
            let unknown = self.unknown_values(keys, test.tagk, name_test);
            if unknown.is_empty() {
                continue;
            }
            let names = directory.names(UidKind::Tagv, &unknown, deadline).await?;
            let mut verdicts = name_test.verdicts.write();
            for (uid, name) in unknown.into_iter().zip(names) {
                let name = name.ok_or(QueryError::UidWithoutName {
                    kind: UidKind::Tagv,
                    uid,
                })?;
                verdicts.insert(TagvUid::new(uid), (name_test.passes)(&name));
            }
        }
        if needs_names {
            rows.retain(|row| self.may_keep(row.row_key()));
        }
        Ok(())
    }

    /// Values of a tag key in these rows that were not judged yet.
    fn unknown_values<'a>(
        &self,
        row_keys: impl Iterator<Item = &'a [u8]>,
        tagk: TagkUid,
        test: &NameTest,
    ) -> Vec<Uid> {
        let verdicts = test.verdicts.read();
        let values: FxHashSet<TagvUid> = row_keys
            .filter_map(|key| self.0.value_of(key.get(self.0.tags_at..)?, tagk))
            .filter(|value| !verdicts.contains_key(value))
            .collect();
        values.into_iter().map(Uid::from).collect()
    }
}

impl Inner {
    /// Whether a series with these tags is wanted, as far as names are known.
    fn may_keep_tags(&self, tags: &[u8]) -> bool {
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
    fn value_of(&self, tags: &[u8], tagk: TagkUid) -> Option<TagvUid> {
        tags.chunks_exact(self.tag_bytes)
            .map(|tag| tag.split_at(self.tagk_width))
            .find(|(key, _)| *key == tagk.as_bytes())
            .and_then(|(_, value)| TagvUid::from_bytes(value).ok())
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use oxtsdb_row_store::RowBuilder;
    use oxtsdb_schema::UidWidth;
    use proptest::prelude::*;

    use super::*;
    use crate::names::NameError;

    const METRIC_AND_TIME: [u8; 7] = [0, 0, 1, 0x50, 0xe2, 0x27, 0x00];

    fn key(tags: &[(u8, u8)]) -> Vec<u8> {
        let tags = tags.iter().flat_map(|(tagk, tagv)| [0, 0, *tagk, 0, 0, *tagv]);
        METRIC_AND_TIME.into_iter().chain(tags).collect()
    }

    fn tagk(number: u64) -> TagkUid {
        TagkUid::from_number(number, UidWidth::DEFAULT).unwrap()
    }

    fn values(numbers: &[u64]) -> FxHashSet<TagvUid> {
        numbers
            .iter()
            .map(|number| TagvUid::from_number(*number, UidWidth::DEFAULT).unwrap())
            .collect()
    }

    #[test]
    fn filters_want_their_key_to_be_there() {
        let layout = RowKeyLayout::default();
        let tests = vec![
            TagTest {
                tagk: tagk(1),
                test: ValueTest::NotIn(values(&[5])),
            },
            TagTest {
                tagk: tagk(2),
                test: ValueTest::Any,
            },
        ];
        let selection = Selection::of_tags(&layout, tests, None);
        assert!(selection.may_keep(&key(&[(1, 4), (2, 9)])));
        assert!(!selection.may_keep(&key(&[(1, 5), (2, 9)])));
        assert!(!selection.may_keep(&key(&[(1, 4)])));
        assert!(!selection.may_keep(&key(&[(2, 4)])));
    }

    #[test]
    fn explicit_tags_want_no_other_key() {
        let tests = || {
            vec![TagTest {
                tagk: tagk(1),
                test: ValueTest::In(values(&[4, 5])),
            }]
        };
        let layout = RowKeyLayout::default();
        let (loose, explicit) = (
            Selection::of_tags(&layout, tests(), None),
            Selection::of_tags(&layout, tests(), Some(1)),
        );
        let two_tags = key(&[(1, 4), (2, 9)]);
        assert!(loose.may_keep(&two_tags) && !explicit.may_keep(&two_tags));
        assert!(explicit.may_keep(&key(&[(1, 5)])));
    }

    #[test]
    fn series_are_told_by_metric_and_tags() {
        let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, 4];
        let selection = Selection::of_series(&RowKeyLayout::default(), [tsuid.as_slice()], Vec::new());
        assert!(selection.may_keep(&key(&[(1, 4)])));
        assert!(!selection.may_keep(&key(&[(1, 5)])));
        assert!(!selection.may_keep(&key(&[(1, 4), (2, 9)])));
        let tests = vec![TagTest {
            tagk: tagk(1),
            test: ValueTest::NotIn(values(&[4])),
        }];
        let filtered = Selection::of_series(&RowKeyLayout::default(), [tsuid.as_slice()], tests);
        assert!(!filtered.may_keep(&key(&[(1, 4)])));
    }

    #[test]
    fn a_key_that_is_not_wanted_says_where_to_go_on() {
        let layout = RowKeyLayout::default();
        let tests = vec![TagTest {
            tagk: tagk(2),
            test: ValueTest::In(values(&[7, 9])),
        }];
        let selection = Selection::of_tags(&layout, tests, None);
        let seek = |tags: &[(u8, u8)]| selection.seek_after(&key(tags));
        assert_eq!(seek(&[(1, 5), (2, 4)]), Some(key(&[(1, 5), (2, 7)])));
        assert_eq!(seek(&[(2, 8), (3, 1)]), Some(key(&[(2, 9)])));
        assert_eq!(seek(&[(1, 5), (2, 10)]), Some(key(&[(1, 6)])));
        assert_eq!(seek(&[(1, 5), (3, 1)]), Some(key(&[(1, 6)])));
        let next_hour = [&METRIC_AND_TIME[..6], &[1]].concat();
        assert_eq!(seek(&[(3, 1)]), Some(next_hour), "or before it");
        assert_eq!(seek(&[(1, 5)]), None, "a longer key may follow");
    }

    proptest! {
        #[test]
        fn hints_pass_over_nothing_that_is_wanted(
            rows in prop::collection::btree_set(prop::collection::btree_map(1_u8..5, 1_u8..6, 0..4), 0..40),
            literals in prop::collection::hash_set(1_u64..6, 0..3),
            excluded in prop::collection::hash_set(1_u64..6, 0..3),
            keys in prop::sample::subsequence(vec![1_u64, 2, 3, 4], 3),
            count in prop::option::of(3_usize..5),
            known in prop::option::of(prop::collection::btree_set(prop::collection::btree_map(1_u8..5, 1_u8..6, 1..4), 0..6)),
        ) {
            let literals: Vec<u64> = literals.into_iter().collect();
            let excluded: Vec<u64> = excluded.into_iter().collect();
            let tests = vec![
                TagTest { tagk: tagk(keys[2]), test: ValueTest::In(values(&literals)) },
                TagTest { tagk: tagk(keys[0]), test: ValueTest::NotIn(values(&excluded)) },
                TagTest { tagk: tagk(keys[1]), test: ValueTest::Any },
            ];
            let mut selection = Selection::of_tags(&RowKeyLayout::default(), tests, count);
            if let Some(known) = known {
                let series = known.iter().map(|tags| key(&tags.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>())[7..].into());
                let series: std::collections::BTreeSet<Box<[u8]>> = series.collect();
                selection = selection.of_known(Vec::from_iter(series));
            }
            let mut rows: Vec<Vec<u8>> =
                rows.iter().map(|tags| key(&tags.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>())).collect();
            rows.sort();
            for (index, row) in rows.iter().enumerate().filter(|(_, row)| !selection.may_keep(row)) {
                let Some(target) = selection.seek_after(row) else { continue };
                prop_assert!(target > *row);
                for passed_over in rows[index..].iter().filter(|later| **later < target) {
                    prop_assert!(!selection.may_keep(passed_over), "{row:?} {passed_over:?} {target:?}");
                }
            }
        }
    }

    /// Every UID has the name `no`.
    #[derive(Debug)]
    struct AllNamed;

    #[async_trait]
    impl NameDirectory for AllNamed {
        async fn uids(
            &self,
            names: &[(UidKind, &str)],
            _: Option<Instant>,
        ) -> Result<Vec<Option<Uid>>, NameError> {
            Ok(vec![None; names.len()])
        }

        async fn names(
            &self,
            _: UidKind,
            uids: &[Uid],
            _: Option<Instant>,
        ) -> Result<Vec<Option<Arc<str>>>, NameError> {
            Ok(vec![Some(Arc::from("no")); uids.len()])
        }
    }

    #[tokio::test]
    async fn rows_that_were_read_before_their_value_was_judged_are_dropped_too() {
        let tests = vec![TagTest {
            tagk: tagk(1),
            test: ValueTest::Name(NameTest::new(Box::new(|name| name == "yes"))),
        }];
        let selection = Selection::of_tags(&RowKeyLayout::default(), tests, None);
        let row = || {
            let mut builder = RowBuilder::new(&key(&[(1, 4)]), Arc::from(["t".to_owned()]));
            builder.push(0, b"q", 1, b"v");
            builder.finish().unwrap()
        };
        // Both batches came from the store before one of them was looked at.
        let (mut first, mut second) = (vec![row()], vec![row()]);
        for rows in [&mut first, &mut second] {
            selection.judge(rows, &AllNamed, None).await.unwrap();
            assert!(rows.is_empty());
        }
    }

    #[test]
    fn a_name_that_is_not_known_yet_passes() {
        let test = NameTest::new(Box::new(|name| name.starts_with('a')));
        test.verdicts
            .write()
            .insert(*values(&[5]).iter().next().unwrap(), false);
        let tests = vec![TagTest {
            tagk: tagk(1),
            test: ValueTest::Name(test),
        }];
        let selection = Selection::of_tags(&RowKeyLayout::default(), tests, None);
        assert!(selection.may_keep(&key(&[(1, 4)])));
        assert!(!selection.may_keep(&key(&[(1, 5)])));
        assert!(
            selection.may_keep(&[1, 2]),
            "a key that is cut off is for the decoder to refuse"
        );
    }
}
