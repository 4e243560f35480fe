//! Groups: series that become one result, and its tags.
//!
//! Series with the same values of the grouping tag keys are one group; without such keys all are.
//! Groups ascend by these values' UIDs, series within a group as their row keys do: by salt, if there is one, and by TSUID.
//! UIDs are assigned in order of first use, so neither order is alphabetical. The order of series decides the last digits of
//! sums, and results of `first`, `last` and `diff`.
//!
//! The tags of a group are the tag keys that have one value in all its series *that have the key*. Keys with several
//! values are its aggregate tags. So a key that only some of the series have is a tag of the group if it has one value.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.GroupByAndAggregateCB`, `TsdbQuery.SpanCmp`, `SpanGroup.computeTags`.

use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_schema::{RowKeyLayout, SaltLayout, TagkUid, TagvUid, Tsuid, UidWidths};
use rustc_hash::FxBuildHasher;

use crate::exec::series_points::SeriesPoints;

/// Series that become one result.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SeriesGroup {
    /// In the order of their row keys; at least one.
    pub series: Vec<SeriesPoints>,
    /// Tags with one value, ascending by key.
    pub tags: Vec<(TagkUid, TagvUid)>,
    /// Keys of tags with several values, ascending.
    pub aggregate_tags: Vec<TagkUid>,
}

/// How series are grouped.
#[derive(Clone, Debug)]
pub(crate) enum Grouping {
    /// Each is a group.
    Each,
    /// By the values of these keys, ascending; of none: all are one group.
    ByTags(Arc<[TagkUid]>),
}

impl Grouping {
    /// Replaces `key` by bytes that the series of one group have in common, in the order of the groups. Of tags these
    /// are 1 and the UID of each value, all of one width, or 0 without a value.
    pub(crate) fn write_key(&self, tsuid: &Tsuid, widths: &UidWidths, key: &mut Vec<u8>) {
        key.clear();
        let keys = match self {
            Self::Each => return key.extend_from_slice(tsuid.as_bytes()),
            Self::ByTags(keys) => keys,
        };
        for of_group in keys.iter() {
            match tsuid.tags(widths).find(|(tagk, _)| tagk == of_group) {
                Some((_, tagv)) => {
                    key.push(1);
                    key.extend_from_slice(tagv.as_bytes());
                }
                None => key.push(0),
            }
        }
    }

    /// As [`Grouping::write_key`], with keys that ascend as the groups of [`group`] do.
    pub(crate) fn write_ordered_key(&self, tsuid: &Tsuid, layout: &RowKeyLayout, key: &mut Vec<u8>) {
        self.write_key(tsuid, &layout.widths, key);
        if matches!(self, Self::Each) {
            let salt = layout.salt.bytes_of(layout.salt.bucket(tsuid.as_bytes()));
            key.splice(..0, salt.as_bytes().iter().copied());
        }
    }
}

/// Groups series that ascend by TSUID.
pub(crate) fn group(
    mut series: Vec<SeriesPoints>,
    grouping: &Grouping,
    layout: &RowKeyLayout,
) -> Vec<SeriesGroup> {
    let widths = &layout.widths;
    sort_by_salt(&mut series, layout.salt);
    match grouping {
        Grouping::Each => {
            let each = |one| SeriesGroup::new(vec![one], widths);
            return series.into_iter().map(each).collect();
        }
        Grouping::ByTags(keys) if keys.is_empty() || series.len() == 1 => {
            if series.is_empty() {
                return Vec::new();
            }
            return vec![SeriesGroup::new(series, widths)];
        }
        Grouping::ByTags(_) => {}
    }
    // The number of each series' group, by first occurrence: the groups are allocated in their size, since a million of
    // them may have one series each.
    let mut numbers: HashMap<Vec<u8>, usize, FxBuildHasher> = HashMap::default();
    let (mut sizes, mut key) = (Vec::new(), Vec::new());
    let mut number_of = |one: &SeriesPoints| {
        grouping.write_key(&one.tsuid, widths, &mut key);
        let number = *numbers.entry_ref(key.as_slice()).or_insert(sizes.len());
        match sizes.get_mut(number) {
            Some(size) => *size += 1,
            None => sizes.push(1),
        }
        number
    };
    let places: Vec<usize> = series.iter().map(&mut number_of).collect();
    let mut groups: Vec<Vec<SeriesPoints>> = sizes.into_iter().map(Vec::with_capacity).collect();
    for (one, place) in series.into_iter().zip(places) {
        groups[place].push(one);
    }
    let mut numbers: Vec<_> = numbers.into_iter().collect();
    numbers.sort_unstable();
    let of_number = |(_, number): (_, usize)| SeriesGroup::new(std::mem::take(&mut groups[number]), widths);
    numbers.into_iter().map(of_number).collect()
}

/// Sorts series that ascend by TSUID in the order of their row keys.
fn sort_by_salt(series: &mut [SeriesPoints], salt: SaltLayout) {
    if salt.width() > 0 {
        // Stable: series of a bucket keep their order.
        series.sort_by_cached_key(|one| salt.bytes_of(salt.bucket(one.tsuid.as_bytes())));
    }
}

impl SeriesGroup {
    fn new(series: Vec<SeriesPoints>, widths: &UidWidths) -> Self {
        // The bytes of their UIDs, ascending by key; `None`: several values.
        let mut values: Vec<(&[u8], Option<&[u8]>)> = Vec::new();
        for one in named(&series) {
            for (expected, (tagk, tagv)) in one.tsuid.tag_bytes(widths).enumerate() {
                // Series mostly have the same keys.
                let place = match values.get(expected) {
                    Some((key, _)) if *key == tagk => Ok(expected),
                    _ => values.binary_search_by(|(key, _)| (*key).cmp(tagk)),
                };
                match place {
                    Ok(place) if values[place].1.is_some_and(|value| value != tagv) => values[place].1 = None,
                    Ok(_) => {}
                    Err(place) => values.insert(place, (tagk, Some(tagv))),
                }
            }
        }
        let one_value = |(tagk, tagv): &(&[u8], Option<&[u8]>)| {
            Some((
                TagkUid::from_bytes(tagk).ok()?,
                TagvUid::from_bytes((*tagv)?).ok()?,
            ))
        };
        let several = values.iter().filter(|(_, tagv)| tagv.is_none());
        let mut tags: Vec<_> = values.iter().filter_map(one_value).collect();
        tags.shrink_to_fit();
        let mut aggregate_tags: Vec<_> = several
            .filter_map(|(tagk, _)| TagkUid::from_bytes(tagk).ok())
            .collect();
        aggregate_tags.shrink_to_fit();
        Self {
            series,
            tags,
            aggregate_tags,
        }
    }
}

/// The series that give a group its names: the series with points, or all if none has points.
fn named(series: &[SeriesPoints]) -> impl Iterator<Item = &SeriesPoints> {
    let has_named = series.iter().any(|one| one.is_named);
    series.iter().filter(move |one| one.is_named || !has_named)
}

impl SeriesGroup {
    /// The series that its names and TSUIDs are from.
    pub(crate) fn named(&self) -> impl Iterator<Item = &SeriesPoints> {
        named(&self.series)
    }

    /// Points of all its series.
    pub(crate) fn point_count(&self) -> usize {
        self.series.iter().map(|series| series.points.len()).sum()
    }

    /// Memory of the points of all its series, in bytes.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.series.iter().map(|series| series.points.held_bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::{BaseTime, RowKey, Tsuid};

    use super::*;
    use crate::points::Points;

    fn series_of(tags: &[(u8, u8)]) -> SeriesPoints {
        let tags = tags.iter().flat_map(|(tagk, tagv)| [0, 0, *tagk, 0, 0, *tagv]);
        let bytes: Vec<u8> = [0, 0, 1].into_iter().chain(tags).collect();
        let tsuid = Tsuid::from_bytes(&bytes, &UidWidths::default()).unwrap();
        SeriesPoints {
            tsuid,
            points: Points::default(),
            from_epoch: None,
            annotations: None,
            is_named: true,
        }
    }

    fn numbers<T: Copy + Into<oxtsdb_schema::Uid>>(uids: &[T]) -> Vec<u64> {
        uids.iter().map(|uid| (*uid).into().number()).collect()
    }

    #[test]
    fn a_key_of_some_series_is_a_tag_if_it_has_one_value() {
        let series = vec![
            series_of(&[(1, 1), (2, 5)]),
            series_of(&[(1, 2), (3, 7)]),
            series_of(&[(1, 2), (2, 5)]),
        ];
        let groups = group(
            series,
            &Grouping::ByTags(Arc::default()),
            &RowKeyLayout::default(),
        );
        assert_eq!(groups.len(), 1);
        let keys: Vec<TagkUid> = groups[0].tags.iter().map(|(tagk, _)| *tagk).collect();
        assert_eq!(numbers(&keys), [2, 3]);
        assert_eq!(numbers(&groups[0].aggregate_tags), [1]);
    }

    #[test]
    fn groups_ascend_by_the_values_of_their_keys() {
        let series = || {
            vec![
                series_of(&[(1, 9), (2, 1)]),
                series_of(&[(1, 3), (2, 2)]),
                series_of(&[(1, 3), (2, 4)]),
            ]
        };
        let key = TagkUid::from_bytes(&[0, 0, 1]).unwrap();
        let layout = RowKeyLayout::default();
        let groups = group(series(), &Grouping::ByTags([key].into()), &layout);
        let sizes: Vec<_> = groups.iter().map(|group| group.series.len()).collect();
        assert_eq!(sizes, [2, 1], "value 3 comes before value 9");
        assert_eq!(group(series(), &Grouping::Each, &layout).len(), 3);
        assert!(group(Vec::new(), &Grouping::ByTags(Arc::default()), &layout).is_empty());
    }

    /// A million groups may have one series each: spare capacity would be most of their memory.
    #[test]
    fn groups_have_no_spare_capacity() {
        let series = vec![
            series_of(&[(1, 9), (2, 1)]),
            series_of(&[(1, 3), (2, 2)]),
            series_of(&[(1, 3), (2, 4)]),
        ];
        let key = TagkUid::from_bytes(&[0, 0, 1]).unwrap();
        let grouping = Grouping::ByTags([key].into());
        for group in group(series, &grouping, &RowKeyLayout::default()) {
            assert_eq!(group.series.capacity(), group.series.len());
            assert_eq!(group.tags.capacity(), group.tags.len());
            assert_eq!(group.aggregate_tags.capacity(), group.aggregate_tags.len());
        }
    }

    #[test]
    fn series_with_salt_are_in_the_order_of_their_row_keys() {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(1, 20).unwrap(),
            ..RowKeyLayout::default()
        };
        let series: Vec<_> = (1..60).map(|value| series_of(&[(1, value)])).collect();
        let key = |one: &SeriesPoints| RowKey::new(&layout, &one.tsuid, BaseTime::from_seconds(0));
        let mut expected: Vec<RowKey> = series.iter().map(key).collect();
        assert!(!expected.is_sorted());
        expected.sort();
        for grouping in [Grouping::Each, Grouping::ByTags(Arc::default())] {
            let groups = group(series.clone(), &grouping, &layout);
            let keys: Vec<RowKey> = groups.iter().flat_map(|group| &group.series).map(key).collect();
            assert_eq!(keys, expected);
        }
    }
}
