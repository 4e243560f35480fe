//! Appends and which point wins.

use oxtsdb_schema::{Timestamp, Value, timestamp};

use super::fixture::{Fixture, START_MS, batch, int, millis};
use crate::{Point, PointBatch, PointKind, PointStoreError, SeriesNumber, TimeRange};

pub(super) async fn points_of_all_kinds_are_readable(fixture: &Fixture<'_>) {
    let series = fixture.series(1)[0];
    let values = [
        Value::Int(0),
        Value::Int(-1),
        Value::Int(i64::MAX),
        Value::Int(i64::MIN),
        Value::Float(1.5),
        Value::Float(-0.0),
        Value::Double(0.1),
        Value::Double(f64::MIN_POSITIVE),
    ];
    let mut points = vec![
        Point::new(Timestamp::from_seconds(0), &Value::Int(1)),
        Point::new(Timestamp::from_millis(1).unwrap(), &Value::Int(1)),
    ];
    for (offset, value) in (0..).zip(values) {
        let seconds = u32::try_from(START_MS / 1000).unwrap() + offset;
        points.push(Point::new(Timestamp::from_seconds(seconds), &value));
        // A whole second that was sent as milliseconds, and one that is not whole.
        points.push(millis(100_000 + i64::from(offset) * 1000, value));
        points.push(millis(200_000 + i64::from(offset) * 1001, value));
    }
    let last = Timestamp::from_millis(timestamp::MAX_MILLIS).unwrap();
    points.push(Point::new(last, &Value::Int(2)));
    points.sort_by_key(|point| point.time_ms);
    let appended: Vec<_> = points.iter().map(|point| (series, *point)).collect();
    fixture.append(&appended).await;
    assert_eq!(fixture.points(series).await, points);
}

pub(super) async fn rejects_batches_that_cannot_be_stored(fixture: &Fixture<'_>) {
    let series = fixture.series(1)[0];
    let at = |time_ms| Point { time_ms, ..int(0, 1) };
    let unknown = SeriesNumber(series.0 + 1);
    for wrong in [
        (series, at(timestamp::MAX_MILLIS + 1)),
        (series, at(i64::MAX)),
        (series, at(-1)),
        (series, at(i64::MIN)),
        (unknown, int(1, 1)),
    ] {
        let appended = fixture.store.append(batch(&[(series, int(2, 1)), wrong])).await;
        assert!(
            matches!(appended, Err(PointStoreError::Invalid(_))),
            "{wrong:?}: {appended:?}"
        );
    }
    fixture.append(&[(series, int(3, 1))]).await;
    assert_eq!(fixture.points(series).await, [int(3, 1)]);
    fixture.store.check_health().await.unwrap();
}

pub(super) async fn keeps_the_bits_of_all_values(fixture: &Fixture<'_>) {
    if !fixture.subject.promises().replaces_kinds {
        return;
    }
    let series = fixture.series(3);
    let [ints, floats, doubles] = [0, 1, 2].map(|kind| PointKind::from_byte(kind).unwrap());
    let mut bits = 0x0123_4567_89ab_cdef_u64;
    let mut appended = Vec::new();
    for second in 0..2_000 {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        // Random bits: large steps, NaNs with payloads, subnormal numbers.
        let point = |kind, bits| Point {
            kind,
            bits,
            ..int(second, 0)
        };
        appended.push((series[0], point(ints, bits)));
        appended.push((
            series[1],
            point(floats, bits & !0x1fff_ffff | 0x4000_0000_0000_0000),
        ));
        appended.push((series[2], point(doubles, bits)));
    }
    // Floats are widened, so that their exponents are in the range of floats.
    for (_, point) in appended.iter_mut().filter(|(number, _)| *number == series[1]) {
        let float = Value::float(f32::from_bits((point.bits >> 32) as u32)).unwrap_or(Value::Float(0.5));
        point.bits = Point::new(Timestamp::from_seconds(0), &float).bits;
    }
    for (second, special) in [(3_000, 0x7ff8_1234_5678_9abc), (3_001, 0xfff0_0000_0000_0000)] {
        let point = Point {
            kind: doubles,
            bits: special,
            ..int(second, 0)
        };
        appended.push((series[2], point));
    }
    fixture.append(&appended).await;
    for series in series {
        let points = appended.iter().filter(|(number, _)| *number == series);
        let expected: Vec<Point> = points.map(|(_, point)| *point).collect();
        assert_eq!(fixture.points(series).await, expected);
    }
}

pub(super) async fn empty_batch_has_no_effect(fixture: &Fixture<'_>) {
    fixture.store.append(PointBatch::default()).await.unwrap();
    let series = fixture.series(2);
    assert!(fixture.read(&series, TimeRange::ALL).await.is_empty());
}

pub(super) async fn later_point_of_a_batch_wins(fixture: &Fixture<'_>) {
    let [a, b] = fixture.series(2)[..] else { panic!() };
    fixture
        .append(&[(a, int(1, 1)), (b, int(1, 5)), (a, int(1, 2)), (a, int(1, 3))])
        .await;
    assert_eq!(fixture.points(a).await, [int(1, 3)]);
    assert_eq!(fixture.points(b).await, [int(1, 5)]);
}

pub(super) async fn newest_point_wins_with_another_kind(fixture: &Fixture<'_>) {
    if !fixture.subject.promises().replaces_kinds {
        return;
    }
    let series = fixture.series(1)[0];
    let versions = [
        int(1, 1),
        millis(1_000, Value::Double(0.5)),
        int(1, 70_000),
        millis(1_000, Value::Float(2.0)),
        millis(1_000, Value::Int(1)),
    ];
    for newest in versions {
        fixture.append(&[(series, newest)]).await;
        assert_eq!(fixture.points(series).await, [newest]);
    }
}

pub(super) async fn points_out_of_order_are_read_in_order(fixture: &Fixture<'_>) {
    let series = fixture.series(1)[0];
    for second in [50, 10, 90, 0, 60, 20, 86_400 * 3, 86_400] {
        fixture
            .append(&[(series, int(second + 1, second)), (series, int(second, second))])
            .await;
    }
    let points = fixture.points(series).await;
    let expected = [0, 10, 20, 50, 60, 90, 86_400, 86_400 * 3];
    let expected = expected.map(|second| [int(second, second), int(second + 1, second)]);
    assert_eq!(points, expected.as_flattened());
}

pub(super) async fn appends_take_effect_in_the_order_of_calls(fixture: &Fixture<'_>) {
    let series = fixture.series(1)[0];
    for round in 0..10 {
        let mut appends: Vec<_> = (0..50)
            .map(|value| fixture.store.append(batch(&[(series, int(round, value))])))
            .collect();
        // The order of waiting does not matter.
        appends.reverse();
        for append in appends {
            append.await.unwrap();
        }
        assert_eq!(fixture.points(series).await.last(), Some(&int(round, 49)));
    }
}

pub(super) async fn dropped_append_keeps_its_place(fixture: &Fixture<'_>) {
    if !fixture.subject.promises().keeps_dropped_appends {
        return;
    }
    let series = fixture.series(1)[0];
    drop(
        fixture
            .store
            .append(batch(&[(series, int(1, 1)), (series, int(2, 1))])),
    );
    fixture.append(&[(series, int(1, 2))]).await;
    assert_eq!(fixture.points(series).await, [int(1, 2), int(2, 1)]);
}

pub(super) async fn many_points_of_many_series(fixture: &Fixture<'_>) {
    let series = fixture.series(500);
    let mut appends = Vec::new();
    for second in 0..200 {
        let points = (0..)
            .zip(&series)
            .map(|(n, series)| (*series, int(second * 600, n * second)));
        let points: Vec<_> = points.collect();
        appends.push(fixture.store.append(batch(&points)));
    }
    futures::future::try_join_all(appends).await.unwrap();
    let read = fixture.read(&series, TimeRange::ALL).await;
    assert!(read.iter().map(|(series, _)| series).eq(&series));
    for (n, (_, points)) in (0..).zip(read) {
        let expected: Vec<_> = (0..200).map(|second| int(second * 600, n * second)).collect();
        assert_eq!(points, expected);
    }
}
