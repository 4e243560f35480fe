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
}
