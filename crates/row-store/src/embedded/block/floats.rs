//! Encoding of floating-point values of 4 and 8 bytes in any mix.
//!
//! ```text
//!   method (1) | exceptions | numbers
//!   method      0 to 4: the values times 10^method, as integers; 5: their bits
//!   exceptions  number of | for each: distance to the previous one, value in its own width
//! ```
//!
//! Most measured values are decimals of few digits: 12.5 is encoded as 125. This is done only if the division
//! restores exactly the same bits; values for which it does not (NaN, -0, more digits) are exceptions. If there
//! are many exceptions, all values are encoded by their bits, first those of 4 bytes, then those of 8.

use super::super::varint::{self, Reader};
use super::numbers;

const POWERS: [f64; 5] = [1.0, 10.0, 100.0, 1_000.0, 10_000.0];
const BITS: u8 = 5;
/// Integers up to this size are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A value in its stored width.
#[derive(Clone, Copy, Debug)]
pub(super) enum Float {
    Single(f32),
    Double(f64),
}

impl Float {
    pub(super) fn is_single(self) -> bool {
        matches!(self, Self::Single(_))
    }

    /// The value as a double.
    pub(super) fn widened(self) -> f64 {
        match self {
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
        }
    }

    /// The integer that restores this value when divided by `power`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "within the range in which integers are exact"
    )]
    fn scaled(self, power: f64) -> Option<i64> {
        let scaled = (self.widened() * power).round();
        if scaled.is_nan() || scaled.abs() >= EXACT {
            return None;
        }
        let scaled = scaled as i64;
        let same = match self {
            Self::Single(value) => (divided(scaled, power) as f32).to_bits() == value.to_bits(),
            Self::Double(value) => divided(scaled, power).to_bits() == value.to_bits(),
        };
        same.then_some(scaled)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "within the range in which integers are exact"
)]
fn divided(scaled: i64, power: f64) -> f64 {
    scaled as f64 / power
}

/// Whether a value is stored in 4 bytes if each value takes as few bytes as it needs, so that widths need not
/// be encoded. `value` is the result of the division.
#[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
fn fits_single(value: f64) -> bool {
    f64::from(value as f32).to_bits() == value.to_bits()
}

/// The chosen encoding of values.
#[derive(Debug)]
pub(super) struct Plan {
    method: u8,
    scaled: Vec<i64>,
    exceptions: Vec<usize>,
    /// Whether each value has the smallest width that it fits.
    pub(super) widths_are_implied: bool,
}

/// Chooses the encoding of values.
pub(super) fn plan(values: &[Float]) -> Plan {
    let mut best: Option<Plan> = None;
    for (method, power) in (0_u8..).zip(POWERS) {
        let allowed = best
            .as_ref()
            .map_or(values.len() / 16, |best| best.exceptions.len() - 1);
        let Some((scaled, exceptions)) = scale(values, power, allowed) else {
            continue;
        };
        let done = exceptions.is_empty();
        best = Some(Plan {
            method,
            scaled,
            exceptions,
            widths_are_implied: false,
        });
        if done {
            break;
        }
    }
    let mut plan = best.unwrap_or(Plan {
        method: BITS,
        scaled: Vec::new(),
        exceptions: Vec::new(),
        widths_are_implied: false,
    });
    if let Some(power) = POWERS.get(usize::from(plan.method))
        && plan.exceptions.is_empty()
    {
        plan.widths_are_implied = values
            .iter()
            .zip(&plan.scaled)
            .all(|(value, scaled)| fits_single(divided(*scaled, *power)) == value.is_single());
    }
    plan
}

/// The integers and the indexes of the exceptions; `None` if there are more than `allowed`.
fn scale(values: &[Float], power: f64, allowed: usize) -> Option<(Vec<i64>, Vec<usize>)> {
    let mut scaled = Vec::with_capacity(values.len());
    let mut exceptions = Vec::new();
    let mut last = 0;
    for (index, value) in values.iter().enumerate() {
        match value.scaled(power) {
            Some(number) => last = number,
            None if exceptions.len() == allowed => return None,
            None => exceptions.push(index),
        }
        scaled.push(last);
    }
    Some((scaled, exceptions))
}

/// Appends values.
pub(super) fn encode(bytes: &mut Vec<u8>, values: &[Float], plan: &Plan) {
    bytes.push(plan.method);
    if plan.method == BITS {
        let singles: Vec<i64> = values
            .iter()
            .filter_map(|value| match value {
                Float::Single(value) => Some(i64::from(value.to_bits())),
                Float::Double(_) => None,
            })
            .collect();
        let doubles: Vec<i64> = values
            .iter()
            .filter_map(|value| match value {
                Float::Single(_) => None,
                Float::Double(value) => Some(value.to_bits().cast_signed()),
            })
            .collect();
        numbers::encode(bytes, &singles);
        numbers::encode(bytes, &doubles);
        return;
    }
    varint::put(bytes, plan.exceptions.len() as u64);
    let mut last = 0;
    for index in &plan.exceptions {
        varint::put(bytes, (index - last) as u64);
        last = *index;
        match values[*index] {
            Float::Single(value) => bytes.extend_from_slice(&value.to_be_bytes()),
            Float::Double(value) => bytes.extend_from_slice(&value.to_be_bytes()),
        }
    }
    numbers::encode(bytes, &plan.scaled);
}

/// Decodes values. `singles` marks those of 4 bytes; `None`: each has the smallest width that it fits.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize, singles: Option<&[bool]>) -> Option<Vec<Float>> {
    let Some((power, exceptions)) = decode_head(reader, singles)? else {
        return decode_bits(reader, singles?);
    };
    let scaled = numbers::decode(reader, count)?;
    let mut values: Vec<Float> = match singles {
        Some(singles) => {
            let values = scaled.iter().zip(singles);
            values
                .map(|(scaled, single)| of_width(divided(*scaled, power), *single))
                .collect()
        }
        None => {
            let values = scaled.iter().map(|scaled| divided(*scaled, power));
            values.map(|value| of_width(value, fits_single(value))).collect()
        }
    };
    for (index, value) in exceptions {
        *values.get_mut(index)? = value;
    }
    Some(values)
}

/// As [`decode`], widened, replacing the content of `values`. `scaled` is a scratch buffer.
pub(super) fn decode_doubles(
    reader: &mut Reader<'_>,
    count: usize,
    singles: Option<&[bool]>,
    scaled: &mut Vec<i64>,
    values: &mut Vec<f64>,
) -> Option<()> {
    values.clear();
    let Some((power, exceptions)) = decode_head(reader, singles)? else {
        values.extend(decode_bits(reader, singles?)?.into_iter().map(Float::widened));
        return Some(());
    };
    numbers::decode_into(reader, count, scaled)?;
    match singles {
        Some(singles) => values.extend(
            scaled
                .iter()
                .zip(singles)
                .map(|(scaled, single)| of_width(divided(*scaled, power), *single).widened()),
        ),
        // Doubles represent 4-byte values exactly.
        None => values.extend(scaled.iter().map(|scaled| divided(*scaled, power))),
    }
    for (index, value) in exceptions {
        *values.get_mut(index)? = value.widened();
    }
    Some(())
}

/// Values by index.
type Exceptions = Vec<(usize, Float)>;

/// Decodes everything before the numbers; the inner `None` means that the numbers are bits of the values.
fn decode_head(reader: &mut Reader<'_>, singles: Option<&[bool]>) -> Option<Option<(f64, Exceptions)>> {
    let method = reader.byte()?;
    let Some(power) = POWERS.get(usize::from(method)) else {
        return (method == BITS).then_some(None);
    };
    let mut exceptions = Vec::new();
    let mut last = 0_usize;
    for _ in 0..reader.number()? {
        last = last.checked_add(reader.length()?)?;
        let value = if *singles?.get(last)? {
            Float::Single(f32::from_be_bytes(reader.array()?))
        } else {
            Float::Double(f64::from_be_bytes(reader.array()?))
        };
        exceptions.push((last, value));
    }
    Some(Some((*power, exceptions)))
}

/// A value rounded to its stored width.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a value of 4 bytes was rounded to them"
)]
fn of_width(value: f64, is_single: bool) -> Float {
    if is_single {
        Float::Single(value as f32)
    } else {
        Float::Double(value)
    }
}

fn decode_bits(reader: &mut Reader<'_>, singles: &[bool]) -> Option<Vec<Float>> {
    let single_count = singles.iter().filter(|single| **single).count();
    let mut single_bits = numbers::decode(reader, single_count)?.into_iter();
    let mut double_bits = numbers::decode(reader, singles.len() - single_count)?.into_iter();
    singles
        .iter()
        .map(|single| {
            Some(if *single {
                Float::Single(f32::from_bits(u32::try_from(single_bits.next()?).ok()?))
            } else {
                Float::Double(f64::from_bits(double_bits.next()?.cast_unsigned()))
            })
        })
        .collect()
}
