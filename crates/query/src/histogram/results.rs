//! Results of histograms: the requested ones, and the part of a histogram that each has.

use std::fmt;

use oxtsdb_schema::histogram::Bounds;
use oxtsdb_schema::java;

/// Most percentiles of a sub-query.
pub const MAX_PERCENTILES: usize = 100;

/// The requested results of a sub-query of histograms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramResults {
    /// The percentiles, 0 to 100, ascending.
    pub percentiles: Vec<f32>,
    /// Whether to return the counts of buckets.
    pub buckets: bool,
}

impl HistogramResults {
    /// The percentiles in any order, and whether to return buckets; `None` if nothing is requested.
    pub fn from_parameters(mut percentiles: Vec<f32>, buckets: bool) -> Option<HistogramResults> {
        // As Java sorts: NaN comes last.
        percentiles.sort_by(|left, right| match (left.is_nan(), right.is_nan()) {
            (false, false) => left.total_cmp(right),
            (left, right) => left.cmp(&right),
        });
        (buckets || !percentiles.is_empty()).then_some(HistogramResults { percentiles, buckets })
    }
}

/// The part of its histograms that a result has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HistogramPart {
    /// The values at a percentile.
    Percentile(f32),
    /// The counts of values below all buckets.
    Underflow,
    /// The counts of a bucket.
    Bucket(Bounds),
    /// The counts of values above all buckets.
    Overflow,
}

impl fmt::Display for HistogramPart {
    /// The suffix of the metric: `_pct_99.9`, `_UNDERFLOW`, `_0.0_1.75`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percentile(percentile) => write!(f, "_pct_{}", java::float_to_string(*percentile)),
            Self::Underflow => f.write_str("_UNDERFLOW"),
            Self::Bucket(Bounds { lower, upper }) => {
                let (lower, upper) = (java::float_to_string(*lower), java::float_to_string(*upper));
                write!(f, "_{lower}_{upper}")
            }
            Self::Overflow => f.write_str("_OVERFLOW"),
        }
    }
}
