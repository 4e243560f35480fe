//! Buckets of histograms as OpenTSDB's series have them: by upper bound, each with the values of the buckets before it too.
//!
//! ```text
//!   exponential, scale 0     zero 2, (2, 4] 3, (4, 8] 1       ─►  le=0 2, le=2 2, le=4 5, le=8 6
//! ```
//!
//! A bucket that does not begin where the bucket before it ends also has a series with its lower bound, so that
//! interpolation within the bucket begins there.

/// The most buckets of a histogram; SDKs of OpenTelemetry and Prometheus' clients have 160 of each sign by default.
pub(in crate::http) const MOST_BUCKETS: usize = 1000;

/// Buckets that are read of a histogram: one too many, which says that there are more.
pub(in crate::http) const READ_BUCKETS: usize = MOST_BUCKETS + 1;

/// A count of values. Rates and sums of weights are no integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::http) enum Count {
    Int(u64),
    Float(f64),
}

impl Count {
    pub(in crate::http) const ZERO: Self = Self::Int(0);

    /// 0, as a number of the same kind.
    pub(in crate::http) const fn zero(self) -> Self {
        match self {
            Self::Int(_) => Self::Int(0),
            Self::Float(_) => Self::Float(0.0),
        }
    }

    /// The sum of two counts; at most the largest integer.
    pub(in crate::http) fn plus(self, other: Self) -> Self {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => Self::Int(one.saturating_add(other)),
            (one, other) => Self::Float(one.as_f64() + other.as_f64()),
        }
    }

    /// The nearest floating-point number.
    pub(in crate::http) const fn as_f64(self) -> f64 {
        match self {
            Self::Int(count) => count as f64,
            Self::Float(count) => count,
        }
    }
}

/// A bucket: the values above `lower`, and up to `upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::http) struct Bucket {
    /// `None`: the bucket begins where the bucket before it ends.
    pub(in crate::http) lower: Option<f64>,
    pub(in crate::http) upper: f64,
    pub(in crate::http) count: Count,
}

/// An exponential histogram: the positive bucket with index `i` has the values in (bⁱ⁻¹, bⁱ], the negative one the values in
/// [-bⁱ, -bⁱ⁻¹), where b is 2 to the power of 2⁻ˢᶜᵃˡᵉ.
///
/// Source: Prometheus, `model/histogram/generic.go`, `getBoundExponential`. OpenTelemetry's index is `i` - 1.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) struct Exponential {
    pub(in crate::http) scale: i32,
    /// Values up to this one, of both signs, are in the zero bucket.
    pub(in crate::http) zero_threshold: f64,
    pub(in crate::http) zero_count: Count,
}

impl Exponential {
    /// The buckets, ascending. `negative` and `positive` have indices and counts, ascending by index.
    pub(in crate::http) fn buckets(
        self,
        negative: impl DoubleEndedIterator<Item = (i64, Count)> + ExactSizeIterator,
        positive: impl Iterator<Item = (i64, Count)>,
    ) -> impl Iterator<Item = Bucket> {
        let bound = move |index: i64| (index as f64 * (-f64::from(self.scale)).exp2()).exp2();
        let zero = Bucket {
            lower: (negative.len() > 0).then_some(-self.zero_threshold),
            upper: self.zero_threshold,
            count: self.zero_count,
        };
        let negative = negative.rev().map(move |(index, count)| Bucket {
            lower: Some(-bound(index)),
            upper: -bound(index - 1),
            count,
        });
        let positive = positive.map(move |(index, count)| Bucket {
            lower: Some(bound(index - 1)),
            upper: bound(index),
            count,
        });
        negative.chain([zero]).chain(positive)
    }
}

/// The finite bounds of buckets, ascending, each with the count of all values up to it; and the count of all values.
///
/// A bucket is part of the bucket before it if its bound, as a number of 64 bits, is not above the bound of that bucket.
pub(in crate::http) fn cumulative(buckets: impl Iterator<Item = Bucket>) -> (Vec<(f64, Count)>, Count) {
    let mut bounds: Vec<(f64, Count)> = Vec::new();
    let mut sum = None;
    for Bucket { lower, upper, count } in buckets {
        let mut total = sum.unwrap_or(count.zero());
        let lower = lower.filter(|lower| lower.is_finite());
        let is_above =
            |bounds: &[(f64, Count)], bound: f64| bounds.last().is_none_or(|(last, _)| *last < bound);
        if let Some(lower) = lower
            && lower < upper
            && is_above(&bounds, lower)
        {
            bounds.push((lower, total));
        }
        total = total.plus(count);
        sum = Some(total);
        if !upper.is_finite() {
            continue;
        }
        if is_above(&bounds, upper) {
            bounds.push((upper, total));
        } else if let Some((_, count)) = bounds.last_mut() {
            *count = total;
        }
    }
    (bounds, sum.unwrap_or(Count::ZERO))
}

/// The first of some bounds that is not above the bound before it: its place from 1, and itself.
pub(in crate::http) fn first_not_ascending(bounds: &[f64]) -> Option<(usize, f64)> {
    let mut last = None;
    for (place, bound) in bounds.iter().enumerate() {
        if bound.is_nan() || last.is_some_and(|last| last >= *bound) {
            return Some((place + 1, *bound));
        }
        last = Some(*bound);
    }
    None
}

/// A bound as the value of a tag: the shortest text that is this number, with an exponent if it has many zeros.
pub(in crate::http) fn bound_text(bound: f64) -> String {
    match bound {
        f64::INFINITY => "+Inf".to_owned(),
        // Also the zero of a negative sign.
        0.0 => "0".to_owned(),
        bound if (1e-6..1e21).contains(&bound.abs()) => bound.to_string(),
        bound => format!("{bound:e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(buckets: impl Iterator<Item = Bucket>) -> String {
        let (bounds, total) = cumulative(buckets);
        let bounds = bounds
            .iter()
            .map(|(bound, count)| format!("{} {}", bound_text(*bound), count.as_f64()));
        let bounds: Vec<_> = bounds.collect();
        format!("{}; {}", bounds.join(", "), total.as_f64())
    }

    fn ints(counts: &[(i64, u64)]) -> std::vec::IntoIter<(i64, Count)> {
        let counts = counts.iter().map(|(index, count)| (*index, Count::Int(*count)));
        counts.collect::<Vec<_>>().into_iter()
    }

    #[test]
    fn bounds_of_exponential_buckets_follow_the_scale() {
        let zero = |scale, zero_threshold| Exponential {
            scale,
            zero_threshold,
            zero_count: Count::Int(2),
        };
        for (histogram, negative, positive, expected) in [
            (
                zero(0, 0.0),
                &[][..],
                &[(2, 3), (3, 1)][..],
                "0 2, 2 2, 4 5, 8 6; 6",
            ),
            (
                zero(0, 0.0),
                &[],
                &[(1, 3), (4, 1)],
                "0 2, 1 2, 2 5, 8 5, 16 6; 6",
            ),
            (zero(0, 0.0), &[(0, 1), (1, 3)], &[], "-2 0, -1 3, -0.5 4, 0 6; 6"),
            (zero(0, 0.25), &[(0, 1)], &[], "-1 0, -0.5 1, -0.25 1, 0.25 3; 3"),
            (zero(-1, 0.0), &[], &[(1, 1), (2, 1)], "0 2, 1 2, 4 3, 16 4; 4"),
            (
                zero(3, 0.0),
                &[],
                &[(8, 1), (16, 1)],
                "0 2, 1.8340080864093424 2, 2 3, 3.668016172818685 3, 4 4; 4",
            ),
            // Values below the threshold of the zero bucket, and bounds that are no numbers of 64 bits.
            (zero(0, 3.0), &[], &[(1, 1), (2, 1)], "3 3, 4 4; 4"),
            (
                zero(-4, 0.0),
                &[],
                &[(-80, 1), (0, 1), (64, 1), (65, 1)],
                "0 3, 0.0000152587890625 3, 1 4, 2.7430620343968443e303 4; 6",
            ),
        ] {
            let buckets = histogram.buckets(ints(negative), ints(positive));
            assert_eq!(shown(buckets), expected, "{histogram:?}");
        }
    }

    #[test]
    fn bounds_have_short_texts() {
        for (bound, text) in [
            (0.1, "0.1"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (-0.0, "0"),
            (1e6, "1000000"),
            (1e21, "1e21"),
            (2.938_735_877_055_719e-39, "2.938735877055719e-39"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(bound_text(bound), text);
        }
    }

    #[test]
    fn bounds_ascend() {
        assert_eq!(first_not_ascending(&[]), None);
        assert_eq!(first_not_ascending(&[-1.0, 0.0, 2.5]), None);
        assert_eq!(first_not_ascending(&[1.0, 2.0, 2.0]), Some((3, 2.0)));
        assert!(first_not_ascending(&[f64::NAN]).is_some_and(|(place, _)| place == 1));
    }
}
