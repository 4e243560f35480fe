//! Caches the tag values that match a filter by name, from one query to the next.
//!
//! ```text
//!   filter and tag key ──► Matches    matched     values with names that match         bitmaps of UIDs
//!                                     rejected    values with names that do not match
//!                                     unnamed     values without a name
//!                                     complete    metrics with all their values in them
//! ```
//!
//! A query matches only the values that no query before it has matched. All of it is dropped when a name may have
//! changed ([`NameDirectory::generation`](crate::names::NameDirectory::generation)), and the filters that were not used
//! for the longest time when the bitmaps exceed [`MAX_BYTES`].

use std::sync::Arc;

use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Uid, UidWidth};
use parking_lot::{Mutex, RwLock};
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;

use crate::filter::TagMatcher;
use crate::names::NameGeneration;
use crate::quirks::Quirks;

/// Most bytes of the filters that are kept. 100,000 values take 25 KB.
const MAX_BYTES: usize = 32 << 20;

/// Memory of a filter beside its text and bitmaps, in bytes; an estimate.
const FILTER_BYTES: usize = 512;

/// The matches of a filter.
#[derive(Debug, Default)]
pub struct Matches(RwLock<Resolved>);

#[derive(Debug, Default)]
struct Resolved {
    matched: RoaringTreemap,
    rejected: RoaringTreemap,
    unnamed: RoaringTreemap,
    /// The series of a metric when all values of its series were resolved.
    complete: FxHashMap<MetricUid, u64>,
}

/// The values that can pass a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// These.
    In(Vec<TagvUid>),
    /// All but these.
    NotIn(Vec<TagvUid>),
}

impl Matches {
    /// Whether the name of a value matches; `None` if it is not resolved, or there is no name.
    pub(super) fn get(&self, value: &TagvUid) -> Option<bool> {
        let (resolved, number) = (self.0.read(), value.uid().number());
        if resolved.matched.contains(number) {
            return Some(true);
        }
        resolved.rejected.contains(number).then_some(false)
    }

    /// Returns the unresolved ones of some values, without repetitions.
    pub(super) fn unresolved(&self, values: impl Iterator<Item = TagvUid>) -> Vec<Uid> {
        let mut unresolved: Vec<Uid> = {
            let resolved = self.0.read();
            let is_unknown = |value: &TagvUid| {
                let number = value.uid().number();
                !resolved.matched.contains(number) && !resolved.rejected.contains(number)
            };
            values.filter(is_unknown).map(Uid::from).collect()
        };
        unresolved.sort_unstable();
        unresolved.dedup();
        unresolved
    }

    /// Adds whether values match; `None`: they have no names.
    pub(super) fn add(&self, values: impl Iterator<Item = (Uid, Option<bool>)>) {
        let mut resolved = self.0.write();
        for (value, matches) in values {
            let number = value.number();
            match matches {
                Some(true) => resolved.matched.insert(number),
                Some(false) => resolved.rejected.insert(number),
                None => resolved.unnamed.insert(number),
            };
            if matches.is_some() {
                resolved.unnamed.remove(number);
            }
        }
    }

    /// Whether at least half of the resolved values match; false if none is resolved.
    pub(super) fn pass_most(&self) -> bool {
        let resolved = self.0.read();
        !resolved.matched.is_empty() && resolved.matched.len() >= resolved.rejected.len()
    }

    /// Whether a value has no name.
    pub(super) fn has_unnamed(&self) -> bool {
        !self.0.read().unnamed.is_empty()
    }

    /// Whether all values of a metric with `series` series are resolved.
    pub(crate) fn is_complete(&self, metric: MetricUid, series: u64) -> bool {
        let resolved = self.0.read();
        // A value without a name may have got one.
        resolved.unnamed.is_empty() && resolved.complete.get(&metric) == Some(&series)
    }

    /// Notes that all values of a metric with `series` series are resolved.
    pub(crate) fn set_complete(&self, metric: MetricUid, series: u64) {
        self.0.write().complete.insert(metric, series);
    }

    /// The values that can pass, as the shorter list. Values without a name can, unresolved values may be on either
    /// side.
    pub(crate) fn passing(&self, width: UidWidth) -> Passing {
        let resolved = self.0.read();
        let uids = |numbers: &RoaringTreemap| -> Vec<TagvUid> {
            let uids = numbers
                .iter()
                .filter_map(|number| Uid::from_number(number, width).ok());
            uids.map(TagvUid::new).collect()
        };
        if resolved.matched.len() > resolved.rejected.len() {
            return Passing::NotIn(uids(&resolved.rejected));
        }
        if resolved.unnamed.is_empty() {
            Passing::In(uids(&resolved.matched))
        } else {
            Passing::In(uids(&(&resolved.matched | &resolved.unnamed)))
        }
    }

    fn byte_len(&self) -> usize {
        let resolved = self.0.read();
        let bitmaps = [&resolved.matched, &resolved.rejected, &resolved.unnamed];
        bitmaps.map(RoaringTreemap::serialized_size).iter().sum::<usize>()
            + resolved.complete.capacity() * size_of::<(MetricUid, u64)>()
    }
}

/// A filter: its tag key, its argument and how it is read.
type Filter = (TagkUid, TagMatcher, Quirks);

/// The matches of filters. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MatchCache(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    generation: NameGeneration,
    filters: FxHashMap<Filter, Used>,
    /// Counts look-ups.
    clock: u64,
}

#[derive(Debug)]
struct Used {
    matches: Arc<Matches>,
    at: u64,
}

impl MatchCache {
    /// The matches of a filter, as of a generation of names; `None`: of this query alone.
    pub(crate) fn get_or_insert(
        &self,
        generation: Option<NameGeneration>,
        tagk: TagkUid,
        matcher: &TagMatcher,
        quirks: Quirks,
    ) -> Arc<Matches> {
        let Some(generation) = generation else {
            return Arc::default();
        };
        let mut kept = self.0.lock();
        if kept.generation != generation {
            kept.filters.clear();
            kept.generation = generation;
        }
        kept.clock += 1;
        let at = kept.clock;
        kept.drop_oldest(MAX_BYTES);
        let used = kept.filters.entry((tagk, matcher.clone(), quirks));
        let used = used.or_insert_with(|| Used {
            matches: Arc::default(),
            at,
        });
        used.at = at;
        Arc::clone(&used.matches)
    }
}

impl Kept {
    fn drop_oldest(&mut self, most: usize) {
        let size = |(filter, used): (&Filter, &Used)| {
            FILTER_BYTES + filter.1.argument().len() + used.matches.byte_len()
        };
        let mut bytes: usize = self.filters.iter().map(size).sum();
        while bytes > most
            && let Some(oldest) = self.filters.iter().min_by_key(|(_, used)| used.at)
        {
            bytes -= size(oldest);
            let oldest = oldest.0.clone();
            self.filters.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDTH: UidWidth = UidWidth::DEFAULT;

    fn value(number: u64) -> TagvUid {
        TagvUid::new(Uid::from_number(number, WIDTH).unwrap())
    }

    fn values(numbers: &[u64]) -> Vec<TagvUid> {
        numbers.iter().map(|number| value(*number)).collect()
    }

    fn key(number: u64) -> TagkUid {
        TagkUid::new(Uid::from_number(number, WIDTH).unwrap())
    }

    fn add(matches: &Matches, numbers: &[u64], matching: Option<bool>) {
        let uids = numbers.iter().map(|number| Uid::from(value(*number)));
        matches.add(uids.map(|uid| (uid, matching)));
    }

    #[test]
    fn the_shorter_list_of_values_passes() {
        let matches = Matches::default();
        add(&matches, &[1], Some(true));
        add(&matches, &[2, 3], Some(false));
        assert_eq!(matches.passing(WIDTH), Passing::In(values(&[1])));
        add(&matches, &[9], None);
        assert_eq!(
            matches.passing(WIDTH),
            Passing::In(values(&[1, 9])),
            "its name is asked for later"
        );
        add(&matches, &[4, 5], Some(true));
        assert_eq!(matches.passing(WIDTH), Passing::NotIn(values(&[2, 3])));
        assert_eq!(
            [1, 2, 9].map(|number| matches.get(&value(number))),
            [Some(true), Some(false), None]
        );
        let unresolved = matches.unresolved(values(&[7, 1, 9, 2, 7]).into_iter());
        assert_eq!(
            unresolved,
            values(&[7, 9]).into_iter().map(Uid::from).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_metric_is_complete_until_it_has_another_series_or_a_value_has_no_name() {
        let (matches, metric) = (Matches::default(), MetricUid::new(value(1).into()));
        assert!(!matches.is_complete(metric, 10));
        matches.set_complete(metric, 10);
        assert!(matches.is_complete(metric, 10) && !matches.is_complete(metric, 11));
        add(&matches, &[5], None);
        assert!(!matches.is_complete(metric, 10) && matches.has_unnamed());
        add(&matches, &[5], Some(false));
        assert!(matches.is_complete(metric, 10) && !matches.has_unnamed());
    }

    #[test]
    fn filters_share_matches_until_names_change() {
        let cache = MatchCache::default();
        let matcher = |text| TagMatcher::parse("wildcard", text).unwrap();
        let of = |generation, tagk, text| {
            let generation = Some(NameGeneration {
                changes: generation,
                age: 0,
            });
            cache.get_or_insert(generation, key(tagk), &matcher(text), Quirks::NONE)
        };
        let first = of(1, 1, "a*");
        assert!(Arc::ptr_eq(&first, &of(1, 1, "a*")));
        assert!(!Arc::ptr_eq(&first, &of(1, 2, "a*")), "another key");
        assert!(!Arc::ptr_eq(&first, &of(1, 1, "b*")), "another pattern");
        let strict = cache.get_or_insert(
            Some(NameGeneration { changes: 1, age: 0 }),
            key(1),
            &matcher("a*"),
            Quirks::OPENTSDB,
        );
        assert!(!Arc::ptr_eq(&first, &strict), "read in another way");
        assert!(!Arc::ptr_eq(&first, &of(2, 1, "a*")), "a name has changed");
        let alone = |_| cache.get_or_insert(None, key(1), &matcher("a*"), Quirks::NONE);
        assert!(!Arc::ptr_eq(&alone(1), &alone(2)));
    }

    #[test]
    fn the_oldest_filters_make_room() {
        let cache = MatchCache::default();
        let of = |text: &str| {
            let matcher = TagMatcher::parse("wildcard", text).unwrap();
            cache.get_or_insert(Some(NameGeneration::default()), key(1), &matcher, Quirks::NONE)
        };
        let (old, new) = (of("old*"), of("new*"));
        // Every second value: bitmaps that do not compress.
        add(
            &new,
            &(0..200_000).map(|number| number * 2).collect::<Vec<_>>(),
            Some(true),
        );
        of("old*");
        cache.0.lock().drop_oldest(10_000);
        assert!(Arc::ptr_eq(&old, &of("old*")), "it was used later");
        assert!(!Arc::ptr_eq(&new, &of("new*")));
    }
}
