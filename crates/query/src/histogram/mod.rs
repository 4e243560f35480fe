//! Sub-queries of histograms: percentiles, and the counts of buckets.
//!
//! ```text
//!   plan ─► rows ─► histograms by series ─► windows: sums ─► groups: sums ─► percentiles, buckets ─► results
//! ```
//!
//! Each percentile and each bucket of a group is a result of its own, with a suffix of its metric. Rates, fill policies
//! and interpolation do not apply. Cells that do not decode are left out, counted and reported: OpenTSDB leaves them
//! out too.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.HistogramGroupByAndAggregateCB`, `TSSubQuery.checkHistogramQuery`.

mod merge;
mod read;
mod results;
mod run;

use oxtsdb_schema::java;

use crate::function::aggregator::Function;
use crate::function::downsample::Fill;
use crate::spec::SubQuery;
pub use results::{HistogramPart, HistogramResults, MAX_PERCENTILES};
pub(crate) use run::HistogramExecution;

/// Error of a sub-query that cannot be one of histograms. Has OpenTSDB's messages.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum HistogramQueryError {
    /// An aggregator other than `sum` and `none`.
    #[error("Only NONE or SUM aggregation function supported for histogram query")]
    Aggregator,
    /// Downsampling other than by `sum`.
    #[error("Only SUM downsampling aggregation supported for histogram query")]
    Downsampling,
    /// A percentile that is not between 0 and 100.
    #[error("Invalid percentile parameters: {}", java::float_to_string(*percentile))]
    Percentile {
        /// The rejected number.
        percentile: f32,
    },
    /// More percentiles than a sub-query may have.
    #[error("sub-query has {count} percentiles, at most {MAX_PERCENTILES} are allowed")]
    TooManyPercentiles {
        /// Their number.
        count: usize,
    },
}

impl SubQuery {
    /// The sub-query of histograms. Its fill policy has no effect.
    ///
    /// # Errors
    ///
    /// [`HistogramQueryError`].
    pub fn with_histograms(mut self, results: HistogramResults) -> Result<SubQuery, HistogramQueryError> {
        if !matches!(self.aggregator.name(), "sum" | "none") {
            return Err(HistogramQueryError::Aggregator);
        }
        if let Some(downsample) = &mut self.downsample {
            if downsample.name != "sum" || downsample.function != Function::Sum {
                return Err(HistogramQueryError::Downsampling);
            }
            downsample.fill = Fill::None;
        }
        let count = results.percentiles.len();
        if count > MAX_PERCENTILES {
            return Err(HistogramQueryError::TooManyPercentiles { count });
        }
        let is_wrong = |percentile: &&f32| **percentile < 0.0 || **percentile > 100.0;
        if let Some(percentile) = results.percentiles.iter().find(is_wrong) {
            let percentile = *percentile;
            return Err(HistogramQueryError::Percentile { percentile });
        }
        self.histogram = Some(results);
        Ok(self)
    }
}
