//! Converts aggregators of the contract.
//!
//! Functions have OpenTSDB's names in upper case, so this module needs no table of them. A percentile is the
//! aggregator with the same rank and estimator.

use oxtsdb_proto::data::v1::aggregator::Kind;
use oxtsdb_proto::data::v1::percentile::Estimator;
use oxtsdb_proto::data::v1::{AggregateFunction, Aggregator as AggregatorMessage, Percentile};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_query::Aggregator;
use oxtsdb_query::function::aggregator::{Estimate, Function};
use tonic::Status;

use super::field_error::{missing, no_such};

/// The aggregator of a message.
pub(super) fn aggregator(field: &str, message: Option<&AggregatorMessage>) -> Result<Aggregator, Status> {
    match message.map(|message| &message.kind) {
        None => Err(missing(field)),
        Some(None) => Err(invalid_field(field, "is empty, expected function or percentile")),
        Some(Some(Kind::Function(number))) => function(&format!("{field}.function"), *number),
        Some(Some(Kind::Percentile(message))) => percentile(&format!("{field}.percentile"), message),
    }
}

fn function(field: &str, number: i32) -> Result<Aggregator, Status> {
    let function = AggregateFunction::try_from(number).map_err(|_| no_such(field, number))?;
    let name = function.as_str_name().trim_start_matches("AGGREGATE_FUNCTION_");
    Aggregator::ALL
        .iter()
        .find(|aggregator| aggregator.name().eq_ignore_ascii_case(name))
        .copied()
        .ok_or_else(|| no_such(field, number))
}

fn percentile(field: &str, message: &Percentile) -> Result<Aggregator, Status> {
    let estimator = Estimator::try_from(message.estimator)
        .map_err(|_| no_such(&format!("{field}.estimator"), message.estimator))?;
    let estimate = match estimator {
        Estimator::Unspecified | Estimator::Legacy => Estimate::Legacy,
        Estimator::R3 => Estimate::R3,
        Estimator::R7 => Estimate::R7,
    };
    let is_requested = |aggregator: &&Aggregator| {
        matches!(
            aggregator.function(),
            Some(Function::Percentile { percent, of_ints, .. }) if percent == message.rank && of_ints == estimate
        )
    };
    let percentile = Aggregator::ALL.iter().find(is_requested).copied();
    percentile.ok_or_else(|| {
        let rule = format!("is {}, expected 50, 75, 90, 95, 99 or 99.9", message.rank);
        invalid_field(&format!("{field}.rank"), rule)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_function(function: AggregateFunction) -> AggregatorMessage {
        AggregatorMessage {
            kind: Some(Kind::Function(function.into())),
        }
    }

    #[test]
    fn functions_and_aggregators_match_one_to_one() {
        let functions = (1..).map_while(|number| AggregateFunction::try_from(number).ok());
        let functions = functions.map(from_function);
        let percentile = |rank: &f64, estimator| AggregatorMessage {
            kind: Some(Kind::Percentile(Percentile {
                rank: *rank,
                estimator,
            })),
        };
        let ranks = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
        let percentiles = ranks
            .iter()
            .flat_map(|rank| (1..=3).map(move |estimator| percentile(rank, estimator)));
        let all = functions.chain(percentiles);
        let mut names: Vec<_> = all
            .map(|message| aggregator("f", Some(&message)).unwrap().name())
            .collect();
        names.sort_unstable();
        let mut expected: Vec<_> = Aggregator::ALL.iter().map(Aggregator::name).collect();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn rejects_missing_and_unknown_aggregators() {
        for message in [
            None,
            Some(AggregatorMessage { kind: None }),
            Some(from_function(AggregateFunction::Unspecified)),
            Some(AggregatorMessage {
                kind: Some(Kind::Function(77)),
            }),
            Some(AggregatorMessage {
                kind: Some(Kind::Percentile(Percentile {
                    rank: 42.0,
                    estimator: 0,
                })),
            }),
        ] {
            assert!(aggregator("f", message.as_ref()).is_err(), "{message:?}");
        }
    }
}
