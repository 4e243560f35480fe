use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{Point, PointKind, Resolution, ValueKind};

fn read(head: &Head, series: u32, range: TimeRange) -> Vec<Point> {
    let mut points = Columns::default();
    head.read(
        SeriesNumber(series),
        range,
        &mut HeadScratch::default(),
        &mut points,
    );
    points.points().collect()
}

/// The newest point, which has to be the last one of a read.
fn last(head: &Head, series: u32, range: TimeRange) -> Option<Point> {
    let (mut scratch, mut points) = (HeadScratch::default(), Columns::default());
    head.last(SeriesNumber(series), range, &mut scratch, &mut points)
}

fn kinds() -> impl Strategy<Value = PointKind> {
    prop_oneof![Just(0), Just(1), Just(2), Just(4), Just(5), Just(6)]
        .prop_map(|byte| PointKind::from_byte(byte).unwrap())
}

fn values() -> impl Strategy<Value = u64> {
    prop_oneof![
        (-1000_i64..1000).prop_map(i64::cast_unsigned),
        (-1000_i32..1000).prop_map(|value| (f64::from(value) / 10.0).to_bits()),
        any::<f64>().prop_map(f64::to_bits),
        any::<u64>(),
        proptest::sample::select(vec![i64::MIN, i64::MAX, 1 << 62, -(1 << 62), 1 << 53])
            .prop_map(i64::cast_unsigned),
        proptest::sample::select(vec![
            -0.0,
            f64::MAX,
            f64::MIN,
            f64::INFINITY,
            f64::NAN,
            9e13,
            -9e13,
            0.125
        ])
        .prop_map(f64::to_bits),
    ]
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![
        (0_i64..200).prop_map(|step| 1_700_000_000_000 + step * 10_000),
        0_i64..=oxtsdb_schema::timestamp::MAX_MILLIS,
        proptest::sample::select(vec![0, oxtsdb_schema::timestamp::MAX_MILLIS]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Late and repeated instants, all kinds, any bits.
    #[test]
    fn reads_equal_a_model(
        points in vec((0_u32..6, times(), kinds(), values()), 0..400),
        shards in 1_usize..4,
        range in (times(), times()),
    ) {
        let head = Head::new(shards);
        let mut model: BTreeMap<u32, BTreeMap<i64, Point>> = BTreeMap::new();
        for points in points.chunks(70) {
            let mut batch = PointBatch::default();
            for &(series, time_ms, kind, bits) in points {
                let point = Point { time_ms, kind, bits };
                batch.push(SeriesNumber(series * 701), point);
                model.entry(series * 701).or_default().insert(time_ms, point);
            }
            head.append(&batch);
        }
        let range = TimeRange { first_ms: range.0.min(range.1), last_ms: range.0.max(range.1) };
        for series in (0..6).map(|series| series * 701) {
            let expected = model.get(&series).cloned().unwrap_or_default();
            let all: Vec<Point> = expected.values().copied().collect();
            prop_assert_eq!(last(&head, series, TimeRange::ALL), all.last().copied());
            prop_assert_eq!(read(&head, series, TimeRange::ALL), all);
            let some: Vec<Point> = expected.range(range.first_ms..=range.last_ms).map(|(_, point)| *point).collect();
            prop_assert_eq!(last(&head, series, range), some.last().copied());
            prop_assert_eq!(read(&head, series, range), some);
        }
        let metric_of = |series: SeriesNumber| MetricNumber(series.0 % 2);
        let key = |series: &u32| SeriesKey { metric: metric_of(SeriesNumber(*series)), series: SeriesNumber(*series) };
        let mut keys: Vec<SeriesKey> = model.keys().map(key).collect();
        keys.sort();
        prop_assert_eq!(head.series(metric_of), keys);
        let times = model.values().flat_map(BTreeMap::keys);
        let extent = (times.clone().min().copied(), times.max().copied());
        prop_assert_eq!(head.extent().map(|extent| (extent.first_ms, extent.last_ms)), extent.0.zip(extent.1));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Series of many chunks, in order but for some points.
    #[test]
    fn range_reads_of_long_series_equal_a_model(
        late in vec((0_usize..6000, 1_i64..6000), 0..20),
        ranges in vec((-10_i64..6010, 0_i64..1500), 1..8),
        bits in vec(any::<u16>(), 64),
    ) {
        let head = Head::new(1);
        let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
        let mut model: BTreeMap<i64, Point> = BTreeMap::new();
        let mut batch = PointBatch::default();
        for step in 0..6000 {
            let back = late.iter().find(|(at, _)| *at == step).map_or(0, |(_, back)| *back);
            let time_ms = 1_700_000_000_000 + (i64::try_from(step).unwrap() - back) * 1000;
            let point = Point { time_ms, kind, bits: u64::from(bits[step % 64]) };
            batch.push(SeriesNumber(u32::from(step % 2 == 1)), point);
            if step % 2 == 1 {
                model.insert(time_ms, point);
            }
        }
        head.append(&batch);
        for (first, length) in ranges {
            let first_ms = 1_700_000_000_000 + first * 1000;
            let range = TimeRange { first_ms, last_ms: first_ms + length * 1000 };
            let expected: Vec<Point> = model.range(range.first_ms..=range.last_ms).map(|(_, point)| *point).collect();
            prop_assert_eq!(last(&head, 1, range), expected.last().copied());
            prop_assert_eq!(read(&head, 1, range), expected);
        }
        let all: Vec<Point> = model.into_values().collect();
        prop_assert_eq!(last(&head, 1, TimeRange::ALL), all.last().copied());
        prop_assert_eq!(read(&head, 1, TimeRange::ALL), all);
    }
}

#[test]
fn range_reads_decode_the_chunks_of_the_range() {
    let head = Head::new(1);
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let mut batch = PointBatch::default();
    for step in 0..100_000_u32 {
        let time_ms = i64::from(step) * 1000;
        batch.push(
            SeriesNumber(0),
            Point {
                time_ms,
                kind,
                bits: u64::from(step % 7),
            },
        );
    }
    head.append(&batch);
    let bytes = |first: i64, last: i64| {
        let range = TimeRange {
            first_ms: first * 1000,
            last_ms: last * 1000,
        };
        head.estimate(&[SeriesNumber(0)], range).bytes
    };
    assert!(bytes(0, 99_999) >= 100_000);
    // Two chunks of the range, and the newest one.
    assert!(bytes(40_000, 40_100) <= 3 * 768);
    assert!(bytes(99_900, 99_999) <= 2 * 768);
    assert!(bytes(0, 100) <= 3 * 896);
}

#[test]
fn long_series_take_several_chunks() {
    let head = Head::new(1);
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Double);
    let mut batch = PointBatch::default();
    for step in 0..100_000_u32 {
        let bits = (f64::from(step).sqrt()).to_bits();
        let time_ms = 1_700_000_000_000 + i64::from(step) * 1000;
        batch.push(SeriesNumber(3), Point { time_ms, kind, bits });
    }
    head.append(&batch);
    let expected: Vec<Point> = batch.iter().map(|(_, point)| point).collect();
    assert_eq!(read(&head, 3, TimeRange::ALL), expected);
    assert!(
        head.byte_len() > 900_000 && head.byte_len() < 1_300_000,
        "{}",
        head.byte_len()
    );
}

#[test]
fn reads_each_series_as_it_reads_one() {
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        random >> 33
    };
    // More series than are read together; two shards have no points.
    let head = Head::new(4);
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let mut batch = PointBatch::default();
    for _ in 0..30_000 {
        let series = u32::try_from(next() % 300).unwrap();
        let (time_ms, bits) = (i64::try_from(next() % 100).unwrap() * 1000, next());
        batch.push(SeriesNumber(series * 2), Point { time_ms, kind, bits });
    }
    head.append(&batch);
    let key = |series: u32| SeriesKey {
        metric: MetricNumber(0),
        series: SeriesNumber(series),
    };
    let keys: Vec<SeriesKey> = (0..1000).map(key).collect();
    let range = TimeRange {
        first_ms: 3000,
        last_ms: 90_000,
    };
    let mut series_points = Vec::new();
    let done = head.read_each(&keys, range, &mut HeadScratch::default(), |key, points| {
        series_points.push((key.series.0, points.points().collect()));
        if key.series.0 >= 500 {
            Err(key.series.0)
        } else {
            Ok(())
        }
    });
    let expected = (0..1000).map(|series| (series, read(&head, series, range)));
    let mut expected: Vec<_> = expected.filter(|(_, points)| !points.is_empty()).collect();
    let end = expected.iter().position(|(series, _)| *series >= 500).unwrap();
    assert_eq!(done, Err(expected[end].0));
    expected.truncate(end + 1);
    assert_eq!(series_points, expected);
    assert!(series_points.len() > 200);
}

#[test]
fn threads_append_to_the_same_series() {
    let head = Head::new(3);
    let kind = PointKind::new(Resolution::Millis, ValueKind::Int);
    let point = |time_ms: u32| Point {
        time_ms: i64::from(time_ms),
        kind,
        bits: u64::from(time_ms),
    };
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let head = &head;
            scope.spawn(move || {
                for step in 0..200_u32 {
                    let mut batch = PointBatch::default();
                    for series in 0..20 {
                        batch.push(SeriesNumber(series), point(step * 4 + thread));
                    }
                    head.append(&batch);
                }
            });
        }
    });
    let expected: Vec<Point> = (0..800).map(point).collect();
    for series in 0..20 {
        assert_eq!(read(&head, series, TimeRange::ALL), expected);
    }
    assert_eq!(head.series(|_| MetricNumber(0)).len(), 20);
}

#[test]
fn reads_see_a_prefix_of_what_is_appended_meanwhile() {
    let head = Head::new(1);
    let kind = PointKind::new(Resolution::Millis, ValueKind::Double);
    let point = |time_ms: u32| Point {
        time_ms: i64::from(time_ms),
        kind,
        bits: f64::from(time_ms).sqrt().to_bits(),
    };
    let expected: Vec<Point> = (0..60_000).map(point).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for points in expected.chunks(100) {
                let mut batch = PointBatch::default();
                points
                    .iter()
                    .for_each(|point| batch.push(SeriesNumber(0), *point));
                head.append(&batch);
            }
        });
        let mut seen = 0;
        while seen < expected.len() {
            let points = read(&head, 0, TimeRange::ALL);
            assert_eq!(points, expected[..points.len()]);
            assert!(points.len() >= seen);
            seen = points.len();
        }
    });
}

/// The memory of few points decides how many series a head takes.
#[test]
fn short_series_take_little_memory() {
    let head = Head::new(1);
    let kind = PointKind::new(Resolution::Seconds, ValueKind::Int);
    let mut random = 1_u64;
    for step in 0..25_u32 {
        let mut batch = PointBatch::default();
        for series in 0..20_000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let time_ms = 1_700_000_000_000 + i64::from(step) * 10_000;
            let bits = 1000 + (random >> 33) % 200;
            batch.push(SeriesNumber(series), Point { time_ms, kind, bits });
        }
        head.append(&batch);
    }
    let bytes = head.byte_len() / 20_000;
    assert!((80..110).contains(&bytes), "{bytes}");
}
