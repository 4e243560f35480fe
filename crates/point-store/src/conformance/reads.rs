//! Ranges, and the form of read results.

use futures::StreamExt as _;

use super::fixture::{Fixture, int, millis, seconds};
use crate::{Columns, Point, ReadRequest, SeriesNumber, TimeRange};
use oxtsdb_schema::Value;

pub(super) async fn range_includes_both_ends(fixture: &Fixture<'_>) {
    let series = fixture.series(1)[0];
    let points: Vec<_> = (0..5).map(|day| int(day * 86_400, day)).collect();
    let appended: Vec<_> = points.iter().map(|point| (series, *point)).collect();
    fixture.append(&appended).await;
    let days = |first: i64, last: i64| seconds(first * 86_400, last * 86_400);
    let one_ms_less = |range: TimeRange| TimeRange {
        first_ms: range.first_ms + 1,
        last_ms: range.last_ms - 1,
    };
    for (range, expected) in [
        (days(1, 3), &points[1..=3]),
        (one_ms_less(days(1, 3)), &points[2..3]),
        (days(2, 2), &points[2..3]),
        (one_ms_less(days(2, 3)), &[]),
        (days(5, 9), &[]),
        (days(3, 1), &[]),
        (TimeRange::ALL, &points[..]),
    ] {
        let read = fixture.read(&[series], range).await;
        let read: Vec<Point> = read.into_iter().flat_map(|(_, points)| points).collect();
        assert_eq!(read, expected, "{range:?}");
    }
}

pub(super) async fn series_are_returned_in_the_order_of_the_request(fixture: &Fixture<'_>) {
    let series = fixture.series(20);
    let points: Vec<_> = series.iter().map(|series| (*series, int(1, 1))).collect();
    fixture.append(&points).await;
    let mut requested = series.clone();
    requested.rotate_left(7);
    requested.reverse();
    requested.truncate(15);
    let read = fixture.read(&requested, TimeRange::ALL).await;
    assert!(read.iter().map(|(series, _)| series).eq(&requested));
}

pub(super) async fn series_without_points_are_absent(fixture: &Fixture<'_>) {
    let series = fixture.series(3);
    assert!(fixture.read(&series, TimeRange::ALL).await.is_empty());
    fixture
        .append(&[(series[1], int(1, 1)), (series[2], int(9, 1))])
        .await;
    assert!(fixture.read(&[], TimeRange::ALL).await.is_empty());
    let unknown = SeriesNumber(1_000_000);
    let requested = [series[0], series[1], unknown, series[2]];
    let read = fixture.read(&requested, seconds(0, 5)).await;
    assert_eq!(read, [(series[1], vec![int(1, 1)])]);
    let mut reader = fixture.store.reader(seconds(0, 5)).unwrap();
    let mut columns = Columns::default();
    for (series, count) in [
        (series[1], 1),
        (series[0], 0),
        (series[1], 1),
        (unknown, 0),
        (series[2], 0),
    ] {
        reader.read(series, &mut columns).unwrap();
        assert_eq!(columns.len(), count, "{series:?}");
    }
}

pub(super) async fn estimates_follow_series_and_range(fixture: &Fixture<'_>) {
    if !fixture.subject.promises().has_index {
        return;
    }
    let series = fixture.series(10);
    let estimate = |series: &[SeriesNumber], range| fixture.store.estimate(series, range).points;
    assert_eq!(estimate(&series, TimeRange::ALL), 0, "no points");
    let times = (0..1000).flat_map(|step| series.iter().map(move |series| (*series, int(step, step % 7))));
    fixture.append(&times.collect::<Vec<_>>()).await;
    assert!(fixture.store.reader(seconds(1000, 2000)).unwrap().is_empty());
    let about = |expected: u64| expected / 4..=expected * 4;
    assert!(about(10_000).contains(&estimate(&series, TimeRange::ALL)));
    assert!(about(1_000).contains(&estimate(&series[4..5], TimeRange::ALL)));
    assert_eq!(estimate(&series, seconds(10_000, 20_000)), 0, "behind the points");
    assert_eq!(estimate(&[], TimeRange::ALL), 0);
}

pub(super) async fn long_series_ascends(fixture: &Fixture<'_>) {
    let [long, short] = fixture.series(2)[..] else {
        panic!("two series")
    };
    let points: Vec<Point> = (0..50_000)
        .map(|n| millis(n * 1_777, Value::Int(n % 9)))
        .collect();
    for points in points.chunks(10_000) {
        let appended: Vec<_> = points.iter().map(|point| (long, *point)).collect();
        fixture.append(&appended).await;
    }
    fixture.append(&[(short, int(1, 1))]).await;
    let read = fixture.read(&[long, short], TimeRange::ALL).await;
    assert_eq!(read[0].1, points);
    assert_eq!(read[1], (short, vec![int(1, 1)]));
    let range = TimeRange {
        first_ms: points[20_001].time_ms,
        last_ms: points[20_003].time_ms,
    };
    assert_eq!(fixture.read(&[long], range).await[0].1, points[20_001..=20_003]);
}

pub(super) async fn dropped_read_ends(fixture: &Fixture<'_>) {
    let series = fixture.series(100);
    let points: Vec<_> = series.iter().map(|series| (*series, int(1, 1))).collect();
    fixture.append(&points).await;
    let mut stream = fixture.store.read(ReadRequest {
        series: series.clone(),
        range: TimeRange::ALL,
    });
    assert!(stream.next().await.is_some());
    drop(stream);
    assert_eq!(fixture.read(&series, TimeRange::ALL).await.len(), 100);
}

pub(super) async fn last_points_are_the_newest_in_the_range(fixture: &Fixture<'_>) {
    let store = &fixture.store;
    let [early, late, none, deleted] = fixture.series(4)[..] else {
        panic!("four series")
    };
    let day = 86_400;
    fixture
        .append(&[(early, int(5, 1)), (late, int(3 * day, 2)), (deleted, int(9, 3))])
        .await;
    // Late arrivals, and another value of the newest instant.
    fixture.append(&[(late, int(day, 4)), (early, int(2, 5))]).await;
    fixture.append(&[(early, int(5, 6))]).await;
    store.delete(&[deleted], TimeRange::ALL).await.unwrap();
    let unknown = SeriesNumber(1_000_000);
    let requested = [unknown, late, none, early, deleted];
    for (range, expected) in [
        (
            TimeRange::ALL,
            [None, Some(int(3 * day, 2)), None, Some(int(5, 6)), None],
        ),
        (
            seconds(0, 3 * day - 1),
            [None, Some(int(day, 4)), None, Some(int(5, 6)), None],
        ),
        (seconds(2, 4), [None, None, None, Some(int(2, 5)), None]),
        (seconds(6, day), [None, Some(int(day, 4)), None, None, None]),
        (seconds(4 * day, 9 * day), [None; 5]),
        (seconds(9, 1), [None; 5]),
    ] {
        assert_eq!(
            store.last(&requested, range).await.unwrap(),
            expected,
            "{range:?}"
        );
    }
    assert!(store.last(&[], TimeRange::ALL).await.unwrap().is_empty());
}
