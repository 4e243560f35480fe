//! Encoding of timestamps as differences.

use crate::data::v1::DeltaTimestamps;

impl DeltaTimestamps {
    /// Encodes timestamps; `None` if there are none.
    pub fn encode(timestamps: &[i64]) -> Option<Self> {
        let (first, last) = (timestamps.first()?, timestamps.last()?);
        let deltas = timestamps.windows(2).map(|pair| match pair {
            [before, after] => after.wrapping_sub(*before),
            _ => 0,
        });
        Some(Self {
            first: *first,
            deltas: deltas.collect(),
            last: *last,
        })
    }

    /// The absolute timestamps; `None` if the differences do not add up to the last one.
    pub fn decode(&self) -> Option<Vec<i64>> {
        let mut timestamps = Vec::with_capacity(self.deltas.len() + 1);
        let mut timestamp = self.first;
        timestamps.push(timestamp);
        for delta in &self.deltas {
            timestamp = timestamp.checked_add(*delta)?;
            timestamps.push(timestamp);
        }
        (timestamp == self.last).then_some(timestamps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_the_example_of_the_contract() {
        let encoded = DeltaTimestamps::encode(&[1_700_000_000_000, 1_700_000_010_000, 1_700_000_020_500]);
        let expected = DeltaTimestamps {
            first: 1_700_000_000_000,
            deltas: vec![10_000, 10_500],
            last: 1_700_000_020_500,
        };
        assert_eq!(encoded, Some(expected));
        assert_eq!(DeltaTimestamps::encode(&[]), None);
    }

    #[test]
    fn decodes_what_adds_up() {
        let timestamps = vec![1_700_000_000_000, 1_700_000_010_000, 1_700_000_005_500];
        let encoded = DeltaTimestamps::encode(&timestamps).unwrap();
        assert_eq!(encoded.decode(), Some(timestamps));
        let offsets = DeltaTimestamps {
            deltas: vec![10_000, 5_500],
            ..encoded
        };
        assert_eq!(offsets.decode(), None);
        let overflow = DeltaTimestamps {
            first: i64::MAX,
            deltas: vec![1],
            last: i64::MIN,
        };
        assert_eq!(overflow.decode(), None);
    }
}
