//! Points of a result.

use oxtsdb_proto::data::v1::query_response as pb;

use crate::{Error, Timestamp, Value};

/// Points of one series of a result, ascending; all values have one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// The number of the series in its result.
    pub series: u32,
    /// When.
    pub timestamps: Vec<Timestamp>,
    /// One for each timestamp.
    pub values: Values,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Integers.
    Ints(Vec<i64>),
    /// Floating-point numbers; NaN where a fill policy generated it.
    Doubles(Vec<f64>),
}

impl Values {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Ints(ints) => ints.len(),
            Self::Doubles(doubles) => doubles.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value at a position.
    pub fn get(&self, position: usize) -> Option<Value> {
        match self {
            Self::Ints(ints) => ints.get(position).copied().map(Value::Int),
            Self::Doubles(doubles) => doubles.get(position).copied().map(Value::Double),
        }
    }
}

impl Points {
    /// Each point.
    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, Value)> {
        let timestamps = self.timestamps.iter().enumerate();
        timestamps.filter_map(|(position, timestamp)| Some((*timestamp, self.values.get(position)?)))
    }
}

impl TryFrom<pb::Points> for Points {
    type Error = Error;

    fn try_from(points: pb::Points) -> Result<Self, Error> {
        let timestamps_ms = match points.delta_timestamps {
            Some(encoded) => {
                let invalid = || Error::protocol("the differences of timestamps do not add up");
                encoded.decode().ok_or_else(invalid)?
            }
            None => points.timestamps_ms,
        };
        let timestamps: Vec<Timestamp> = timestamps_ms.into_iter().map(Timestamp::from_millis).collect();
        let count = points.int_values.len() + points.values.len();
        let values = if points.int_values.is_empty() {
            Values::Doubles(points.values)
        } else {
            Values::Ints(points.int_values)
        };
        if timestamps.len() != count || values.len() != count {
            return Err(Error::protocol(format!(
                "{} timestamps for {count} values",
                timestamps.len()
            )));
        }
        Ok(Self {
            series: points.series,
            timestamps,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::data::v1::DeltaTimestamps;

    use super::*;

    fn points(timestamps: &[i64], ints: &[i64], doubles: &[f64]) -> Result<Points, Error> {
        Points::try_from(pb::Points {
            series: 7,
            timestamps_ms: timestamps.to_vec(),
            int_values: ints.to_vec(),
            values: doubles.to_vec(),
            ..pb::Points::default()
        })
    }

    #[test]
    fn timestamps_are_absolute() {
        let points = points(&[1000, 1010, 1015], &[1, 2, 3], &[]).unwrap();
        let timestamps: Vec<_> = points.iter().map(|(timestamp, _)| timestamp.millis()).collect();
        assert_eq!((points.series, timestamps), (7, vec![1000, 1010, 1015]));
        assert_eq!(points.values.get(2), Some(Value::Int(3)));
    }

    #[test]
    fn encoded_timestamps_are_decoded() {
        let encoded = |deltas: &[i64]| {
            Points::try_from(pb::Points {
                delta_timestamps: Some(DeltaTimestamps {
                    first: 1000,
                    deltas: deltas.to_vec(),
                    last: 1015,
                }),
                int_values: vec![1, 2, 3],
                ..pb::Points::default()
            })
        };
        let points = encoded(&[10, 5]).unwrap();
        let timestamps: Vec<_> = points.iter().map(|(timestamp, _)| timestamp.millis()).collect();
        assert_eq!(timestamps, [1000, 1010, 1015]);
        assert!(encoded(&[10, 15]).is_err());
        assert!(encoded(&[15]).is_err(), "fewer timestamps than values");
    }

    #[test]
    fn rejects_columns_of_different_lengths() {
        assert!(points(&[0], &[1, 2], &[]).is_err());
        assert!(points(&[0, 1], &[1], &[2.0]).is_err());
        assert!(points(&[], &[], &[]).unwrap().values.is_empty());
    }
}
