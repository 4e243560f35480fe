//! Java's grammar of floating-point text, without `NaN` and `Infinity`, which callers have excluded.
//!
//! ```text
//!   number   = [sign] ( decimal | hex ) [ f | F | d | D ]
//!   decimal  = ( digits [ . [digits] ] | . digits ) [ (e|E) [sign] digits ]
//!   hex      = 0 (x|X) ( hexdigits [ . [hexdigits] ] | . hexdigits ) (p|P) [sign] digits
//! ```
//!
//! Results are rounded to nearest, ties to even; numbers beyond the range become infinite.

/// Parses a double; `None` if the text is not one.
pub(super) fn parse_f64(text: &str) -> Option<f64> {
    let number = without_suffix(text);
    if let Some((negative, hex)) = hex_digits(number) {
        let magnitude = parse_hex(hex)?.round_to_f64();
        return Some(if negative { -magnitude } else { magnitude });
    }
    is_decimal(number).then(|| number.parse().ok())?
}

/// Parses a float; `None` if the text is not one. Rounds once, not by way of a double.
pub(super) fn parse_f32(text: &str) -> Option<f32> {
    let number = without_suffix(text);
    if let Some((negative, hex)) = hex_digits(number) {
        let magnitude = parse_hex(hex)?.round_to_f32();
        return Some(if negative { -magnitude } else { magnitude });
    }
    is_decimal(number).then(|| number.parse().ok())?
}

fn without_suffix(text: &str) -> &str {
    text.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(text)
}

/// Whether a text is `decimal` with an optional sign. Rust's parser accepts more (`inf`, `nan`).
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole)
        && digits(fraction)
        && whole.len() + fraction.len() > 0
        && exponent.is_none_or(|exponent| {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent)
        })
}

/// The sign, and the text after `0x`, if the text starts that way.
fn hex_digits(text: &str) -> Option<(bool, &str)> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let hex = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"))?;
    Some((text.starts_with('-'), hex))
}

/// `mantissa` × 2^`exponent`. If bits below the mantissa were lost, its last bit is set, so that it rounds as
/// the exact number would.
struct HexNumber {
    mantissa: u64,
    exponent: i64,
}

fn parse_hex(text: &str) -> Option<HexNumber> {
    let (mantissa_text, exponent_text) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa_text.split_once('.').unwrap_or((mantissa_text, ""));
    if whole.len() + fraction.len() == 0 {
        return None;
    }
    let mut mantissa = 0_u64;
    let mut exponent = parse_exponent(exponent_text)?;
    let digits = whole
        .chars()
        .map(|digit| (digit, 0))
        .chain(fraction.chars().map(|digit| (digit, 4)));
    for (digit, fraction_bits) in digits {
        let digit = u64::from(digit.to_digit(16)?);
        if mantissa >> 59 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= fraction_bits;
        } else {
            mantissa |= u64::from(digit != 0);
            exponent += 4 - fraction_bits;
        }
    }
    Some(HexNumber { mantissa, exponent })
}

/// A decimal exponent, saturating at a magnitude that no mantissa can bring back into range.
fn parse_exponent(text: &str) -> Option<i64> {
    const LARGEST: i64 = 1 << 50;
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.bytes().try_fold(0_i64, |number, digit| {
        digit
            .is_ascii_digit()
            .then(|| (number * 10 + i64::from(digit - b'0')).min(LARGEST))
    })?;
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

impl HexNumber {
    /// The mantissa with its first bit at bit 63, and the exponent of that bit; `None` for zero.
    fn normalized(&self) -> Option<(u64, i64)> {
        let shift = self.mantissa.leading_zeros();
        let mantissa = self.mantissa.checked_shl(shift)?;
        Some((mantissa, self.exponent + 63 - i64::from(shift)))
    }

    fn round_to_f64(&self) -> f64 {
        match self.normalized() {
            None => 0.0,
            Some((_, 1024..)) => f64::INFINITY,
            // Normal: 53 bits. The first one is implicit and adds one to the exponent, as does a carry of rounding, up to
            // infinity.
            Some((mantissa, exponent @ -1022..)) => {
                let biased = (exponent + 1022).cast_unsigned();
                f64::from_bits((biased << 52) + shift_right_to_even(mantissa, 11))
            }
            Some((mantissa, exponent)) => f64::from_bits(shift_right_to_even(
                mantissa,
                11 + (-1022 - exponent).cast_unsigned(),
            )),
        }
    }

    fn round_to_f32(&self) -> f32 {
        match self.normalized() {
            None => 0.0,
            Some((_, 128..)) => f32::INFINITY,
            Some((mantissa, exponent)) => {
                // Truncated to 53 bits; the last one is set if any was lost: a double that rounds to the same
                // float as the exact number. Every float is a normal double.
                let kept = mantissa >> 11 | u64::from(mantissa & 0x7ff != 0);
                let biased = (exponent.max(-200) + 1022).cast_unsigned();
                #[expect(clippy::cast_possible_truncation, reason = "this is the rounding")]
                let float = f64::from_bits((biased << 52) + kept) as f32;
                float
            }
        }
    }
}

/// Divides by 2^`shift`, to nearest, ties to even.
fn shift_right_to_even(number: u64, shift: u64) -> u64 {
    match shift {
        0 => number,
        1..=63 => {
            let quotient = number >> shift;
            let rest = number & ((1 << shift) - 1);
            let half = 1 << (shift - 1);
            quotient + u64::from(rest > half || rest == half && quotient & 1 == 1)
        }
        // Everything is remainder, and half is 2^63: a tie rounds to zero.
        64 => u64::from(number > 1 << 63),
        65.. => 0,
    }
}
