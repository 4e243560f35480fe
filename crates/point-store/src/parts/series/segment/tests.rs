use std::collections::{BTreeMap, BTreeSet};

use oxtsdb_schema::{TagkUid, TagvUid, UidWidth};
use proptest::prelude::*;

use super::*;
use crate::TagTest;

type Tags = BTreeMap<u8, u8>;

fn tagk(number: u8) -> TagkUid {
    TagkUid::from_number(number.into(), UidWidth::DEFAULT).unwrap()
}

fn tagv(number: u8) -> TagvUid {
    TagvUid::from_number(number.into(), UidWidth::DEFAULT).unwrap()
}

fn key(tags: &Tags) -> Vec<u8> {
    let mut key = vec![0, 0, 1];
    for (tagk, tagv) in tags {
        key.extend([0, 0, *tagk, 0, 0, *tagv]);
    }
    key
}

/// The segment of series with the numbers 0, 3, 6, ....
fn segment(series: &[Tags], first: usize) -> Segment {
    let mut builder = SegmentBuilder::new(UidWidths::default());
    for (number, tags) in (first..).zip(series) {
        builder.push(number_of(number), &key(tags));
    }
    builder.finish()
}

fn number_of(index: usize) -> SeriesNumber {
    SeriesNumber(u32::try_from(index * 3).unwrap())
}

fn passes(tags: &Tags, test: &TagTest) -> bool {
    let value = |tagk: &TagkUid| {
        let number = u8::try_from(tagk.uid().number()).unwrap();
        tags.get(&number).map(|value| tagv(*value))
    };
    match test {
        TagTest::In(tagk, values) => value(tagk).is_some_and(|value| values.contains(&value)),
        TagTest::NotIn(tagk, values) => value(tagk).is_some_and(|value| !values.contains(&value)),
        TagTest::Has(tagk) => value(tagk).is_some(),
        TagTest::Lacks(tagk) => value(tagk).is_none(),
        TagTest::Exactly(tagks) => {
            let expected: BTreeSet<TagkUid> = tagks.iter().copied().collect();
            tags.keys().map(|number| tagk(*number)).eq(expected)
        }
    }
}

fn some_tags() -> impl Strategy<Value = Tags> {
    prop::collection::btree_map(1_u8..5, 1_u8..8, 1..5)
}

fn some_series() -> impl Strategy<Value = Vec<Tags>> {
    prop::collection::btree_set(some_tags(), 0..60)
        .prop_map(|series| series.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
}

fn some_test() -> impl Strategy<Value = TagTest> {
    let key = || (1_u8..6).prop_map(tagk);
    let values = || prop::collection::vec((1_u8..9).prop_map(tagv), 0..4);
    prop_oneof![
        (key(), values()).prop_map(|(key, values)| TagTest::In(key, values)),
        (key(), values()).prop_map(|(key, values)| TagTest::NotIn(key, values)),
        key().prop_map(TagTest::Has),
        key().prop_map(TagTest::Lacks),
        prop::collection::vec(key(), 0..4).prop_map(TagTest::Exactly),
    ]
}

proptest! {
    #[test]
    fn selects_what_passes_all_tests(
        series in some_series(),
        tests in prop::collection::vec(some_test(), 0..4),
        most in 0_usize..20,
    ) {
        let (mut selected, mut few) = (Vec::new(), Vec::new());
        let segment = segment(&series, 0);
        segment.select(&tests, &mut selected);
        if segment.select_few(&tests, most, &mut few).is_some() {
            prop_assert_eq!(&few, &selected);
            prop_assert!(few.len() <= most);
        } else {
            prop_assert!(few.is_empty());
            // A test has up to 3 values.
            prop_assert!(series.len() > most || most < 3);
        }
        let expected: Vec<SeriesNumber> = (0..)
            .zip(&series)
            .filter(|(_, tags)| tests.iter().all(|test| passes(tags, test)))
            .map(|(index, _)| number_of(index))
            .collect();
        prop_assert_eq!(selected, expected);
    }

    #[test]
    fn merged_segments_are_those_of_all_series(
        series in some_series(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(series.len() + 1)).collect();
        cuts.extend([0, series.len()]);
        cuts.sort_unstable();
        let segments = cuts.windows(2).map(|cut| {
            std::sync::Arc::new(segment(&series[cut[0]..cut[1]], cut[0]))
        });
        let merged = Segment::merge(&segments.collect::<Vec<_>>());
        prop_assert_eq!(merged, segment(&series, 0));
    }

    #[test]
    fn key_order_is_that_of_the_bytes(series in some_series()) {
        let mut expected: Vec<usize> = (0..series.len()).collect();
        expected.sort_by_key(|index| key(&series[*index]));
        let expected: Vec<SeriesNumber> = expected.into_iter().map(number_of).collect();
        prop_assert_eq!(segment(&series, 0).key_order(), expected);
    }

    #[test]
    fn counts_keys_and_values(series in some_series()) {
        let segment = segment(&series, 0);
        let mut keys = BTreeMap::new();
        let mut values = BTreeMap::new();
        for (tagk, tagv) in series.iter().flatten() {
            *keys.entry(u64::from(*tagk)).or_insert(0_u32) += 1;
            if *tagk == 2 {
                *values.entry(u64::from(*tagv)).or_insert(0_u32) += 1;
            }
        }
        prop_assert!(segment.tag_keys().eq(keys));
        prop_assert!(segment.tag_values(2).eq(values));
        prop_assert_eq!(segment.tag_values(9).count(), 0);
    }
}
