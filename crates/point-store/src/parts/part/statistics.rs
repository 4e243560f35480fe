//! Statistics of a block.
//!
//! ```text
//!   0   none
//!   1   smallest (signed varint) | greatest - smallest (varint) | sum (signed varint)     all points are integers
//!   2   smallest | greatest | sum, 8 bytes each                                           all are floating point
//! ```

use crate::{PointKind, ValueKind};
use oxtsdb_storage_file::varint::{self, Reader, zigzag};

/// Statistics of fewer points would take more than a tenth of the block, and are as quick to compute.
const MIN_POINTS: usize = 128;

/// Extremes and sum of the values of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Statistics {
    /// All values are integers.
    Int {
        /// The smallest value.
        min: i64,
        /// The greatest value.
        max: i64,
        /// The sum.
        sum: i64,
    },
    /// All values are of floating point, and finite.
    Float {
        /// The smallest value.
        min: f64,
        /// The greatest value.
        max: f64,
        /// The sum, added up in order of time.
        sum: f64,
    },
}

impl Statistics {
    /// Of the values of a block. `None` if there are few, if integers and floating-point values are mixed, and if the
    /// sum overflows or is not a number.
    pub(super) fn from_values(kinds: &[PointKind], bits: &[u64]) -> Option<Self> {
        if bits.len() < MIN_POINTS {
            return None;
        }
        let ints = kinds.iter().filter(|kind| kind.value() == ValueKind::Int).count();
        if ints == kinds.len() {
            return Self::from_ints(bits);
        }
        if ints > 0 {
            return None;
        }
        let values = || bits.iter().map(|bits| f64::from_bits(*bits));
        // Not -0.0, with which an empty sum of the iterator begins.
        let sum = values().fold(0.0, |sum, value| sum + value);
        sum.is_finite().then(|| Self::Float {
            min: values().fold(f64::INFINITY, f64::min),
            max: values().fold(f64::NEG_INFINITY, f64::max),
            sum,
        })
    }

    fn from_ints(bits: &[u64]) -> Option<Self> {
        let (mut min, mut max, mut sum) = (i64::MAX, i64::MIN, 0_i64);
        for value in bits.iter().map(|bits| bits.cast_signed()) {
            (min, max) = (min.min(value), max.max(value));
            sum = sum.checked_add(value)?;
        }
        Some(Self::Int { min, max, sum })
    }

    /// Appends the statistics.
    pub(super) fn encode(statistics: Option<&Self>, bytes: &mut Vec<u8>) {
        match statistics {
            None => bytes.push(0),
            Some(Self::Int { min, max, sum }) => {
                bytes.push(1);
                varint::put(bytes, zigzag(*min));
                varint::put(bytes, max.wrapping_sub(*min).cast_unsigned());
                varint::put(bytes, zigzag(*sum));
            }
            Some(Self::Float { min, max, sum }) => {
                bytes.push(2);
                for value in [min, max, sum] {
                    bytes.extend_from_slice(&value.to_be_bytes());
                }
            }
        }
    }

    /// Decodes the statistics. The outer `None` means invalid bytes.
    #[expect(clippy::option_option, reason = "invalid, or none")]
    pub(super) fn decode(reader: &mut Reader<'_>) -> Option<Option<Self>> {
        match reader.byte()? {
            0 => Some(None),
            1 => {
                let min = reader.signed()?;
                let max = min.checked_add_unsigned(reader.number()?)?;
                let sum = reader.signed()?;
                Some(Some(Self::Int { min, max, sum }))
            }
            2 => {
                let mut value = || Some(f64::from_be_bytes(reader.array()?));
                let (min, max, sum) = (value()?, value()?, value()?);
                Some(Some(Self::Float { min, max, sum }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(kind: u8, bits: &[u64]) -> Option<Statistics> {
        let statistics =
            Statistics::from_values(&vec![PointKind::from_byte(kind).unwrap(); bits.len()], bits);
        let mut bytes = Vec::new();
        Statistics::encode(statistics.as_ref(), &mut bytes);
        assert_eq!(Statistics::decode(&mut Reader(&bytes)), Some(statistics));
        statistics
    }

    #[test]
    fn statistics_round_trip() {
        let ints: Vec<u64> = (-100..100_i64).map(i64::cast_unsigned).collect();
        let expected = Statistics::Int {
            min: -100,
            max: 99,
            sum: -100,
        };
        assert_eq!(statistics(0, &ints), Some(expected));
        let floats: Vec<u64> = (-100..100_i32).map(|n| f64::from(n).to_bits()).collect();
        let expected = Statistics::Float {
            min: -100.0,
            max: 99.0,
            sum: -100.0,
        };
        assert_eq!(statistics(2, &floats), Some(expected));
    }

    #[test]
    fn sums_without_a_value_are_absent() {
        assert_eq!(statistics(0, &[i64::MAX.cast_unsigned(); 200]), None, "overflow");
        assert_eq!(statistics(2, &[f64::NAN.to_bits(); 200]), None);
        assert_eq!(statistics(2, &[0; 10]), None, "few points");
        assert!(
            statistics(
                0,
                &[i64::MAX.cast_unsigned(), i64::MIN.cast_unsigned()].repeat(100)
            )
            .is_some()
        );
    }
}
