use proptest::prelude::*;
use prost::Message;

use super::{Buckets, HistogramError, NativeHistogram, Sign};
use crate::http::mapped::buckets::{Count, cumulative};
use crate::http::prometheus::tests::{Histogram, Span};

fn buckets(histogram: &Histogram) -> Result<Buckets, HistogramError> {
    NativeHistogram::decode(&histogram.encode_to_vec())
        .unwrap()
        .buckets()
}

/// The finite bounds, each with the count of all values up to it, and the count of all values.
fn bounds(histogram: &Histogram) -> (Vec<(f64, Count)>, Count) {
    let Buckets { buckets, count } = buckets(histogram).unwrap();
    (cumulative(buckets.into_iter()).0, count)
}

fn shown(histogram: &Histogram) -> String {
    let (bounds, count) = bounds(histogram);
    let bounds: Vec<_> = bounds
        .iter()
        .map(|(bound, count)| format!("{bound} {}", count.as_f64()))
        .collect();
    format!("{}; {}", bounds.join(", "), count.as_f64())
}

fn span(offset: i32, length: u32) -> Span {
    Span { offset, length }
}

/// 2 values in (1, 2], 1 in (2, 4], 3 in (16, 32], 1 of zero.
fn integers() -> Histogram {
    Histogram {
        count_int: Some(7),
        sum: 90.5,
        zero_threshold: 0.001,
        zero_count_int: Some(1),
        positive_spans: vec![span(1, 2), span(2, 1)],
        positive_deltas: vec![2, -1, 2],
        timestamp: 1_700_000_000_000,
        ..Histogram::default()
    }
}

/// 1.5 values up to 0.5, 0.25 above 2.
fn custom() -> Histogram {
    Histogram {
        count_float: Some(1.75),
        schema: -53,
        positive_spans: vec![span(0, 1), span(1, 1)],
        positive_counts: vec![1.5, 0.25],
        custom_values: vec![0.5, 2.0],
        ..Histogram::default()
    }
}

#[test]
fn buckets_are_cumulative() {
    assert_eq!(shown(&integers()), "0.001 1, 1 1, 2 3, 4 4, 16 4, 32 7; 7");
    assert_eq!(shown(&custom()), "0.5 1.5, 2 1.5; 1.75");
    let both_signs = Histogram {
        count_int: Some(4),
        negative_spans: vec![span(0, 2)],
        negative_deltas: vec![1, 0],
        positive_spans: vec![span(-1, 1)],
        positive_deltas: vec![2],
        ..Histogram::default()
    };
    assert_eq!(shown(&both_signs), "-2 0, -1 1, -0.5 2, 0 2, 0.25 2, 0.5 4; 4");
    assert_eq!(shown(&Histogram::default()), "0 0; 0");
    // A count of NaN, which is in no bucket.
    let with_nan = Histogram {
        count_int: Some(9),
        sum: f64::NAN,
        ..integers()
    };
    assert_eq!(shown(&with_nan), "0.001 1, 1 1, 2 3, 4 4, 16 4, 32 7; 9");
    // The largest bounds are no finite numbers: only the count of all values has their buckets.
    let largest = Histogram {
        count_int: Some(3),
        schema: -4,
        positive_spans: vec![span(63, 3)],
        positive_deltas: vec![1, 0, 0],
        ..Histogram::default()
    };
    let (bounds, count) = bounds(&largest);
    assert_eq!((bounds.len(), count), (3, Count::Int(3)));
    assert_eq!(bounds[2], (2_f64.powi(1008), Count::Int(1)));
}

#[test]
fn the_stale_marker_is_told_from_nan() {
    let with_sum = |sum| NativeHistogram {
        sum,
        ..NativeHistogram::default()
    };
    assert!(with_sum(f64::from_bits(super::STALE)).is_stale());
    assert!(!with_sum(f64::NAN).is_stale());
}

#[test]
fn mistakes_are_named() {
    let many = |count: usize| Histogram {
        positive_spans: vec![span(0, u32::try_from(count).unwrap())],
        positive_deltas: vec![0; count],
        ..Histogram::default()
    };
    assert!(buckets(&many(1000)).is_ok());
    for (histogram, error) in [
        (
            Histogram {
                schema: 9,
                ..integers()
            },
            HistogramError::UnknownSchema(9),
        ),
        (many(1001), HistogramError::TooManyBuckets),
        (
            Histogram {
                positive_spans: vec![span(0, 0); 1001],
                ..Histogram::default()
            },
            HistogramError::TooManyBuckets,
        ),
        (
            Histogram {
                count_float: Some(-1.0),
                count_int: None,
                ..integers()
            },
            HistogramError::NotACount {
                field: "count",
                value: -1.0,
            },
        ),
        (
            Histogram {
                zero_threshold: f64::INFINITY,
                ..integers()
            },
            HistogramError::NotACount {
                field: "zero threshold",
                value: f64::INFINITY,
            },
        ),
        (
            Histogram {
                positive_spans: vec![span(1, 2), span(2, 2)],
                ..integers()
            },
            HistogramError::SpansAndCounts {
                sign: Sign::Positive,
                spanned: 4,
                counts: 3,
            },
        ),
        (
            Histogram {
                positive_spans: vec![span(1, u32::MAX), span(2, u32::MAX)],
                ..integers()
            },
            HistogramError::SpansAndCounts {
                sign: Sign::Positive,
                spanned: 2 * u64::from(u32::MAX),
                counts: 3,
            },
        ),
        // Counts of the other kind do not count.
        (
            Histogram {
                positive_counts: vec![1.0; 3],
                positive_deltas: vec![],
                ..integers()
            },
            HistogramError::SpansAndCounts {
                sign: Sign::Positive,
                spanned: 3,
                counts: 0,
            },
        ),
        (
            Histogram {
                positive_spans: vec![span(1, 2), span(-1, 1)],
                ..integers()
            },
            HistogramError::NegativeOffset {
                sign: Sign::Positive,
                place: 2,
                offset: -1,
            },
        ),
        (
            Histogram {
                positive_deltas: vec![2, -3, 5],
                ..integers()
            },
            HistogramError::NegativeBucket {
                sign: Sign::Positive,
                place: 2,
                value: -1.0,
            },
        ),
        (
            Histogram {
                positive_counts: vec![1.0, f64::INFINITY],
                ..custom()
            },
            HistogramError::NegativeBucket {
                sign: Sign::Positive,
                place: 2,
                value: f64::INFINITY,
            },
        ),
        (
            Histogram {
                count_int: Some(8),
                ..integers()
            },
            HistogramError::CountMismatch {
                count: 8,
                in_buckets: 7,
            },
        ),
        (
            Histogram {
                count_int: Some(6),
                sum: f64::NAN,
                ..integers()
            },
            HistogramError::CountMismatch {
                count: 6,
                in_buckets: 7,
            },
        ),
        (
            Histogram {
                custom_values: vec![1.0],
                ..integers()
            },
            HistogramError::UnexpectedBounds { schema: 0 },
        ),
        (
            Histogram {
                custom_values: vec![2.0, 2.0],
                ..custom()
            },
            HistogramError::NotAscending { place: 2, bound: 2.0 },
        ),
        (
            Histogram {
                custom_values: vec![0.5, f64::INFINITY],
                ..custom()
            },
            HistogramError::NotFinite {
                place: 2,
                bound: f64::INFINITY,
            },
        ),
        (
            Histogram {
                custom_values: vec![0.5],
                ..custom()
            },
            HistogramError::BeyondBounds {
                reached: 3,
                bounds: 1,
            },
        ),
        (
            Histogram {
                positive_spans: vec![span(-1, 2)],
                ..custom()
            },
            HistogramError::BeyondBounds {
                reached: 0,
                bounds: 2,
            },
        ),
        (
            Histogram {
                zero_count_float: Some(1.0),
                ..custom()
            },
            HistogramError::UnexpectedBuckets,
        ),
    ] {
        assert_eq!(buckets(&histogram), Err(error), "{histogram:?}");
    }
}

/// The spans, and the index of each bucket.
fn spans() -> impl Strategy<Value = (Vec<Span>, Vec<i64>)> {
    let first = -60..60_i32;
    let others = prop::collection::vec((0..20_i32, 0..4_u32), 0..4);
    (first, 0..4_u32, others).prop_map(|(first, length, others)| {
        let mut spans = vec![span(first, length)];
        spans.extend(others.iter().map(|(offset, length)| span(*offset, *length)));
        let mut at = 0;
        let mut indices = Vec::new();
        for Span { offset, length } in &spans {
            at += i64::from(*offset);
            indices.extend((0..i64::from(*length)).map(|place| at + place));
            at += i64::from(*length);
        }
        (spans, indices)
    })
}

proptest! {
    /// The reference has each value of a histogram: in the middle of its bucket.
    #[test]
    fn counts_are_of_all_values_up_to_a_bound(
        schema in -4..=8_i32,
        (positive_spans, positive) in spans(),
        (negative_spans, negative) in spans(),
        counts in prop::collection::vec(0..5_u8, 32),
        zeros in 0..3_u8,
        is_float: bool,
    ) {
        let middle = |index: i64| ((index as f64 - 0.5) * (-f64::from(schema)).exp2()).exp2();
        // The bounds of schema -4 exceed the numbers of 64 bits from index 64 on.
        prop_assume!(positive.iter().chain(&negative).all(|index| middle(*index).is_normal()));
        let mut values = vec![0.0; usize::from(zeros)];
        let of_buckets = |values: &mut Vec<f64>, indices: &[i64], counts: &[u8], sign: f64| {
            for (index, count) in indices.iter().zip(counts) {
                values.extend(std::iter::repeat_n(sign * middle(*index), usize::from(*count)));
            }
        };
        let positive_counts = &counts[..positive.len()];
        let negative_counts = &counts[positive.len()..][..negative.len()];
        of_buckets(&mut values, &positive, positive_counts, 1.0);
        of_buckets(&mut values, &negative, negative_counts, -1.0);
        let deltas = |counts: &[u8]| {
            let before = std::iter::once(&0).chain(counts);
            counts.iter().zip(before).map(|(count, before)| i64::from(*count) - i64::from(*before)).collect()
        };
        let floats = |counts: &[u8]| counts.iter().map(|count| f64::from(*count)).collect();
        let spans = Histogram { schema, positive_spans, negative_spans, ..Histogram::default() };
        let histogram = if is_float {
            Histogram {
                count_float: Some(values.len() as f64),
                zero_count_float: Some(f64::from(zeros)),
                positive_counts: floats(positive_counts),
                negative_counts: floats(negative_counts),
                ..spans
            }
        } else {
            Histogram {
                count_int: Some(values.len() as u64),
                zero_count_int: Some(zeros.into()),
                positive_deltas: deltas(positive_counts),
                negative_deltas: deltas(negative_counts),
                ..spans
            }
        };
        let (bounds, count) = bounds(&histogram);
        prop_assert!(bounds.is_sorted_by(|(one, _), (other, _)| one < other), "{:?}", bounds);
        let counted = |number: usize| {
            if is_float { Count::Float(number as f64) } else { Count::Int(number as u64) }
        };
        for (bound, count) in &bounds {
            let expected = values.iter().filter(|value| *value <= bound).count();
            prop_assert_eq!(*count, counted(expected), "{}", bound);
        }
        prop_assert_eq!(count, counted(values.len()));
        // Each bucket is between two bounds.
        for value in &values {
            let at = bounds.partition_point(|(bound, _)| bound < value);
            let upper = bounds.get(at).map_or(f64::INFINITY, |(bound, _)| *bound);
            let base = (-f64::from(schema)).exp2().exp2();
            let is_near = *value == 0.0 || upper == f64::INFINITY || upper / value < base && value / upper < base;
            prop_assert!(is_near, "{} is below {}", value, upper);
        }
    }

    #[test]
    fn no_message_panics(message in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(histogram) = NativeHistogram::decode(&message) {
            let _ = histogram.buckets();
        }
    }
}
