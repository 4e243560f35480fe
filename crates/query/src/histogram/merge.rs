//! Merges the histograms of a group of series by instant, and derives its results.
//!
//! Series are merged like sorted lists: the earliest instant at the front of any series is next, and all series that
//! have it there contribute. A series with two histograms of one instant, in seconds and in milliseconds, has two
//! results there; the first includes the histograms of the other series. Histograms are not interpolated.
//!
//! Source: OpenTSDB 2.4, `HistogramAggregationIterator`, `TsdbQuery.generateHistogramBucketDataPoints`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use oxtsdb_schema::Histogram;
use oxtsdb_schema::histogram::Bounds;

use super::{HistogramPart, HistogramResults};
use crate::points::{Number, Points};

/// An instant, milliseconds since the epoch, and its histogram.
pub(super) type Timed = (i64, Histogram);

/// The sum of the histograms of series, in the order in which their instants come up.
pub(super) fn merged(series: Vec<Vec<Timed>>) -> Vec<Timed> {
    let mut series: Vec<_> = series.into_iter().map(|one| one.into_iter().peekable()).collect();
    if let [one] = &mut series[..] {
        return one.collect();
    }
    let mut fronts: BinaryHeap<Reverse<(i64, usize)>> = series
        .iter_mut()
        .enumerate()
        .filter_map(|(place, one)| one.peek().map(|(time_ms, _)| Reverse((*time_ms, place))))
        .collect();
    let mut merged: Vec<Timed> = Vec::new();
    let mut taken = Vec::new();
    while let Some(Reverse((time_ms, _))) = fronts.peek().copied() {
        let mut sum: Option<Histogram> = None;
        while let Some(Reverse((_, place))) = fronts.pop_if_at(time_ms) {
            let next = series.get_mut(place).and_then(Iterator::next);
            match (&mut sum, next) {
                (Some(sum), Some((_, histogram))) => sum.add(&histogram),
                (None, Some((_, histogram))) => sum = Some(histogram),
                (_, None) => {}
            }
            taken.push(place);
        }
        merged.extend(sum.map(|sum| (time_ms, sum)));
        for place in taken.drain(..) {
            let front = series.get_mut(place).and_then(|one| one.peek());
            fronts.extend(front.map(|(time_ms, _)| Reverse((*time_ms, place))));
        }
    }
    merged
}

trait PopIfAt {
    /// Removes the first front if it has this instant.
    fn pop_if_at(&mut self, time_ms: i64) -> Option<Reverse<(i64, usize)>>;
}

impl PopIfAt for BinaryHeap<Reverse<(i64, usize)>> {
    fn pop_if_at(&mut self, time_ms: i64) -> Option<Reverse<(i64, usize)>> {
        self.peek()
            .is_some_and(|Reverse((front_ms, _))| *front_ms == time_ms)
            .then(|| self.pop())?
    }
}

/// The parts of a group's result: the percentiles, ascending, then the buckets of its first histogram.
pub(super) fn parts(merged: &[Timed], results: &HistogramResults) -> Vec<HistogramPart> {
    let percentiles = results.percentiles.iter().copied().map(HistogramPart::Percentile);
    let first = merged.first().filter(|_| results.buckets);
    let buckets = first.into_iter().flat_map(|(_, first)| {
        let buckets = first
            .buckets()
            .iter()
            .map(|bucket| HistogramPart::Bucket(bucket.bounds));
        [HistogramPart::Underflow]
            .into_iter()
            .chain(buckets)
            .chain([HistogramPart::Overflow])
    });
    percentiles.chain(buckets).collect()
}

/// The points of a part, of the instants in a range, both ends inside.
pub(super) fn points(merged: &[Timed], part: HistogramPart, (start_ms, end_ms): (i64, i64)) -> Points {
    let mut points = Points::default();
    for (time_ms, histogram) in merged {
        if (start_ms..=end_ms).contains(time_ms) {
            points.push(*time_ms, value(histogram, part));
        }
    }
    points
}

fn value(histogram: &Histogram, part: HistogramPart) -> Number {
    let count = |bounds: Bounds| histogram.count(bounds);
    match part {
        HistogramPart::Percentile(percentile) => Number::Double(histogram.percentile(percentile)),
        HistogramPart::Underflow => Number::Int(histogram.underflow),
        HistogramPart::Bucket(bounds) => Number::Int(count(bounds)),
        HistogramPart::Overflow => Number::Int(histogram.overflow),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::histogram::parse_histogram;

    use super::*;

    fn timed(histograms: &[(i64, &str)]) -> Vec<Timed> {
        let parse = |(time_ms, text): &(i64, &str)| (*time_ms, parse_histogram(text).unwrap());
        histograms.iter().map(parse).collect()
    }

    #[test]
    fn sums_equal_instants_and_keeps_others_apart() {
        let one = timed(&[(10, "0,1=1"), (30, "0,1=2")]);
        let two = timed(&[(10, "1,2=4"), (20, "0,1=8")]);
        let expected = timed(&[(10, "0,1=1:1,2=4"), (20, "0,1=8"), (30, "0,1=2")]);
        assert_eq!(merged(vec![one, two]), expected);
    }

    #[test]
    fn two_histograms_of_one_instant_are_two_results() {
        let one = timed(&[(10, "0,1=4"), (10, "0,1=2")]);
        let two = timed(&[(10, "0,1=1")]);
        assert_eq!(merged(vec![two, one]), timed(&[(10, "0,1=5"), (10, "0,1=2")]));
    }

    #[test]
    fn follows_the_order_of_each_series() {
        let one = timed(&[(61, "0,1=10"), (60, "0,1=3")]);
        let two = timed(&[(50, "0,1=1"), (61, "0,1=1")]);
        let expected = timed(&[(50, "0,1=1"), (61, "0,1=11"), (60, "0,1=3")]);
        assert_eq!(merged(vec![one.clone(), two]), expected);
        assert_eq!(merged(vec![one.clone()]), one);
        assert_eq!(merged(Vec::new()), []);
    }

    #[test]
    fn the_first_histogram_decides_which_buckets_there_are() {
        let merged = timed(&[(10, "0,1=1:u=3"), (20, "1,2=1:o=5")]);
        let results = HistogramResults {
            percentiles: vec![50.0],
            buckets: true,
        };
        let parts = parts(&merged, &results);
        let names: Vec<String> = parts.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["_pct_50.0", "_UNDERFLOW", "_0.0_1.0", "_OVERFLOW"]);
        let values = |part: usize, range| -> Vec<(i64, Number)> {
            points(&merged, parts[part], range).iter().collect()
        };
        assert_eq!(
            values(0, (0, 20)),
            [(10, Number::Double(0.5)), (20, Number::Double(1.5))]
        );
        assert_eq!(values(1, (0, 20)), [(10, Number::Int(3)), (20, Number::Int(0))]);
        assert_eq!(values(2, (11, 20)), [(20, Number::Int(0))]);
        assert_eq!(values(3, (0, 20)), [(10, Number::Int(0)), (20, Number::Int(5))]);
    }
}
