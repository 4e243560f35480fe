//! Deletes of ranges.

use super::fixture::{Fixture, batch, int, seconds};
use crate::TimeRange;

pub(super) async fn deletes_a_range_of_some_series(fixture: &Fixture<'_>) {
    let series = fixture.series(3);
    let points: Vec<_> = (0..10)
        .flat_map(|hour| {
            series
                .iter()
                .map(move |series| (*series, int(hour * 3_600, hour)))
        })
        .collect();
    fixture.append(&points).await;
    fixture
        .store
        .delete(&series[..2], seconds(2 * 3_600, 5 * 3_600))
        .await
        .unwrap();
    for (place, series) in series.iter().enumerate() {
        let left = (0..10).filter(|hour| place == 2 || !(2..=5).contains(hour));
        let left: Vec<_> = left.map(|hour| int(hour * 3_600, hour)).collect();
        assert_eq!(fixture.points(*series).await, left);
    }
    fixture.store.delete(&series, TimeRange::ALL).await.unwrap();
    assert!(fixture.read(&series, TimeRange::ALL).await.is_empty());
}

pub(super) async fn point_after_a_delete_is_visible(fixture: &Fixture<'_>) {
    let series = fixture.series(1);
    for round in 0..20 {
        let both = [(series[0], int(1, round)), (series[0], int(2, round))];
        // The append is submitted before the delete begins.
        let append = fixture.store.append(batch(&both));
        append.await.unwrap();
        fixture.store.delete(&series, seconds(1, 2)).await.unwrap();
        assert!(fixture.points(series[0]).await.is_empty(), "round {round}");
        fixture.append(&both[..1]).await;
        assert_eq!(fixture.points(series[0]).await, [int(1, round)]);
    }
}

pub(super) async fn delete_of_nothing_has_no_effect(fixture: &Fixture<'_>) {
    let series = fixture.series(2);
    fixture.append(&[(series[0], int(1, 1))]).await;
    for (series, range) in [
        (&[][..], TimeRange::ALL),
        (&series[1..], TimeRange::ALL),
        (&series[..], seconds(2, 9)),
        (&series[..], seconds(9, 0)),
    ] {
        fixture.store.delete(series, range).await.unwrap();
    }
    assert_eq!(fixture.points(series[0]).await, [int(1, 1)]);
}

pub(super) async fn series_stay_known_without_points(fixture: &Fixture<'_>) {
    let series = fixture.series(2);
    fixture.append(&[(series[0], int(1, 1))]).await;
    fixture.store.delete(&series, TimeRange::ALL).await.unwrap();
    assert_eq!(fixture.series(2), series);
    assert_eq!(fixture.store.metric_series(&[0, 0, 1]), series);
}
