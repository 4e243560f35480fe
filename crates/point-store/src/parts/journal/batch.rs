//! The encoding of a batch of points in the journal.
//!
//! ```text
//!   point     control (1) | series | time | value
//!   control   252 values: value code (28) + 28 * time code (3) + 84 * series code (3)
//!   series    code 0: as the previous point; 1: the next number; 2: a difference follows
//!   time      code 0: as predicted; 1: a difference in seconds follows; 2: one in milliseconds
//!   value     code 0 to 13 with seconds, 14 to 27 with milliseconds:
//!               0        integer
//!               1 to 5   float: an integer, to be divided by 10^(code - 1)
//!               6, 7     float: its 4 bytes; the 8 bytes of a double that is no float
//!               8 to 12  double: an integer, to be divided by 10^(code - 8)
//!               13       double: its 8 bytes
//! ```
//!
//! Differences and integers are zigzag varints; differences wrap, so that any batch can be encoded. The predicted time
//! is the previous point's, plus the last difference if the series is the same: agents send many series with one
//! instant, imports send a series at regular instants. The first point follows series 0 at time 0.
//!
//! Most measured values are decimals of few digits: 12.5 is encoded as 125. This is done only if the division restores
//! the same bits.

use crate::point::{narrow, widen};
use crate::{Point, PointBatch, PointKind, Resolution, SeriesNumber, ValueKind};
use oxtsdb_storage_file::varint::{self, Reader};

const VALUE_CODES: u8 = 28;
const TIME_CODES: u8 = 3;
const SERIES_CODES: u8 = 3;
const SAME: u8 = 0;
const NEXT: u8 = 1;
const PREDICTED: u8 = 0;
const SECONDS: u8 = 1;
const OTHER: u8 = 2;

/// First of the value codes with milliseconds.
const MILLIS_CODES: u8 = 14;
const INT: u8 = 0;
const FLOAT: u8 = 1;
const FLOAT_BITS: u8 = 6;
const FLOAT_WIDE: u8 = 7;
const DOUBLE: u8 = 8;
const DOUBLE_BITS: u8 = 13;

/// Fractional digits of a decimal are at most these.
const MAX_DIGITS: u8 = 4;
const POWERS: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];
/// Integers below this are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Bytes of a point, at least: control and value.
const MIN_POINT: usize = 2;

/// The points of a batch as the journal has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedBatch {
    pub(super) points: usize,
    pub(super) bytes: Vec<u8>,
}

impl EncodedBatch {
    /// Encodes a batch.
    pub fn from_batch(batch: &PointBatch) -> Self {
        let mut bytes = Vec::with_capacity(batch.len() * 8 + 16);
        let mut previous = Previous::default();
        let values = batch.kinds().iter().zip(batch.bits());
        for ((series, time_ms), (kind, bits)) in batch.series().iter().zip(batch.times_ms()).zip(values) {
            let series_difference = i64::from(series.0) - i64::from(previous.series);
            let series_code = match series_difference {
                0 => SAME,
                1 => NEXT,
                _ => OTHER,
            };
            let difference = time_ms.wrapping_sub(previous.time_ms);
            let time_code = if difference == previous.predicted(series_code) {
                PREDICTED
            } else if difference % 1000 == 0 {
                SECONDS
            } else {
                OTHER
            };
            let value = Value::new(*kind, *bits);
            bytes.push(value.code + VALUE_CODES * (time_code + TIME_CODES * series_code));
            if series_code == OTHER {
                varint::put(&mut bytes, varint::zigzag(series_difference));
            }
            match time_code {
                PREDICTED => {}
                SECONDS => varint::put(&mut bytes, varint::zigzag(difference / 1000)),
                _ => varint::put(&mut bytes, varint::zigzag(difference)),
            }
            value.put(&mut bytes);
            previous.advance(series.0, difference);
        }
        Self {
            points: batch.len(),
            bytes,
        }
    }

    /// The number of points.
    pub const fn len(&self) -> usize {
        self.points
    }

    /// Whether there are no points.
    pub const fn is_empty(&self) -> bool {
        self.points == 0
    }

    /// Bytes of the encoding.
    pub const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the points to a batch. `false` if the bytes encode something else; the batch may then have some of the
    /// points.
    #[must_use]
    pub fn decode(&self, batch: &mut PointBatch) -> bool {
        decode(self.points, &self.bytes, batch).is_some()
    }
}

/// Appends `points` points to a batch, which must use all bytes.
pub(super) fn decode(points: usize, bytes: &[u8], batch: &mut PointBatch) -> Option<()> {
    if points > bytes.len() / MIN_POINT {
        return None;
    }
    batch.reserve(points);
    let mut reader = Reader(bytes);
    let mut previous = Previous::default();
    for _ in 0..points {
        let control = reader.byte()?;
        let codes = control / VALUE_CODES;
        let series_code = codes / TIME_CODES;
        let series = match series_code {
            SAME => previous.series,
            NEXT => previous.series.checked_add(1)?,
            OTHER => {
                let number = i64::from(previous.series).checked_add(reader.signed()?)?;
                u32::try_from(number).ok()?
            }
            SERIES_CODES.. => return None,
        };
        let difference = match codes % TIME_CODES {
            PREDICTED => previous.predicted(series_code),
            SECONDS => reader.signed()?.checked_mul(1000)?,
            _ => reader.signed()?,
        };
        previous.advance(series, difference);
        let (kind, bits) = read_value(control % VALUE_CODES, &mut reader)?;
        let point = Point {
            time_ms: previous.time_ms,
            kind,
            bits,
        };
        batch.push(SeriesNumber(series), point);
    }
    reader.0.is_empty().then_some(())
}

/// The previous point.
#[derive(Default)]
struct Previous {
    series: u32,
    time_ms: i64,
    /// How far the time has last advanced.
    step: i64,
}

impl Previous {
    /// The difference to the next point's time.
    #[inline]
    fn predicted(&self, series_code: u8) -> i64 {
        if series_code == SAME { self.step } else { 0 }
    }

    #[inline]
    fn advance(&mut self, series: u32, difference: i64) {
        self.series = series;
        self.time_ms = self.time_ms.wrapping_add(difference);
        self.step = difference;
    }
}

/// A value, as it is encoded.
struct Value {
    code: u8,
    form: Form,
}

enum Form {
    Varint(u64),
    Four([u8; 4]),
    Eight([u8; 8]),
}

impl Value {
    #[inline]
    fn new(kind: PointKind, bits: u64) -> Self {
        let (code, form) = match kind.value() {
            ValueKind::Int => (INT, Form::Varint(varint::zigzag(bits.cast_signed()))),
            ValueKind::Float => match decimal(bits, restore_float, 28) {
                Some((digits, number)) => (FLOAT + digits, Form::Varint(number)),
                None if widen(narrow(bits)).to_bits() == bits => {
                    (FLOAT_BITS, Form::Four(narrow(bits).to_bits().to_be_bytes()))
                }
                None => (FLOAT_WIDE, Form::Eight(bits.to_be_bytes())),
            },
            ValueKind::Double => match decimal(bits, restore_double, 56) {
                Some((digits, number)) => (DOUBLE + digits, Form::Varint(number)),
                None => (DOUBLE_BITS, Form::Eight(bits.to_be_bytes())),
            },
        };
        let code = match kind.resolution() {
            Resolution::Seconds => code,
            Resolution::Millis => code + MILLIS_CODES,
        };
        Self { code, form }
    }

    #[inline]
    fn put(&self, bytes: &mut Vec<u8>) {
        match &self.form {
            Form::Varint(number) => varint::put(bytes, *number),
            Form::Four(four) => bytes.extend_from_slice(four),
            Form::Eight(eight) => bytes.extend_from_slice(eight),
        }
    }
}

#[inline]
fn read_value(code: u8, reader: &mut Reader<'_>) -> Option<(PointKind, u64)> {
    let (resolution, code) = match code.checked_sub(MILLIS_CODES) {
        Some(code) => (Resolution::Millis, code),
        None => (Resolution::Seconds, code),
    };
    let (kind, bits) = match code {
        INT => (ValueKind::Int, reader.signed()?.cast_unsigned()),
        FLOAT..FLOAT_BITS => (ValueKind::Float, restore_float(reader.signed()?, code - FLOAT)),
        FLOAT_BITS => {
            let float = f32::from_bits(u32::from_be_bytes(reader.array()?));
            (ValueKind::Float, widen(float).to_bits())
        }
        FLOAT_WIDE => (ValueKind::Float, u64::from_be_bytes(reader.array()?)),
        DOUBLE..DOUBLE_BITS => (ValueKind::Double, restore_double(reader.signed()?, code - DOUBLE)),
        _ => (ValueKind::Double, u64::from_be_bytes(reader.array()?)),
    };
    Some((PointKind::new(resolution, kind), bits))
}

/// The digits behind the point, and the zigzag integer, if `restore` returns the same bits from them and they take
/// fewer than `max_bits` bits.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "checked by restoring the value")]
fn decimal(bits: u64, restore: impl Fn(i64, u8) -> u64, max_bits: u32) -> Option<(u8, u64)> {
    let scaled = f64::from_bits(bits) * POWERS[usize::from(MAX_DIGITS)];
    // Also false for a NaN.
    let is_exact = scaled.abs() < EXACT;
    let mut number = (scaled + 0.5_f64.copysign(scaled)) as i64;
    if !is_exact || restore(number, MAX_DIGITS) != bits {
        return None;
    }
    // The quotient is the same number with fewer digits, and division rounds it to the same double.
    let mut digits = MAX_DIGITS;
    while digits > 0 && number % 10 == 0 {
        number /= 10;
        digits -= 1;
    }
    let number = varint::zigzag(number);
    (number >> max_bits == 0).then_some((digits, number))
}

#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "the encoder uses integers that are exact in a double"
)]
fn restore_double(number: i64, digits: u8) -> u64 {
    (number as f64 / POWERS[usize::from(digits)]).to_bits()
}

#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the encoder checked that a float is restored"
)]
fn restore_float(number: i64, digits: u8) -> u64 {
    f64::from(f64::from_bits(restore_double(number, digits)) as f32).to_bits()
}

#[cfg(test)]
mod tests;
