use super::*;

fn ints(points: &[(i64, i64)]) -> Points {
    points
        .iter()
        .map(|(time, value)| (*time, Number::Int(*value)))
        .collect()
}

/// A computation that is not cancelled.
fn goes_on(_: u64) -> bool {
    true
}

/// As OpenTSDB aggregates.
fn by(aggregator: Aggregator, holds: bool) -> Aggregation {
    Aggregation {
        aggregator,
        holds,
        floats_to_come_count: true,
    }
}

fn run(name: &str, series: &[Points], start: i64, end: i64) -> Vec<(i64, Number)> {
    let series: Vec<_> = series
        .iter()
        .map(|points| Series { points, before: None })
        .collect();
    let aggregator = Aggregator::parse(name).expect(name);
    aggregate(&series, by(aggregator, false), (start, end), &goes_on)
        .iter()
        .collect()
}

fn int_pairs(pairs: &[(i64, i64)]) -> Vec<(i64, Number)> {
    pairs
        .iter()
        .map(|(time, value)| (*time, Number::Int(*value)))
        .collect()
}

#[test]
fn series_take_part_from_their_first_point_to_their_last() {
    let series = [ints(&[(0, 1), (20, 4), (40, 9)]), ints(&[(10, 10), (30, 21)])];
    let expect = |name: &str, values: [i64; 5]| {
        let pairs: Vec<_> = [0, 10, 20, 30, 40].into_iter().zip(values).collect();
        assert_eq!(run(name, &series, 0, 100), int_pairs(&pairs), "{name}");
    };
    expect("sum", [1, 12, 19, 27, 9]);
    expect("avg", [1, 6, 9, 13, 9]);
    expect("count", [1, 2, 2, 2, 1]);
    expect("zimsum", [1, 10, 4, 21, 9]);
    expect("pfsum", [1, 11, 14, 25, 9]);
    expect("mimmin", [1, 10, 4, 21, 9]);
    expect("first", [1, 0, 4, 0, 9]);
}

#[test]
fn points_outside_of_the_range_are_interpolated_from() {
    let series = [ints(&[(100, 10), (300, 30)]), ints(&[(200, 1), (260, 2)])];
    assert_eq!(run("sum", &series, 150, 280), int_pairs(&[(200, 21), (260, 28)]));
    assert!(run("sum", &series, 301, 400).is_empty());
    assert!(run("sum", &[], 0, 400).is_empty());
}

#[test]
fn a_double_that_is_held_makes_the_result_a_double() {
    let mixed: Points = [
        (0, Number::Int(1)),
        (10, Number::Double(2.5)),
        (20, Number::Int(3)),
        (30, Number::Int(4)),
    ]
    .into_iter()
    .collect();
    let expected = [
        (0, Number::Double(1.0)),
        (10, Number::Double(2.5)),
        (20, Number::Int(3)),
        (30, Number::Int(4)),
    ];
    for name in ["sum", "none"] {
        assert_eq!(
            run(name, std::slice::from_ref(&mixed), 0, 100),
            expected,
            "{name}"
        );
    }
    // A series that begins later, and until it has ended.
    let late: Points = [(10, Number::Double(0.5)), (20, Number::Double(1.5))]
        .into_iter()
        .collect();
    let series = [ints(&[(0, 1), (10, 2), (20, 3), (30, 4)]), late];
    assert_eq!(
        run("sum", &series, 0, 100),
        [
            (0, Number::Double(1.0)),
            (10, Number::Double(2.5)),
            (20, Number::Double(4.5)),
            (30, Number::Int(4))
        ]
    );
}

#[test]
fn rates_are_held_and_may_count_before_their_first_point() {
    let a: Points = [(10, Number::Double(10.0)), (20, Number::Double(20.0))]
        .into_iter()
        .collect();
    let b: Points = [(15, Number::Double(1.0)), (25, Number::Double(2.0))]
        .into_iter()
        .collect();
    let run = |before| {
        let series = [Series { points: &a, before }, Series { points: &b, before }];
        let sum = Aggregator::parse("sum").unwrap();
        let points = aggregate(&series, by(sum, true), (0, 100), &goes_on);
        points
            .iter()
            .map(|(time, value)| (time, value.as_f64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(None), [(10, 10.0), (15, 11.0), (20, 21.0), (25, 2.0)]);
    assert_eq!(run(Some(0.5)), [(10, 10.5), (15, 11.0), (20, 21.0), (25, 2.0)]);
}

#[test]
fn aligned_series_give_what_the_general_walk_gives() {
    let times: Vec<i64> = (0..50).map(|i| i * 10).collect();
    let int_column = |seed: i64| {
        Values::Ints(
            (0..50)
                .map(|i| (i * 7919 + seed * 104_729) % 1000 - 500)
                .collect(),
        )
    };
    let double_column =
        |seed: i32| Values::Doubles((0..50).map(|i| f64::from(i * seed % 17) / 3.0).collect());
    let mut groups = vec![
        (1..=9)
            .map(|seed| Points::new(times.clone(), int_column(seed)))
            .collect::<Vec<_>>(),
        (1..=9)
            .map(|seed| Points::new(times.clone(), double_column(seed)))
            .collect(),
    ];
    let mixed_types = [groups[0][..4].to_vec(), groups[1][..4].to_vec()].concat();
    groups.push(mixed_types);
    let mut with_nan = groups[1].clone();
    with_nan[3] = Points::new(times.clone(), Values::Doubles(vec![f64::NAN; 50]));
    groups.push(with_nan);
    for group in &groups {
        let series: Vec<_> = group
            .iter()
            .map(|points| Series { points, before: None })
            .collect();
        for aggregator in Aggregator::ALL.iter().filter(|aggregator| !aggregator.is_none()) {
            let fast = aggregate(&series, by(*aggregator, false), (100, 400), &goes_on);
            let refs: Vec<_> = series.iter().collect();
            let slow = merge(
                &refs,
                &Merging {
                    function: aggregator.function().unwrap(),
                    interpolation: aggregator.interpolation(),
                    floats_to_come_count: true,
                },
                (100, 400),
                &goes_on,
            );
            // Bits, because NaN is not equal to itself.
            let bits = |points: &Points| {
                points
                    .iter()
                    .map(|(t, v)| (t, v.is_int(), v.as_f64().to_bits()))
                    .collect::<Vec<_>>()
            };
            assert_eq!(bits(&fast), bits(&slow), "{}", aggregator.name());
            assert_eq!(fast.len(), 31);
        }
    }
}

#[test]
fn a_cancelled_computation_ends_early() {
    let series = [0, 1].map(|first| (0..1000).map(|i| (first + 2 * i, 1)).collect::<Vec<_>>());
    let series = series.map(|points| ints(&points));
    let series: Vec<_> = series
        .iter()
        .map(|points| Series { points, before: None })
        .collect();
    let sum = Aggregator::parse("sum").unwrap();
    let length = |goes_on: &dyn Fn(u64) -> bool| aggregate(&series, by(sum, false), (0, 5000), goes_on).len();
    assert_eq!(length(&goes_on), 2000);
    assert_eq!(length(&|_| false), 0);
    assert!(length(&|bytes| bytes < 16 * 1000) < 2000, "its size is reported");
}
