//! Numbers and lists of series.

use std::sync::Arc;

use oxtsdb_schema::{TagkUid, TagvUid};

use super::fixture::{Fixture, key};
use crate::{PointStoreError, SeriesNumber, TagTest};

pub(super) async fn numbers_are_dense_and_stable(fixture: &Fixture<'_>) {
    let store = &fixture.store;
    let [a, b, c] = [key(1, 1), key(2, 1), key(1, 0)];
    assert_eq!(store.find(&a), None);
    assert_eq!(
        store.numbers(&[&a, &b]).unwrap(),
        [SeriesNumber(0), SeriesNumber(1)]
    );
    let numbers = store.numbers(&[&c, &b, &c, &a]).unwrap();
    assert_eq!(
        numbers,
        [2, 1, 2, 0].map(SeriesNumber),
        "a key has one number, new ones get the next"
    );
    assert!(store.numbers(&[]).unwrap().is_empty());
    assert_eq!(store.find(&c), Some(SeriesNumber(2)));
    assert_eq!(store.find(&key(1, 2)), None, "finding gives no number");
    let mut stored_key = b"replaced".to_vec();
    for (number, key) in [(0, &a), (1, &b), (2, &c)] {
        assert!(store.key(SeriesNumber(number), &mut stored_key));
        assert_eq!(stored_key, *key);
    }
    assert!(!store.key(SeriesNumber(3), &mut stored_key));
}

pub(super) async fn keys_that_are_no_tsuids_are_rejected(fixture: &Fixture<'_>) {
    let good = key(1, 1);
    let descending = [&good[..], &good[3..]].concat();
    for bad in [&[][..], &good[..3], &good[..8], &descending] {
        let error = fixture.store.numbers(&[&good, bad]).unwrap_err();
        assert!(matches!(error, PointStoreError::Invalid(_)), "{bad:?}: {error}");
        assert_eq!(fixture.store.find(bad), None);
    }
}

pub(super) async fn lists_metrics_and_their_series_in_order_of_keys(fixture: &Fixture<'_>) {
    let store = &fixture.store;
    assert!(store.metrics().is_empty());
    let mut keys: Vec<_> = (0..300).map(|tagv| key(7, tagv * 77 % 307)).collect();
    keys.extend([key(200, 1), key(8, 2), key(8, 1)]);
    // One with another tag before and one with two tags.
    keys.push(vec![0, 0, 8, 0, 0, 0, 9, 9, 9]);
    keys.push([&key(8, 1)[..], &[0, 0, 2, 0, 0, 1]].concat());
    for keys in keys.chunks(100) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        store.numbers(&keys).unwrap();
        // Lists that were read before include later series.
        store.metric_series(&[0, 0, 7]);
    }
    assert_eq!(store.metrics(), [[0, 0, 7], [0, 0, 8], [0, 0, 200]]);
    for metric in [7, 8, 200] {
        let mut expected: Vec<_> = keys.iter().filter(|key| key[2] == metric).cloned().collect();
        expected.sort();
        let listed: Vec<_> = store
            .metric_series(&[0, 0, metric])
            .into_iter()
            .map(|series| {
                let mut key = Vec::new();
                assert!(store.key(series, &mut key));
                key
            })
            .collect();
        assert_eq!(listed, expected);
    }
    assert!(store.metric_series(&[0, 0, 9]).is_empty());
}

pub(super) async fn selects_series_by_their_tags(fixture: &Fixture<'_>) {
    let store = &fixture.store;
    let tagk = |number: u8| TagkUid::from_bytes(&[0, 0, number]).unwrap();
    let tagv = |number: u8| TagvUid::from_bytes(&[0, 0, number]).unwrap();
    // Each has tag 1; every third tag 2, too.
    let mut keys: Vec<Vec<u8>> = (0..30)
        .map(|number| match number % 3 {
            0 => [
                &key(7, number % 5)[..],
                &[0, 0, 2, 0, 0, 9 - u8::try_from(number % 2).unwrap()],
            ]
            .concat(),
            _ => key(7, number % 5),
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys.push(key(8, 1));
    let numbers = store
        .numbers(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>())
        .unwrap();
    let value_of = |key: &[u8], number: u8| {
        let tags = key[3..].chunks(6);
        tags.filter(|tag| tag[2] == number).map(|tag| tag[5]).next()
    };
    type Passes = fn(Option<u8>, Option<u8>) -> bool;
    let cases: [(Vec<TagTest>, Passes); 7] = [
        (vec![], |_, _| true),
        (
            vec![TagTest::In(tagk(1), vec![tagv(1), tagv(3), tagv(99)])],
            |one, _| one == Some(1) || one == Some(3),
        ),
        (vec![TagTest::NotIn(tagk(2), vec![tagv(8)])], |_, two| {
            two == Some(9)
        }),
        (
            vec![TagTest::Has(tagk(2)), TagTest::In(tagk(1), vec![tagv(0)])],
            |one, two| one == Some(0) && two.is_some(),
        ),
        (vec![TagTest::Lacks(tagk(2))], |_, two| two.is_none()),
        (vec![TagTest::Exactly(vec![tagk(1)])], |one, two| {
            one.is_some() && two.is_none()
        }),
        (vec![TagTest::Has(tagk(3))], |_, _| false),
    ];
    for (tests, passes) in &cases {
        let of_metric = keys.iter().zip(&numbers).filter(|(key, _)| key[2] == 7);
        let passing = of_metric.filter(|(key, _)| passes(value_of(key, 1), value_of(key, 2)));
        let mut expected: Vec<SeriesNumber> = passing.map(|(_, number)| *number).collect();
        expected.sort_unstable();
        assert_eq!(store.select(&[0, 0, 7], tests), expected, "{tests:?}");
        assert!(store.select(&[0, 0, 9], tests).is_empty());
    }
    let count = |metric| {
        (
            store.series_count(metric),
            store.metric_series(metric).len() as u64,
        )
    };
    let (of_metric, listed) = count(&[0, 0, 7]);
    assert!(of_metric == listed && of_metric > 0);
    assert_eq!(count(&[0, 0, 9]), (0, 0));
    assert_eq!(store.tag_values(&[0, 0, 7], tagk(1)), [0, 1, 2, 3, 4].map(tagv));
    assert_eq!(store.tag_values(&[0, 0, 7], tagk(2)), [8, 9].map(tagv));
    assert!(store.tag_values(&[0, 0, 7], tagk(3)).is_empty());
    assert!(store.tag_values(&[0, 0, 9], tagk(1)).is_empty());
    // Later series are included.
    let later = store.numbers(&[&key(7, 77)]).unwrap();
    assert_eq!(store.series_count(&[0, 0, 7]), of_metric + 1);
    assert_eq!(
        store.select(&[0, 0, 7], &[TagTest::In(tagk(1), vec![tagv(77)])]),
        later
    );
}

pub(super) async fn concurrent_callers_get_the_same_numbers(fixture: &Fixture<'_>) {
    let callers = (0..4).map(|caller: u16| {
        let store = Arc::clone(&fixture.store);
        tokio::task::spawn_blocking(move || {
            let keys = (0..1_000).map(|tagv| key(1, (tagv + caller * 250) % 1_000));
            let mut numbers: Vec<_> = keys
                .map(|key| (store.numbers(&[&key]).unwrap()[0], key))
                .collect();
            numbers.sort_unstable();
            numbers
        })
    });
    let numbers = futures::future::try_join_all(callers).await.unwrap();
    assert!(numbers.iter().all(|other| *other == numbers[0]));
    let given = numbers[0].iter().map(|(number, _)| number.0);
    assert!(given.eq(0..1_000), "dense from 0");
}
