//! Health, closing and opening again.

use futures::TryStreamExt as _;

use super::fixture::{Fixture, batch, int, key, read, seconds};
use crate::{PointStoreError, ReadRequest, TimeRange};

pub(super) async fn store_is_healthy(fixture: &Fixture<'_>) {
    fixture.store.check_health().await.unwrap();
    assert!(fixture.store.damage().is_empty());
}

pub(super) async fn closed_store_is_unavailable(fixture: &Fixture<'_>) {
    let series = fixture.series(1);
    fixture.append(&[(series[0], int(1, 1))]).await;
    let store = &fixture.store;
    store.close().await.unwrap();
    let request = ReadRequest {
        series: series.clone(),
        range: TimeRange::ALL,
    };
    let errors = [
        store.append(batch(&[(series[0], int(2, 2))])).await.err(),
        store.read(request).try_collect::<Vec<_>>().await.err(),
        store.last(&series, TimeRange::ALL).await.err(),
        store.delete(&series, TimeRange::ALL).await.err(),
        store.check_health().await.err(),
    ];
    for (call, error) in errors.into_iter().enumerate() {
        assert!(
            matches!(error, Some(PointStoreError::Unavailable(_))),
            "call {call}: {error:?}"
        );
    }
}

pub(super) async fn reopened_store_has_series_and_points(fixture: &Fixture<'_>) {
    let series = fixture.series(100);
    let day = |day: i64| series.iter().map(move |series| (*series, int(day * 86_400, day)));
    for number in 0..5 {
        fixture.append(&day(number).collect::<Vec<_>>()).await;
    }
    let expected = fixture.read(&series, TimeRange::ALL).await;
    for _ in 0..3 {
        fixture.store.close().await.unwrap();
        let Some(store) = fixture.subject.reopen().await else {
            return;
        };
        assert_eq!(read(&*store, &series, TimeRange::ALL).await, expected);
        assert_eq!(store.metric_series(&[0, 0, 1]), series);
        assert_eq!(store.find(&key(1, 99)), Some(series[99]));
        let next = store.numbers(&[&key(2, 1)]).unwrap()[0];
        assert_eq!(next.index(), series.len(), "numbers go on where they ended");
        store.append(batch(&[(next, int(1, 1))])).await.unwrap();
        assert_eq!(read(&*store, &[next], TimeRange::ALL).await.len(), 1);
        store.close().await.unwrap();
    }
}

pub(super) async fn reopened_store_keeps_deletes(fixture: &Fixture<'_>) {
    let series = fixture.series(2);
    let points = (0..10).flat_map(|n| series.iter().map(move |series| (*series, int(n, n))));
    let points: Vec<_> = points.collect();
    fixture.append(&points).await;
    fixture.store.delete(&series[..1], seconds(0, 4)).await.unwrap();
    fixture
        .append(&[(series[0], int(3, 30)), (series[1], int(4, 40))])
        .await;
    let expected = fixture.read(&series, TimeRange::ALL).await;
    assert_eq!(expected[0].1.len(), 6);
    fixture.store.close().await.unwrap();
    if let Some(store) = fixture.subject.reopen().await {
        assert_eq!(read(&*store, &series, TimeRange::ALL).await, expected);
    }
}

pub(super) async fn reopened_store_has_series_of_an_empty_append(fixture: &Fixture<'_>) {
    let series = fixture.series(3);
    fixture.append(&[]).await;
    fixture.store.close().await.unwrap();
    if let Some(store) = fixture.subject.reopen().await {
        assert_eq!(store.metric_series(&[0, 0, 1]), series);
        assert_eq!(store.find(&key(1, 2)), Some(series[2]));
    }
}
