//! Kinds and values of points.
//!
//! ```text
//!   kinds byte | kinds, if each | method (1) | exceptions | numbers
//!   kinds byte   0 to 6: the kind of all points
//!                8, 12: seconds, milliseconds; each a float if that holds the value exactly, else a double
//!                16: the kind of each point follows as numbers
//!   method       0 to 6: values times 10^method; 7: bits; 8: bits of floats
//!   exceptions   only methods 0 to 6: count | for each: distance to the one before (varint), bits (8)
//! ```
//!
//! Most measured values are decimals of few digits: 12.5 is stored as 125. This is done only if the division restores
//! exactly the same bits; values for which it does not (NaN, -0, more digits) are exceptions, up to one of 16.
//! Numbers are stored as in [`numbers`](super::numbers).

use std::ops::Range;

use super::numbers::{self, Buffers};
use crate::point::{narrow, widen};
use crate::{PointKind, Resolution, ValueKind};
use oxtsdb_storage_file::varint::{self, Reader};

const POWERS: [(i64, f64); 7] = [
    (1, 1.0),
    (10, 10.0),
    (100, 100.0),
    (1_000, 1_000.0),
    (10_000, 10_000.0),
    (100_000, 100_000.0),
    (1_000_000, 1_000_000.0),
];
const BITS: u8 = 7;
const FLOAT_BITS: u8 = 8;
/// Values are scaled to integers below this size: a quarter of the integers that are exact in a double.
const EXACT: f64 = 2_251_799_813_685_248.0;
/// A double of this size has no fraction: adding it rounds.
const NO_FRACTION: f64 = 3.0 * EXACT;

const SMALLEST_SECONDS: u8 = 8;
const SMALLEST_MILLIS: u8 = 12;
const EACH: u8 = 16;

/// Kinds of a column of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kinds {
    Same(PointKind),
    /// Floating-point values, each of the smallest width.
    Smallest(Resolution),
    Each,
}

impl Kinds {
    fn from_columns(kinds: &[PointKind], bits: &[u64]) -> Self {
        let first = kinds[0];
        if kinds.iter().all(|kind| *kind == first) {
            return Self::Same(first);
        }
        let resolution = first.resolution();
        let implied = |(kind, bits): (&PointKind, &u64)| *kind == smallest(resolution, *bits);
        if kinds.iter().zip(bits).all(implied) {
            return Self::Smallest(resolution);
        }
        Self::Each
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Same(kind) => kind.byte(),
            Self::Smallest(Resolution::Seconds) => SMALLEST_SECONDS,
            Self::Smallest(Resolution::Millis) => SMALLEST_MILLIS,
            Self::Each => EACH,
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            SMALLEST_SECONDS => Some(Self::Smallest(Resolution::Seconds)),
            SMALLEST_MILLIS => Some(Self::Smallest(Resolution::Millis)),
            EACH => Some(Self::Each),
            byte => PointKind::from_byte(byte).map(Self::Same),
        }
    }
}

/// The kind of a floating-point value of the smallest width that holds it. A NaN is a double.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
fn smallest(resolution: Resolution, bits: u64) -> PointKind {
    let value = f64::from_bits(bits);
    // Equal values have equal bits here: the conversion keeps the sign of zero.
    if f64::from(value as f32) == value {
        PointKind::new(resolution, ValueKind::Float)
    } else {
        PointKind::new(resolution, ValueKind::Double)
    }
}

/// Whether a float holds a double exactly, and also the payload of a NaN.
fn is_float(bits: u64) -> bool {
    widen(narrow(bits)).to_bits() == bits
}

/// Buffers of an encoder.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) buffers: Buffers,
    numbers: Vec<i64>,
    exceptions: Vec<usize>,
}

impl Encoder {
    /// Appends kinds and values, at least one.
    pub(crate) fn encode(&mut self, bytes: &mut Vec<u8>, kinds: &[PointKind], bits: &[u64]) {
        let form = Kinds::from_columns(kinds, bits);
        bytes.push(form.byte());
        if form == Kinds::Each {
            self.numbers.clear();
            self.numbers
                .extend(kinds.iter().map(|kind| i64::from(kind.byte())));
            numbers::encode(bytes, &self.numbers, &mut self.buffers);
        }
        let method = self.choose(form, kinds, bits);
        bytes.push(method);
        if method < BITS {
            varint::put(bytes, self.exceptions.len() as u64);
            let mut last = 0;
            for index in &self.exceptions {
                varint::put(bytes, (index - last) as u64);
                last = *index;
                bytes.extend_from_slice(&bits[*index].to_be_bytes());
            }
        }
        numbers::encode(bytes, &self.numbers, &mut self.buffers);
    }

    /// Chooses the method and sets the numbers and exceptions.
    fn choose(&mut self, form: Kinds, kinds: &[PointKind], bits: &[u64]) -> u8 {
        let mut best: Option<(u8, usize)> = None;
        for method in 0..BITS {
            let allowed = best.map_or(bits.len() / 16, |(_, exceptions)| exceptions - 1);
            if !self.scale(method, form, kinds, bits, allowed) {
                continue;
            }
            if self.exceptions.is_empty() {
                return method;
            }
            best = Some((method, self.exceptions.len()));
        }
        if let Some((method, exceptions)) = best {
            self.scale(method, form, kinds, bits, exceptions);
            return method;
        }
        self.exceptions.clear();
        self.numbers.clear();
        let is_floats = matches!(form, Kinds::Same(kind) if kind.value() == ValueKind::Float);
        if is_floats && bits.iter().all(|bits| is_float(*bits)) {
            self.numbers
                .extend(bits.iter().map(|bits| i64::from(narrow(*bits).to_bits())));
            return FLOAT_BITS;
        }
        self.numbers.extend(bits.iter().map(|bits| bits.cast_signed()));
        BITS
    }

    /// Scales the values; `false` if more than `allowed` are exceptions.
    fn scale(&mut self, method: u8, form: Kinds, kinds: &[PointKind], bits: &[u64], allowed: usize) -> bool {
        let power = POWERS[usize::from(method)];
        self.numbers.clear();
        self.exceptions.clear();
        let mut last = 0;
        for (index, bits) in bits.iter().enumerate() {
            let kind = match form {
                Kinds::Same(kind) => kind.value(),
                Kinds::Smallest(_) => ValueKind::Double,
                Kinds::Each => kinds[index].value(),
            };
            match scaled(kind, *bits, power) {
                Some(number) => last = number,
                None if self.exceptions.len() == allowed => return false,
                None => self.exceptions.push(index),
            }
            self.numbers.push(last);
        }
        true
    }
}

/// The integer that [`restored`] makes the value.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "within the range in which integers are exact"
)]
fn scaled(kind: ValueKind, bits: u64, power: (i64, f64)) -> Option<i64> {
    if kind == ValueKind::Int {
        return bits.cast_signed().checked_mul(power.0);
    }
    let scaled = f64::from_bits(bits) * power.1;
    if scaled.is_nan() || scaled.abs() >= EXACT {
        return None;
    }
    let scaled = (scaled + NO_FRACTION - NO_FRACTION) as i64;
    (restored(kind, scaled, power) == bits).then_some(scaled)
}

#[inline]
fn restored(kind: ValueKind, scaled: i64, power: (i64, f64)) -> u64 {
    match kind {
        ValueKind::Int => (scaled / power.0).cast_unsigned(),
        ValueKind::Float => rounded(scaled, power.1),
        ValueKind::Double => divided(scaled, power.1).to_bits(),
    }
}

#[inline]
#[expect(
    clippy::cast_precision_loss,
    reason = "within the range in which integers are exact"
)]
fn divided(scaled: i64, power: f64) -> f64 {
    scaled as f64 / power
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "rounds to the width of the value")]
fn rounded(scaled: i64, power: f64) -> u64 {
    widen(divided(scaled, power) as f32).to_bits()
}

/// Decodes the points of a range of indexes, which lies within `count`, appending to `kinds` and `bits`; `None` if the
/// bytes are invalid, and then any points may be appended. `numbers` is a buffer.
pub(crate) fn decode_range(
    reader: &mut Reader<'_>,
    count: usize,
    wanted: Range<usize>,
    numbers: &mut Vec<i64>,
    (kinds, bits): (&mut Vec<PointKind>, &mut Vec<u64>),
) -> Option<()> {
    let form = Kinds::from_byte(reader.byte()?)?;
    let (first_kind, first) = (kinds.len(), bits.len());
    match form {
        Kinds::Same(kind) => kinds.resize(first_kind + wanted.len(), kind),
        // Known after the values.
        Kinds::Smallest(_) => {}
        Kinds::Each => {
            numbers::decode_range(reader, count, wanted.clone(), numbers)?;
            for number in &*numbers {
                kinds.push(PointKind::from_byte(u8::try_from(*number).ok()?)?);
            }
        }
    }
    let method = reader.byte()?;
    if let Some(power) = POWERS.get(usize::from(method)) {
        // Applied after the numbers, which follow.
        let mut exceptions = *reader;
        let exception_count = reader.length()?;
        for _ in 0..exception_count {
            reader.length()?;
            reader.bytes(8)?;
        }
        numbers::decode_range(reader, count, wanted.clone(), numbers)?;
        restore(form, *power, numbers, &kinds[first_kind..], bits);
        exceptions.length()?;
        let mut index = 0_usize;
        for _ in 0..exception_count {
            index = index.checked_add(exceptions.length()?)?;
            let value = u64::from_be_bytes(exceptions.array()?);
            if wanted.contains(&index) {
                *bits.get_mut(first + index - wanted.start)? = value;
            } else if index >= count {
                return None;
            }
        }
    } else {
        numbers::decode_range(reader, count, wanted, numbers)?;
        match method {
            BITS => bits.extend(numbers.iter().map(|number| number.cast_unsigned())),
            FLOAT_BITS => {
                for number in &*numbers {
                    bits.push(widen(f32::from_bits(u32::try_from(*number).ok()?)).to_bits());
                }
            }
            _ => return None,
        }
    }
    if let Kinds::Smallest(resolution) = form {
        kinds.extend(bits[first..].iter().map(|bits| smallest(resolution, *bits)));
    }
    Some(())
}

/// Appends the values of scaled numbers.
fn restore(form: Kinds, power: (i64, f64), numbers: &[i64], kinds: &[PointKind], bits: &mut Vec<u64>) {
    let kind = match form {
        Kinds::Same(kind) => kind.value(),
        Kinds::Smallest(_) => ValueKind::Double,
        Kinds::Each => {
            bits.extend(
                numbers
                    .iter()
                    .zip(kinds)
                    .map(|(number, kind)| restored(kind.value(), *number, power)),
            );
            return;
        }
    };
    match kind {
        ValueKind::Int if power.0 == 1 => bits.extend(numbers.iter().map(|number| number.cast_unsigned())),
        ValueKind::Int => bits.extend(numbers.iter().map(|number| (number / power.0).cast_unsigned())),
        ValueKind::Float => bits.extend(numbers.iter().map(|number| rounded(*number, power.1))),
        ValueKind::Double => bits.extend(numbers.iter().map(|number| divided(*number, power.1).to_bits())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn round_trip(kinds: &[PointKind], bits: &[u64]) -> usize {
        let mut bytes = Vec::new();
        Encoder::default().encode(&mut bytes, kinds, bits);
        let (mut decoded_kinds, mut decoded) = (Vec::new(), vec![9]);
        for wanted in [
            0..bits.len(),
            0..bits.len().min(3),
            bits.len() / 3..bits.len() / 2,
        ] {
            let mut reader = Reader(&bytes);
            decoded.truncate(1);
            decoded_kinds.clear();
            let out = (&mut decoded_kinds, &mut decoded);
            decode_range(&mut reader, bits.len(), wanted.clone(), &mut Vec::new(), out).unwrap();
            assert_eq!(decoded[1..], bits[wanted.clone()]);
            assert_eq!(decoded_kinds, kinds[wanted]);
            assert!(reader.0.is_empty());
        }
        bytes.len()
    }

    fn kind(byte: u8) -> PointKind {
        PointKind::from_byte(byte).unwrap()
    }

    #[test]
    fn decimals_take_few_bytes() {
        let bits: Vec<u64> = (0..1_000)
            .map(|n| (f64::from(n * n % 200) / 100.0).to_bits())
            .collect();
        assert!(round_trip(&[kind(2); 1_000], &bits) < 1_000);
        let kinds: Vec<PointKind> = bits
            .iter()
            .map(|bits| smallest(Resolution::Seconds, *bits))
            .collect();
        assert!(round_trip(&kinds, &bits) < 1_000, "widths are implied");
    }

    #[test]
    fn exceptions_keep_their_bits() {
        let mut bits: Vec<u64> = (0..100).map(|n| (f64::from(n) / 10.0).to_bits()).collect();
        (bits[0], bits[50], bits[99]) = (
            (-0.0_f64).to_bits(),
            f64::NAN.to_bits(),
            0.123_456_789_f64.to_bits(),
        );
        assert!(round_trip(&[kind(6); 100], &bits) < 150);
    }

    fn any_kind() -> impl Strategy<Value = PointKind> {
        prop::sample::select(vec![0, 1, 2, 4, 5, 6]).prop_map(kind)
    }

    fn any_bits() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<i16>().prop_map(|n| i64::from(n).cast_unsigned()),
            any::<i16>().prop_map(|n| (f64::from(n) / 100.0).to_bits()),
            any::<f32>().prop_map(|n| widen(n).to_bits()),
        ]
    }

    proptest! {
        #[test]
        fn points_of_mixed_kinds_round_trip(points in vec((any_kind(), any_bits()), 1..300)) {
            let (kinds, bits): (Vec<_>, Vec<_>) = points.into_iter().unzip();
            round_trip(&kinds, &bits);
        }

        #[test]
        fn points_of_one_kind_round_trip(kind in any_kind(), bits in vec(any_bits(), 1..300)) {
            round_trip(&vec![kind; bits.len()], &bits);
        }

        #[test]
        fn decimals_round_trip(kind in any_kind(), cents in vec(-9_999..9_999_i32, 1..300)) {
            let bits: Vec<u64> = cents.iter().map(|cents| (f64::from(*cents) / 100.0).to_bits()).collect();
            round_trip(&vec![kind; bits.len()], &bits);
            let floats: Vec<u64> = bits.iter().map(|bits| widen(narrow(*bits)).to_bits()).collect();
            round_trip(&vec![kind; bits.len()], &floats);
        }

        #[test]
        fn any_bytes_do_not_panic(
            kinds in 0..20_u8,
            rest in vec(any::<u8>(), 0..200),
            count in 0..1_000_usize,
            from: u16,
        ) {
            let bytes = [&[kinds][..], &rest].concat();
            let from = usize::from(from) % (count + 1);
            let out = (&mut Vec::new(), &mut Vec::new());
            let _ = decode_range(&mut Reader(&bytes), count, from..count, &mut Vec::new(), out);
        }
    }
}
