//! A point: instant, resolution, type and bits of its value.

use oxtsdb_schema::timestamp::MAX_MILLIS;
use oxtsdb_schema::value::ValueError;
use oxtsdb_schema::{Timestamp, Value};

/// The resolution that a timestamp was written with. OpenTSDB stores seconds in 2 bytes, milliseconds in 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Whole seconds.
    Seconds,
    /// Milliseconds, also if they are whole seconds.
    Millis,
}

/// The type of a value, which is also its width: integers take the fewest of 1, 2, 4 and 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueKind {
    /// An integer.
    Int,
    /// A floating-point value of 4 bytes.
    Float,
    /// A floating-point value of 8 bytes.
    Double,
}

/// Resolution and type of a point in one byte: bits 0 and 1 are the type (0 integer, 1 float, 2 double), bit 2 is set
/// for milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointKind(u8);

/// A point of a series.
///
/// `bits` has an integer as two's complement; a floating-point value of either width as the bits of the equal double
/// (a NaN of 4 bytes keeps its payload in the upper bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Milliseconds since the epoch, 0 to [`oxtsdb_schema::timestamp::MAX_MILLIS`]; a multiple of 1000 if the
    /// resolution is seconds.
    pub time_ms: i64,
    /// Resolution and type.
    pub kind: PointKind,
    /// The value; see above.
    pub bits: u64,
}

const VALUE_MASK: u8 = 3;
const MILLIS: u8 = 4;

impl PointKind {
    /// An integer in seconds: the initial kind of encodings.
    pub(crate) const START: Self = Self(0);

    /// The kind of a resolution and a type.
    pub const fn new(resolution: Resolution, value: ValueKind) -> Self {
        let value = match value {
            ValueKind::Int => 0,
            ValueKind::Float => 1,
            ValueKind::Double => 2,
        };
        Self(match resolution {
            Resolution::Seconds => value,
            Resolution::Millis => value | MILLIS,
        })
    }

    /// The kind that a byte encodes; `None` if it encodes none.
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if byte & !(VALUE_MASK | MILLIS) == 0 && byte & VALUE_MASK != 3 {
            Some(Self(byte))
        } else {
            None
        }
    }

    /// The encoding in one byte; it uses the lowest 3 bits.
    #[inline]
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The resolution.
    #[inline]
    pub const fn resolution(self) -> Resolution {
        if self.0 & MILLIS == 0 {
            Resolution::Seconds
        } else {
            Resolution::Millis
        }
    }

    /// The type of the value.
    #[inline]
    pub const fn value(self) -> ValueKind {
        match self.0 & VALUE_MASK {
            0 => ValueKind::Int,
            1 => ValueKind::Float,
            _ => ValueKind::Double,
        }
    }
}

impl std::fmt::Debug for PointKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}{:?}", self.resolution(), self.value())
    }
}

impl Point {
    /// The point of a timestamp and a value.
    pub fn new(timestamp: Timestamp, value: &Value) -> Self {
        let resolution = if timestamp.is_millis() {
            Resolution::Millis
        } else {
            Resolution::Seconds
        };
        Self::from_value(timestamp.as_millis(), resolution, value)
    }

    /// The point of an instant and a value.
    pub(crate) fn from_value(time_ms: i64, resolution: Resolution, value: &Value) -> Self {
        let (kind, bits) = match value {
            Value::Int(value) => (ValueKind::Int, value.cast_unsigned()),
            Value::Float(value) => (ValueKind::Float, widen(*value).to_bits()),
            Value::Double(value) => (ValueKind::Double, value.to_bits()),
        };
        Self {
            time_ms,
            kind: PointKind::new(resolution, kind),
            bits,
        }
    }

    /// The timestamp, in the resolution of the point.
    pub fn timestamp(&self) -> Timestamp {
        let time_ms = self.time_ms.clamp(0, MAX_MILLIS);
        match self.kind.resolution() {
            Resolution::Seconds => Timestamp::from_seconds(u32::try_from(time_ms / 1000).unwrap_or(u32::MAX)),
            Resolution::Millis => {
                Timestamp::from_millis(time_ms).unwrap_or_else(|_| Timestamp::from_seconds(u32::MAX))
            }
        }
    }

    /// The value.
    ///
    /// # Errors
    ///
    /// If it is a NaN or infinite, which OpenTSDB's values are not.
    pub fn value(&self) -> Result<Value, ValueError> {
        match self.kind.value() {
            ValueKind::Int => Ok(Value::Int(self.bits.cast_signed())),
            ValueKind::Float => Value::float(narrow(self.bits)),
            ValueKind::Double => Value::double(f64::from_bits(self.bits)),
        }
    }
}

/// The equal double; the payload of a NaN is kept, which a cast does not promise.
pub(crate) fn widen(value: f32) -> f64 {
    if value.is_nan() {
        let bits = u64::from(value.to_bits());
        let sign = bits >> 31 << 63;
        return f64::from_bits(sign | 0x7ff << 52 | (bits & 0x7f_ffff) << 29);
    }
    f64::from(value)
}

/// The float that has these bits once [`widen`]ed.
#[expect(clippy::cast_possible_truncation, reason = "the double equals a float")]
pub(crate) fn narrow(bits: u64) -> f32 {
    let value = f64::from_bits(bits);
    if value.is_nan() {
        let payload = u32::try_from(bits >> 29 & 0x7f_ffff).unwrap_or(1);
        let sign = u32::from(value.is_sign_negative()) << 31;
        return f32::from_bits(sign | 0xff << 23 | payload);
    }
    value as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip_as_bytes() {
        let kinds = (0..=u8::MAX).filter_map(PointKind::from_byte);
        let bytes: Vec<u8> = kinds
            .map(|kind| PointKind::new(kind.resolution(), kind.value()).byte())
            .collect();
        assert_eq!(bytes, [0, 1, 2, 4, 5, 6]);
    }

    #[test]
    fn floats_keep_their_bits() {
        for bits in [
            0,
            1,
            0x8000_0000,
            0x3fc0_0000,
            0x7f80_0000,
            0xff80_0001,
            0x7fc0_1234,
        ] {
            let wide = widen(f32::from_bits(bits)).to_bits();
            assert_eq!(narrow(wide).to_bits(), bits, "{bits:x}");
        }
    }

    #[test]
    fn points_return_their_values() {
        let time = Timestamp::from_seconds(1_700_000_000);
        for value in [Value::Int(-7), Value::Float(1.5), Value::Double(0.1)] {
            let point = Point::new(time, &value);
            assert_eq!(point.time_ms, 1_700_000_000_000);
            assert_eq!(point.kind.resolution(), Resolution::Seconds);
            assert_eq!(point.value().unwrap(), value);
        }
    }
}
