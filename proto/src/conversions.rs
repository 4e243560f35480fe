//! Conversions between messages.

use crate::data::v1::aggregator::Kind;
use crate::data::v1::percentile::Estimator;
use crate::data::v1::{AggregateFunction, Aggregator, Percentile};

impl From<AggregateFunction> for Aggregator {
    fn from(function: AggregateFunction) -> Self {
        Self {
            kind: Some(Kind::Function(function.into())),
        }
    }
}

impl Aggregator {
    /// A percentile; `rank` is in percent.
    pub fn percentile(rank: f64, estimator: Estimator) -> Self {
        Self {
            kind: Some(Kind::Percentile(Percentile {
                rank,
                estimator: estimator.into(),
            })),
        }
    }
}
