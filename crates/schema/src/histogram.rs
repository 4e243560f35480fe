//! Histograms: counts of values by bucket, as cells of table `tsdb` beside the points of their series.
//!
//! ```text
//!   qualifier  06 | seconds since the base time, 2 bytes, or milliseconds, 4 bytes
//!   value      codec id | histogram in the codec's format
//!                 1
//!   simple     bucket count | lower bound  upper bound  count  | ... | underflow | overflow
//!                   2       |      4            4       1 to 9 |     |  1 to 9   |  1 to 9
//! ```
//!
//! The codec id is a setting of the deployment ([`HistogramCodecs`]). OpenTSDB 2.4 has one format, the simple one: the
//! bucket count is a signed 16-bit integer, bounds are IEEE 754 floats, counts are varints of 64 bits, 7 bits in each
//! byte, the least significant first, the high bit set while more follow; the ninth byte holds 8 bits. Buckets ascend by
//! their bounds. Unlike an annotation's, a qualifier is not folded: a whole second sent as milliseconds has 4 bytes.
//!
//! A histogram is one put. It is never appended or compacted.
//!
//! Source: OpenTSDB 2.4, `SimpleHistogram`, `SimpleHistogramDecoder`, `TSDB.addHistogramPoint`,
//! `Internal.getQualifier`, `Internal.decodeHistogramDataPoint`; `Output.writeLong` of Kryo 2.21.

mod codecs;
mod text;
mod varint;

use std::cmp::Ordering;

use smallvec::SmallVec;
use thiserror::Error;

use crate::hex_text::excerpt;
use crate::timestamp::Timestamp;
pub use codecs::{HistogramCodecs, HistogramCodecsError};
pub use text::{BucketTextError, parse_bounds, parse_count, parse_histogram};

/// The first byte of a qualifier.
const PREFIX: u8 = 0x06;

/// The most buckets that the simple format can hold: the count is a signed 16-bit integer.
pub const MAX_BUCKETS: usize = 0x7fff;

/// The fewest bytes of a bucket: two bounds and a count.
const SHORTEST_BUCKET: usize = 9;

/// The qualifier of a histogram.
pub type HistogramQualifier = SmallVec<[u8; 5]>;

/// The qualifier of the histogram of an instant.
pub fn qualifier(time: Timestamp) -> HistogramQualifier {
    let mut qualifier = SmallVec::from_slice(&[PREFIX]);
    let offset_ms = time.offset_ms();
    if time.is_millis() {
        qualifier.extend_from_slice(&offset_ms.to_be_bytes());
    } else {
        let [_, _, seconds @ ..] = (offset_ms / 1000).to_be_bytes();
        qualifier.extend_from_slice(&seconds);
    }
    qualifier
}

/// Milliseconds since the base time that a qualifier states.
///
/// # Errors
///
/// [`HistogramError::Qualifier`] unless it has the form of a histogram's and an offset within the hour.
pub fn offset_ms(qualifier: &[u8]) -> Result<u32, HistogramError> {
    let offset_ms = match *qualifier {
        [PREFIX, a, b] => u32::from(u16::from_be_bytes([a, b])) * 1000,
        [PREFIX, a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => u32::MAX,
    };
    if offset_ms < crate::timestamp::HOUR_SECONDS * 1000 {
        return Ok(offset_ms);
    }
    Err(HistogramError::Qualifier {
        qualifier: excerpt(qualifier),
    })
}

/// Why a cell is not a histogram. All errors are permanent.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum HistogramError {
    /// Not a histogram's qualifier, or an offset beyond the hour.
    #[error(
        "qualifier `{qualifier}` is not that of a histogram: 06, then seconds in 2 bytes or milliseconds in 4, \
         below one hour"
    )]
    Qualifier {
        /// The qualifier, as hex.
        qualifier: String,
    },
    /// No bytes, not even a codec id.
    #[error("histogram is empty, expected a codec id")]
    Empty,
    /// A codec id that is not configured.
    #[error("No codec found mapped to ID {id}")]
    UnknownCodec {
        /// The id.
        id: u8,
    },
    /// A negative number of buckets.
    #[error("histogram `{value}` has a bucket count of {count}, expected 0 to {MAX_BUCKETS}")]
    BucketCount {
        /// The value, as hex.
        value: String,
        /// The stored number.
        count: i16,
    },
    /// The value ends too early.
    #[error("histogram `{value}` ends within {part}")]
    CutOff {
        /// The value, as hex.
        value: String,
        /// Which part is not complete.
        part: &'static str,
    },
    /// More buckets than the format holds.
    #[error("histogram has {count} buckets, at most {MAX_BUCKETS} are allowed")]
    TooManyBuckets {
        /// Their number.
        count: usize,
    },
}

/// The bounds of a bucket: it counts values from the lower bound up to the upper one.
///
/// Ordered as Java's `Float.compare` orders the lower bounds, then the upper ones: -0 is below 0, NaN above all.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The lower bound.
    pub lower: f32,
    /// The upper bound.
    pub upper: f32,
}

/// All NaNs are one number for Java.
fn float_order(left: f32, right: f32) -> Ordering {
    match (left.is_nan(), right.is_nan()) {
        (false, false) => left.total_cmp(&right),
        (left, right) => left.cmp(&right),
    }
}

impl Ord for Bounds {
    fn cmp(&self, other: &Self) -> Ordering {
        float_order(self.lower, other.lower).then_with(|| float_order(self.upper, other.upper))
    }
}

impl PartialOrd for Bounds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bounds {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bounds {}

/// A bucket with its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Its bounds.
    pub bounds: Bounds,
    /// How many values it has. Negative numbers can be stored.
    pub count: i64,
}

/// A histogram of the simple format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Ascending, no bounds twice.
    buckets: Vec<Bucket>,
    /// Values below all buckets.
    pub underflow: i64,
    /// Values above all buckets.
    pub overflow: i64,
}

impl Histogram {
    /// A histogram of buckets in any order. Of two with the same bounds, the last one counts.
    ///
    /// # Errors
    ///
    /// [`HistogramError::TooManyBuckets`].
    pub fn new(mut buckets: Vec<Bucket>, underflow: i64, overflow: i64) -> Result<Histogram, HistogramError> {
        if !buckets.is_sorted_by(|left, right| left.bounds < right.bounds) {
            // After reversing and a stable sort, the last one is the first of its bounds.
            buckets.reverse();
            buckets.sort_by_key(|bucket| bucket.bounds);
            buckets.dedup_by_key(|bucket| bucket.bounds);
        }
        if buckets.len() > MAX_BUCKETS {
            let count = buckets.len();
            return Err(HistogramError::TooManyBuckets { count });
        }
        Ok(Histogram {
            buckets,
            underflow,
            overflow,
        })
    }

    /// The buckets, ascending by their bounds.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The count of a bucket; 0 if there is none with these bounds.
    pub fn count(&self, bounds: Bounds) -> i64 {
        let place = self.buckets.binary_search_by_key(&bounds, |bucket| bucket.bounds);
        place
            .ok()
            .and_then(|place| self.buckets.get(place))
            .map_or(0, |bucket| bucket.count)
    }

    /// Adds the counts of another histogram; sums wrap around as in Java. The result can have more buckets than a cell.
    pub fn add(&mut self, other: &Histogram) {
        self.underflow = self.underflow.wrapping_add(other.underflow);
        self.overflow = self.overflow.wrapping_add(other.overflow);
        let mine = self.buckets.iter().map(|bucket| bucket.bounds);
        if mine.eq(other.buckets.iter().map(|bucket| bucket.bounds)) {
            for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
                mine.count = mine.count.wrapping_add(theirs.count);
            }
            return;
        }
        self.buckets.extend_from_slice(&other.buckets);
        // The sort is stable and finds the two runs.
        self.buckets.sort_by_key(|bucket| bucket.bounds);
        self.buckets.dedup_by(|second, first| {
            let is_same = first.bounds == second.bounds;
            if is_same {
                first.count = first.count.wrapping_add(second.count);
            }
            is_same
        });
    }

    /// The value at a percentile: the middle of the bucket in which the counts from the lowest bucket reach that share,
    /// in percent, of all buckets' counts; underflow and overflow do not count. -1 unless the percentile is 1 to 100,
    /// and 0 if no bucket reaches it, as for NaN.
    ///
    /// As in OpenTSDB, counts are taken modulo 2^32 and summed with 32 bits.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "documented"
    )]
    pub fn percentile(&self, percentile: f32) -> f64 {
        let percentile = f64::from(percentile);
        if !percentile.is_nan() && !(1.0..=100.0).contains(&percentile) {
            return -1.0;
        }
        let counts = || self.buckets.iter().map(|bucket| bucket.count as i32);
        let all = f64::from(counts().fold(0_i32, i32::wrapping_add));
        let mut running = 0_i64;
        for (bucket, count) in self.buckets.iter().zip(counts()) {
            running += i64::from(count);
            if running as f64 * 100.0 / all >= percentile {
                return f64::from((bucket.bounds.lower + bucket.bounds.upper) / 2.0);
            }
        }
        0.0
    }

    /// Appends the histogram in the simple format to `out`, without a codec id.
    ///
    /// # Errors
    ///
    /// [`HistogramError::TooManyBuckets`], which only [`Histogram::add`] can cause.
    pub fn write_to(&self, out: &mut Vec<u8>) -> Result<(), HistogramError> {
        let count = self.buckets.len();
        let stored = i16::try_from(count).map_err(|_| HistogramError::TooManyBuckets { count })?;
        out.reserve(2 + count * (SHORTEST_BUCKET + 1) + 2);
        out.extend_from_slice(&stored.to_be_bytes());
        for bucket in &self.buckets {
            out.extend_from_slice(&bucket.bounds.lower.to_be_bytes());
            out.extend_from_slice(&bucket.bounds.upper.to_be_bytes());
            varint::write(bucket.count, out);
        }
        varint::write(self.underflow, out);
        varint::write(self.overflow, out);
        Ok(())
    }

    /// Decodes the simple format, without a codec id. As OpenTSDB, accepts buckets in any order, takes the last of those
    /// with the same bounds, and ignores bytes behind the end.
    ///
    /// # Errors
    ///
    /// [`HistogramError::CutOff`] and [`HistogramError::BucketCount`].
    pub fn read(bytes: &[u8]) -> Result<Histogram, HistogramError> {
        let cut_off = |part| HistogramError::CutOff {
            value: excerpt(bytes),
            part,
        };
        let (count, mut rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| cut_off("its bucket count"))?;
        let stored = i16::from_be_bytes(*count);
        let count = usize::try_from(stored).map_err(|_| HistogramError::BucketCount {
            value: excerpt(bytes),
            count: stored,
        })?;
        // A short value cannot reserve memory for many buckets.
        let mut buckets = Vec::with_capacity(count.min(rest.len() / SHORTEST_BUCKET));
        for _ in 0..count {
            let bucket = read_bucket(&mut rest).ok_or_else(|| cut_off("a bucket"))?;
            buckets.push(bucket);
        }
        let underflow = varint::read(&mut rest).ok_or_else(|| cut_off("the underflow"))?;
        let overflow = varint::read(&mut rest).ok_or_else(|| cut_off("the overflow"))?;
        Histogram::new(buckets, underflow, overflow)
    }
}

fn read_bucket(rest: &mut &[u8]) -> Option<Bucket> {
    let (lower, behind) = rest.split_first_chunk()?;
    let (upper, behind) = behind.split_first_chunk()?;
    *rest = behind;
    let bounds = Bounds {
        lower: f32::from_be_bytes(*lower),
        upper: f32::from_be_bytes(*upper),
    };
    let count = varint::read(rest)?;
    Some(Bucket { bounds, count })
}

#[cfg(test)]
mod tests;
