//! Native histograms, of remote write 1.0 and 2.0.
//!
//! ```text
//!   Histogram    1 count_int: uint64 or 2 count_float: double, 3 sum: double, 4 schema: sint32, 5 zero_threshold: double,
//!                6 zero_count_int: uint64 or 7 zero_count_float: double,
//!                8 negative_spans: BucketSpan*, 9 negative_deltas: sint64*, 10 negative_counts: double*,
//!                11 positive_spans: BucketSpan*, 12 positive_deltas: sint64*, 13 positive_counts: double*,
//!                14 reset_hint, 15 timestamp: int64, milliseconds, 16 custom_values: double*
//!   BucketSpan   1 offset: sint32, 2 length: uint32
//! ```
//!
//! A span is a run of buckets. Its offset is the index of the first bucket, or the number of empty buckets behind the span before
//! it. An integer histogram has the first count of a sign and then differences, one of floating point has counts.
//!
//! | schema | bucket with index `i` |
//! |---|---|
//! | -4 … 8 | as [`Exponential`] has it, with the schema as its scale |
//! | -53 | the values above `custom_values[i - 1]`, up to `custom_values[i]`; the last bucket has no upper bound |
//!
//! Reset hints are left out: OpenTSDB finds resets of counters in their values.
//!
//! Source: Prometheus 3, `prompb/types.proto`, `model/histogram/generic.go`, and `histogram.go`, `Validate`.

#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use super::STALE;
use crate::http::mapped::buckets::{
    Bucket, Count, Exponential, MOST_BUCKETS, READ_BUCKETS, first_not_ascending,
};
use crate::http::protobuf::{FieldValue, Malformed, fixed64s, next, sint32, sint64, varints};

/// The schemas of exponential buckets.
const EXPONENTIAL: RangeInclusive<i32> = -4..=8;

/// The schema of buckets with bounds of their own.
const CUSTOM: i32 = -53;

/// A histogram, as it was sent.
#[derive(Debug, Default)]
pub(super) struct NativeHistogram {
    count: Option<Count>,
    pub(super) sum: f64,
    schema: i32,
    zero_threshold: f64,
    zero_count: Option<Count>,
    negative: Side,
    positive: Side,
    pub(super) timestamp_ms: i64,
    custom_values: Vec<f64>,
}

/// The buckets of a sign.
#[derive(Debug, Default)]
struct Side {
    /// Offset and length.
    spans: Vec<(i32, u32)>,
    deltas: Vec<i64>,
    counts: Vec<f64>,
}

/// The buckets of a histogram.
#[derive(Debug, PartialEq)]
pub(super) struct Buckets {
    /// Ascending.
    pub(super) buckets: Vec<Bucket>,
    /// The count of all values.
    pub(super) count: Count,
}

/// Error of a histogram that breaks a rule.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum HistogramError {
    #[error("schema {0} is not known, expected {first} to {last}, or {CUSTOM}", first = EXPONENTIAL.start(), last = EXPONENTIAL.end())]
    UnknownSchema(i32),
    #[error("more than {MOST_BUCKETS} buckets or spans")]
    TooManyBuckets,
    #[error("{field} {value} is no number from 0")]
    NotACount { field: &'static str, value: f64 },
    #[error("span {place} of the {sign} buckets has offset {offset}, only the first may be below 0")]
    NegativeOffset { sign: Sign, place: usize, offset: i32 },
    #[error("the spans of the {sign} buckets have {spanned} buckets, but {counts} counts were sent")]
    SpansAndCounts { sign: Sign, spanned: u64, counts: usize },
    #[error("the count of {sign} bucket {place} is {value}, expected a number from 0")]
    NegativeBucket { sign: Sign, place: usize, value: f64 },
    #[error("the count is {count}, but the buckets have {in_buckets} values")]
    CountMismatch { count: u64, in_buckets: u64 },
    #[error("custom bound {place} ({bound}) is not above the bound before it")]
    NotAscending { place: usize, bound: f64 },
    #[error("custom bound {place} ({bound}) is no finite number")]
    NotFinite { place: usize, bound: f64 },
    #[error("schema {schema} has custom bounds")]
    UnexpectedBounds { schema: i32 },
    #[error("schema {CUSTOM} has a zero bucket or negative buckets")]
    UnexpectedBuckets,
    #[error("the spans reach custom bucket {reached}, but {bounds} bounds are for {} buckets", bounds + 1)]
    BeyondBounds { reached: i64, bounds: usize },
}

/// The sign of a bucket's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    Negative,
    Positive,
}

impl std::fmt::Display for Sign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Negative => "negative",
            Self::Positive => "positive",
        })
    }
}

impl NativeHistogram {
    /// Decodes a message.
    ///
    /// # Errors
    ///
    /// If the bytes are no message.
    pub(super) fn decode(mut message: &[u8]) -> Result<Self, Malformed> {
        let mut histogram = Self::default();
        while let Some((number, value)) = next(&mut message)? {
            match (number, value) {
                (1, FieldValue::Varint(count)) => histogram.count = Some(Count::Int(count)),
                (2, FieldValue::Fixed64(bits)) => histogram.count = Some(Count::Float(f64::from_bits(bits))),
                (3, FieldValue::Fixed64(bits)) => histogram.sum = f64::from_bits(bits),
                (4, FieldValue::Varint(schema)) => histogram.schema = sint32(schema),
                (5, FieldValue::Fixed64(bits)) => histogram.zero_threshold = f64::from_bits(bits),
                (6, FieldValue::Varint(count)) => histogram.zero_count = Some(Count::Int(count)),
                (7, FieldValue::Fixed64(bits)) => {
                    histogram.zero_count = Some(Count::Float(f64::from_bits(bits)));
                }
                (8..=10, value) => histogram.negative.read(number - 8, value)?,
                (11..=13, value) => histogram.positive.read(number - 11, value)?,
                (15, FieldValue::Varint(ms)) => histogram.timestamp_ms = ms.cast_signed(),
                (16, value) => fixed64s(value, READ_BUCKETS, &mut histogram.custom_values, f64::from_bits)?,
                _ => {}
            }
        }
        Ok(histogram)
    }

    /// Whether it says that its series has ended.
    pub(super) const fn is_stale(&self) -> bool {
        self.sum.to_bits() == STALE
    }

    /// Its buckets.
    ///
    /// # Errors
    ///
    /// If it breaks a rule of native histograms.
    pub(super) fn buckets(&self) -> Result<Buckets, HistogramError> {
        let lengths = [&self.negative, &self.positive].map(|side| {
            let Side {
                spans,
                deltas,
                counts,
            } = side;
            (spans.len(), deltas.len().max(counts.len()))
        });
        let [negative, positive] = lengths;
        let buckets = (negative.1 + positive.1).max(self.custom_values.len());
        if buckets.max(negative.0).max(positive.0) > MOST_BUCKETS {
            return Err(HistogramError::TooManyBuckets);
        }
        let count = self.count.unwrap_or(Count::ZERO);
        let is_float = matches!(count, Count::Float(_));
        let of_zero = match (self.zero_count, is_float) {
            (Some(Count::Int(_)) | None, true) => Count::Float(0.0),
            (Some(Count::Float(_)) | None, false) => Count::ZERO,
            (Some(zero_count), _) => zero_count,
        };
        for (field, value) in [
            ("count", count.as_f64()),
            ("zero count", of_zero.as_f64()),
            ("zero threshold", self.zero_threshold),
        ] {
            if !is_count(value) {
                return Err(HistogramError::NotACount { field, value });
            }
        }
        let negative = self.negative.buckets(Sign::Negative, is_float)?;
        let positive = self.positive.buckets(Sign::Positive, is_float)?;
        let buckets: Vec<Bucket> = if self.schema == CUSTOM {
            if of_zero.as_f64() > 0.0 || self.zero_threshold > 0.0 || !negative.is_empty() {
                return Err(HistogramError::UnexpectedBuckets);
            }
            self.custom_buckets(&positive, of_zero)?
        } else if EXPONENTIAL.contains(&self.schema) {
            if !self.custom_values.is_empty() {
                return Err(HistogramError::UnexpectedBounds { schema: self.schema });
            }
            let histogram = Exponential {
                scale: self.schema,
                zero_threshold: self.zero_threshold,
                zero_count: of_zero,
            };
            let buckets = histogram.buckets(negative.into_iter(), positive.into_iter());
            buckets.collect()
        } else {
            return Err(HistogramError::UnknownSchema(self.schema));
        };
        let in_buckets = buckets.iter().map(|bucket| bucket.count);
        let in_buckets = in_buckets.fold(of_zero.zero(), Count::plus);
        // Counts of floating point are rounded. NaN is in no bucket, but is counted, and makes the sum NaN.
        if let (Count::Int(count), Count::Int(in_buckets)) = (count, in_buckets)
            && (in_buckets > count || in_buckets < count && !self.sum.is_nan())
        {
            return Err(HistogramError::CountMismatch { count, in_buckets });
        }
        Ok(Buckets { buckets, count })
    }

    /// The buckets of custom bounds, also those with a count of `zero`, so that the bounds of a series stay the same.
    fn custom_buckets(&self, counts: &[(i64, Count)], zero: Count) -> Result<Vec<Bucket>, HistogramError> {
        let bounds = &self.custom_values;
        if let Some(at) = bounds.iter().position(|bound| !bound.is_finite()) {
            let (place, bound) = (at + 1, bounds.get(at).copied().unwrap_or_default());
            return Err(HistogramError::NotFinite { place, bound });
        }
        if let Some((place, bound)) = first_not_ascending(bounds) {
            return Err(HistogramError::NotAscending { place, bound });
        }
        let mut buckets: Vec<Bucket> = bounds
            .iter()
            .copied()
            .chain([f64::INFINITY])
            .map(|upper| Bucket {
                lower: None,
                upper,
                count: zero,
            })
            .collect();
        for (index, count) in counts {
            let bucket = usize::try_from(*index).ok().and_then(|at| buckets.get_mut(at));
            let Some(bucket) = bucket else {
                return Err(HistogramError::BeyondBounds {
                    reached: index.saturating_add(1),
                    bounds: bounds.len(),
                });
            };
            bucket.count = *count;
        }
        Ok(buckets)
    }
}

impl Side {
    /// Reads a field: spans, deltas, or counts.
    fn read(&mut self, field: u64, value: FieldValue<'_>) -> Result<(), Malformed> {
        match (field, value) {
            (0, FieldValue::Bytes(span)) if self.spans.len() < READ_BUCKETS => {
                self.spans.push(read_span(span)?);
            }
            (1, value) => varints(value, READ_BUCKETS, &mut self.deltas, sint64)?,
            (2, value) => fixed64s(value, READ_BUCKETS, &mut self.counts, f64::from_bits)?,
            _ => {}
        }
        Ok(())
    }

    /// Indices, ascending, and counts.
    fn buckets(&self, sign: Sign, is_float: bool) -> Result<Vec<(i64, Count)>, HistogramError> {
        let counts = if is_float {
            self.counts.len()
        } else {
            self.deltas.len()
        };
        let spanned = self.spans.iter().map(|(_, length)| u64::from(*length)).sum();
        if spanned != counts as u64 {
            return Err(HistogramError::SpansAndCounts {
                sign,
                spanned,
                counts,
            });
        }
        let mut buckets = Vec::with_capacity(counts);
        let mut index = 0_i64;
        let mut last = 0_i64;
        for (place, (offset, length)) in self.spans.iter().enumerate() {
            if place > 0 && *offset < 0 {
                return Err(HistogramError::NegativeOffset {
                    sign,
                    place: place + 1,
                    offset: *offset,
                });
            }
            index += i64::from(*offset);
            for _ in 0..*length {
                let at = buckets.len();
                let wrong = |value| HistogramError::NegativeBucket {
                    sign,
                    place: at + 1,
                    value,
                };
                let count = if is_float {
                    let value = self.counts.get(at).copied().unwrap_or_default();
                    is_count(value)
                        .then_some(Count::Float(value))
                        .ok_or_else(|| wrong(value))?
                } else {
                    let delta = self.deltas.get(at).copied().unwrap_or_default();
                    last = last.saturating_add(delta);
                    let value = u64::try_from(last).map_err(|_| wrong(last as f64))?;
                    Count::Int(value)
                };
                buckets.push((index, count));
                index += 1;
            }
        }
        Ok(buckets)
    }
}

fn is_count(value: f64) -> bool {
    (0.0..f64::INFINITY).contains(&value)
}

fn read_span(mut span: &[u8]) -> Result<(i32, u32), Malformed> {
    let (mut offset, mut length) = (0, 0);
    while let Some((number, value)) = next(&mut span)? {
        match (number, value) {
            (1, FieldValue::Varint(varint)) => offset = sint32(varint),
            (2, FieldValue::Varint(varint)) => {
                length =
                    u32::try_from(varint).map_err(|_| Malformed("the length of a span exceeds 32 bits"))?;
            }
            _ => {}
        }
    }
    Ok((offset, length))
}
