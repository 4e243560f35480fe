use std::sync::Arc;

use jiff::tz::TimeZone;
use oxtsdb_row_store::RowBuilder;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, Qualifier, Timestamp};

use super::*;
use crate::context::limits::Limits;
use crate::function::downsample::{Downsample, Interval, WindowLayout};
use crate::points::{Number, Values};

/// 2013-01-01 00:00:00 UTC, an exact hour.
pub(in crate::exec) const T: u32 = 1_356_998_400;

/// A row of series `series` of metric 1 with these points; all are in the hour of the first.
pub(in crate::exec) fn row(series: u8, points: &[(u32, Value)]) -> Row {
    let mut key = Vec::new();
    let base = BaseTime::from_seconds(T + points[0].0);
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, series];
    write_row_key(&RowKeyLayout::default(), &tsuid, base, &mut key);
    let mut row = RowBuilder::new(&key, Arc::from(["t".to_owned()]));
    for (seconds, value) in points {
        let qualifier = Qualifier::new(Timestamp::from_seconds(T + seconds), value);
        row.push(0, qualifier.as_bytes(), 5, value.encoded().as_bytes());
    }
    row.finish().expect("a row has points")
}

pub(in crate::exec::series_builder) fn options(downsample: Option<&str>) -> SeriesOptions {
    let downsample = downsample.map(|text| {
        let downsample = Downsample::parse(text, &TimeZone::UTC, false).unwrap();
        let Interval::Fixed { length_ms } = downsample.interval else {
            panic!("{text} is not fixed")
        };
        (
            Arc::new(Windows::new(WindowLayout::Fixed { length_ms })),
            downsample.function,
        )
    });
    SeriesOptions {
        rollup: None,
        layout: RowKeyLayout::default(),
        duplicates: DuplicatePolicy::Error,
        skip_damaged_rows: false,
        begins_until_ms: i64::MAX,
        downsample,
        rate: None,
        annotations: false,
        names_without_points: true,
    }
}

fn builder(downsample: Option<&str>) -> SeriesBuilder {
    SeriesBuilder::new(options(downsample), Budget::from_limits(Limits::NONE))
}

fn seconds(points: &Points) -> Vec<(i64, Number)> {
    points
        .iter()
        .map(|(time_ms, value)| (time_ms / 1000 - i64::from(T), value))
        .collect()
}

#[test]
fn joins_the_rows_of_a_series() {
    let mut builder = builder(None);
    builder.add(&row(2, &[(0, Value::Int(7))])).unwrap();
    builder
        .add(&row(1, &[(10, Value::Int(1)), (20, Value::Int(2))]))
        .unwrap();
    builder.add(&row(1, &[(3600, Value::Int(3))])).unwrap();
    let series = builder.take(i64::MAX).unwrap();
    let statistics = builder.into_statistics();
    assert_eq!(statistics.points, 4);
    assert_eq!(series.len(), 2);
    assert!(series[0].tsuid < series[1].tsuid);
    let times = [T + 10, T + 20, T + 3600].map(|seconds| i64::from(seconds) * 1000);
    assert_eq!(
        series[0].points,
        Points::new(times.to_vec(), Values::Ints(vec![1, 2, 3]))
    );
}

#[test]
fn keeps_types_that_change_between_and_within_rows() {
    let mut builder = builder(None);
    builder
        .add(&row(1, &[(0, Value::Double(0.5)), (10, Value::Float(1.5))]))
        .unwrap();
    builder
        .add(&row(1, &[(3600, Value::Int(3)), (3610, Value::Double(4.5))]))
        .unwrap();
    let series = builder.take(i64::MAX).unwrap();
    let expected = [
        (0, Number::Double(0.5)),
        (10, Number::Double(1.5)),
        (3600, Number::Int(3)),
        (3610, Number::Double(4.5)),
    ];
    assert_eq!(seconds(&series[0].points), expected);
}

#[test]
fn windows_extend_over_rows() {
    let mut builder = builder(Some("2h-sum"));
    builder
        .add(&row(1, &[(10, Value::Int(1)), (20, Value::Int(2))]))
        .unwrap();
    builder.add(&row(1, &[(3600, Value::Double(0.5))])).unwrap();
    builder.add(&row(1, &[(7200, Value::Int(9))])).unwrap();
    let series = builder.take(i64::MAX).unwrap();
    assert_eq!(
        seconds(&series[0].points),
        [(0, Number::Double(3.5)), (7200, Number::Double(9.0))]
    );
}

#[test]
fn names_the_row_that_does_not_decode() {
    let twice = row(1, &[(0, Value::Int(1)), (0, Value::Int(300))]);
    let error = builder(None).add(&twice).unwrap_err().to_string();
    assert!(
        error.starts_with("row `00000150E22700000001000001`: row has two points 0 ms after"),
        "{error}"
    );
    let mut cut_off = RowBuilder::new(&[0, 0, 1, 2], Arc::from(["t".to_owned()]));
    cut_off.push(0, &[0, 0], 5, &[1]);
    let error = builder(None).add(&cut_off.finish().unwrap()).unwrap_err();
    assert!(matches!(error, QueryError::RowKey { .. }));
}

proptest::proptest! {
    #[test]
    fn counts_the_rows_of_points(mut times_ms in proptest::collection::vec(0..40 * 3_600_000_i64, 0..300)) {
        times_ms.sort_unstable();
        let hours: std::collections::BTreeSet<i64> = times_ms.iter().map(|time_ms| time_ms / 3_600_000).collect();
        proptest::prop_assert_eq!(super::rows_of(&times_ms, super::HOUR_MS), hours.len() as u64);
    }
}
