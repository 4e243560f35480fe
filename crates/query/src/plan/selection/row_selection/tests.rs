use oxtsdb_row_store::RowBuilder;
use oxtsdb_schema::UidWidth;
use proptest::prelude::*;

use super::*;
use crate::testing::NumberedNames;

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
fn filters_require_their_key() {
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
    let selection = Selection::from_tests(&layout, tests, None);
    assert!(selection.may_match(&key(&[(1, 4), (2, 9)])));
    assert!(!selection.may_match(&key(&[(1, 5), (2, 9)])));
    assert!(!selection.may_match(&key(&[(1, 4)])));
    assert!(!selection.may_match(&key(&[(2, 4)])));
}

#[test]
fn filters_declare_whether_most_rows_match() {
    let keeps_most = |test| {
        let tests = vec![TagTest { tagk: tagk(1), test }];
        let selection = Selection::from_tests(&RowKeyLayout::default(), tests, None);
        selection.row_filter().unwrap().keeps_most()
    };
    assert!(keeps_most(ValueTest::NotIn(values(&[5]))));
    assert!(!keeps_most(ValueTest::In(values(&[5]))));
    let by_name = |matched: &[u64], rejected: &[u64]| {
        let test = NameTest::new(Box::new(|_| true), Arc::default());
        let uids = |numbers: &[u64], passes| {
            values(numbers)
                .into_iter()
                .map(move |value| (Uid::from(value), Some(passes)))
        };
        test.matches.add(uids(matched, true).chain(uids(rejected, false)));
        keeps_most(ValueTest::Name(test))
    };
    assert!(by_name(&[1, 2], &[3]));
    assert!(!by_name(&[1], &[2, 3]));
    assert!(!by_name(&[], &[]), "no name is resolved");
}

#[test]
fn explicit_tags_reject_other_keys() {
    let tests = || {
        vec![TagTest {
            tagk: tagk(1),
            test: ValueTest::In(values(&[4, 5])),
        }]
    };
    let layout = RowKeyLayout::default();
    let (loose, explicit) = (
        Selection::from_tests(&layout, tests(), None),
        Selection::from_tests(&layout, tests(), Some(1)),
    );
    let two_tags = key(&[(1, 4), (2, 9)]);
    assert!(loose.may_match(&two_tags) && !explicit.may_match(&two_tags));
    assert!(explicit.may_match(&key(&[(1, 5)])));
}

#[test]
fn matches_series_by_metric_and_tags() {
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, 4];
    let selection = Selection::from_series(&RowKeyLayout::default(), [tsuid.as_slice()], Vec::new());
    assert!(selection.may_match(&key(&[(1, 4)])));
    assert!(!selection.may_match(&key(&[(1, 5)])));
    assert!(!selection.may_match(&key(&[(1, 4), (2, 9)])));
    let tests = vec![TagTest {
        tagk: tagk(1),
        test: ValueTest::NotIn(values(&[4])),
    }];
    let filtered = Selection::from_series(&RowKeyLayout::default(), [tsuid.as_slice()], tests);
    assert!(!filtered.may_match(&key(&[(1, 4)])));
}

#[test]
fn a_key_that_does_not_match_has_a_seek_target() {
    let layout = RowKeyLayout::default();
    let tests = vec![TagTest {
        tagk: tagk(2),
        test: ValueTest::In(values(&[7, 9])),
    }];
    let selection = Selection::from_tests(&layout, tests, None);
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
    fn hints_skip_no_matching_row(
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
        let mut selection = Selection::from_tests(&RowKeyLayout::default(), tests, count);
        if let Some(known) = known {
            let series = known.iter().map(|tags| key(&tags.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>())[7..].into());
            let series: std::collections::BTreeSet<Box<[u8]>> = series.collect();
            selection = selection.with_resolved_series(Vec::from_iter(series));
        }
        let mut rows: Vec<Vec<u8>> =
            rows.iter().map(|tags| key(&tags.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>())).collect();
        rows.sort();
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| !selection.may_match(row)) {
            let Some(target) = selection.seek_after(row) else { continue };
            prop_assert!(target > *row);
            for passed_over in rows[index..].iter().filter(|later| **later < target) {
                prop_assert!(!selection.may_match(passed_over), "{row:?} {passed_over:?} {target:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn rows_of_resolved_series_are_in_their_ranges(
        rows in prop::collection::btree_set((0_u32..4, 1_u8..6), 1..20),
        known in prop::collection::btree_set(1_u8..6, 0..4),
        (start, stop) in ((0_u32..4, 0_u8..7), (0_u32..5, 0_u8..7)),
    ) {
        // An hour, and the value of a tag; 0: no tag.
        let key = |(hour, value): (u32, u8)| {
            let tags: &[u8] = if value == 0 { &[] } else { &[0, 0, 1, 0, 0, value] };
            [&[0, 0, 1], (hour * HOUR_SECONDS).to_be_bytes().as_slice(), tags].concat()
        };
        let series: Vec<Box<[u8]>> = known.iter().map(|value| key((0, *value))[7..].into()).collect();
        let filter = Selection::from_tests(&RowKeyLayout::default(), Vec::new(), None).with_resolved_series(series);
        let filter = filter.row_filter().unwrap();
        let (start, stop) = (key(start), key(stop));
        let ranges = filter.ranges(&start, &stop, 100).unwrap_or_default();
        prop_assert!(ranges.is_sorted() && ranges.windows(2).all(|two| two[0].1 <= two[1].0));
        for row in rows.into_iter().map(key) {
            let is_wanted = row >= start && row < stop && filter.keeps(&row);
            let is_in_a_range = ranges.iter().any(|(first, behind)| row >= *first && row < *behind);
            prop_assert_eq!(is_in_a_range, is_wanted, "{:?}", row);
        }
        if known.len() > 1 {
            prop_assert_eq!(filter.ranges(&key((0, 0)), &key((4, 0)), 4), None, "more than 4 rows");
        }
    }
}

#[tokio::test]
async fn drops_rows_read_before_their_value_was_resolved() {
    let tests = vec![TagTest {
        tagk: tagk(1),
        test: ValueTest::Name(NameTest::new(Box::new(|name| name == "yes"), Arc::default())),
    }];
    let selection = Selection::from_tests(&RowKeyLayout::default(), tests, None);
    let row = || {
        let mut builder = RowBuilder::new(&key(&[(1, 4)]), Arc::from(["t".to_owned()]));
        builder.push(0, b"q", 1, b"v");
        builder.finish().unwrap()
    };
    // Both batches came from the store before one of them was looked at.
    let (mut first, mut second) = (vec![row()], vec![row()]);
    for rows in [&mut first, &mut second] {
        selection
            .resolve_and_filter(rows, &NumberedNames::default(), None)
            .await
            .unwrap();
        assert!(rows.is_empty());
    }
}

#[test]
fn unresolved_names_pass() {
    let test = NameTest::new(Box::new(|name| name.starts_with('a')), Arc::default());
    let rejected = values(&[5]).into_iter().map(|value| (value.into(), Some(false)));
    test.matches.add(rejected);
    let tests = vec![TagTest {
        tagk: tagk(1),
        test: ValueTest::Name(test),
    }];
    let selection = Selection::from_tests(&RowKeyLayout::default(), tests, None);
    assert!(selection.may_match(&key(&[(1, 4)])));
    assert!(!selection.may_match(&key(&[(1, 5)])));
    assert!(
        selection.may_match(&[1, 2]),
        "the decoder rejects a truncated key"
    );
}
