//! Doubles as Java prints them: `Double.toString`, which JSON answers and `ts_meta` cells hold.
//!
//! ```text
//!   0.001 <= |v| < 10000000     decimal: 0.001, 100.0, 9999999.5
//!   else                        d.dddE±n: 1.0E7, 1.0E-4, 1.23456789125E8 (no plus)
//! ```
//!
//! There is always a digit after the dot. The digits are the fewest that read back as the same
//! number, and of those the nearest to it, with an even last digit where two are equally near.
//! Java 17 prints a digit more than that for a few numbers, 3.0309225492203438E18 where
//! 3.030922549220344E18 is enough (from Java 19 on it does not); the number is the same.
//!
//! Source: Java 17, `Double.toString`, as OpenTSDB 2.4's JSON serializer calls it.

use std::io::Write as _;

/// Appends `value` to `out` as Java prints it. NaN is `NaN`, infinities are `Infinity` and
/// `-Infinity`.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
        return;
    }
    if value.is_sign_negative() {
        out.push(b'-');
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        out.extend_from_slice(b"Infinity");
    } else if magnitude == 0.0 {
        out.extend_from_slice(b"0.0");
    } else {
        write_positive(out, magnitude);
    }
}

/// `value` as Java prints it; see [`write_double`].
pub fn double_to_string(value: f64) -> String {
    let mut text = Vec::with_capacity(24);
    write_double(&mut text, value);
    text.into_iter().map(char::from).collect()
}

/// Writes a number that is finite and above zero.
fn write_positive(out: &mut Vec<u8>, magnitude: f64) {
    let mut buffer = ryu::Buffer::new();
    let shortest = buffer.format_finite(magnitude).as_bytes();
    if (1e-3..1e7).contains(&magnitude) {
        // Here ryu writes decimal notation as Java does.
        out.extend_from_slice(shortest);
    } else if magnitude < f64::MIN_POSITIVE && !shortest.contains(&b'.') {
        write_subnormal_of_one_digit(out, magnitude);
    } else {
        write_scientific(out, shortest);
    }
}

/// Writes `d.dddE±n` for a text of ryu's, which is `d.ddde±n`, or decimal between 1e-5 and 1e16.
fn write_scientific(out: &mut Vec<u8>, shortest: &[u8]) {
    let mut exponent = 0_i32;
    let mut digits = [0_u8; 17];
    let mut len = 0;
    let mut places = digits.iter_mut();
    let mut text = shortest.iter();
    let mut after_dot = false;
    // The exponent is that of the first digit that is not zero.
    for character in text.by_ref() {
        match character {
            b'.' => after_dot = true,
            b'e' => break,
            b'0' if len == 0 => exponent -= i32::from(after_dot),
            digit => {
                exponent += i32::from(!after_dot && len > 0);
                exponent -= i32::from(after_dot && len == 0);
                // 17 digits tell all doubles apart; what comes behind them are zeros.
                if let Some(place) = places.next() {
                    *place = *digit;
                }
                len += 1;
            }
        }
    }
    let written = text.as_slice();
    if !written.is_empty() {
        let (sign, digits) = written.strip_prefix(b"-").map_or((1, written), |rest| (-1, rest));
        exponent += sign
            * digits
                .iter()
                .fold(0, |all, digit| all * 10 + i32::from(digit - b'0'));
    }
    let kept = digits.get(..len).unwrap_or(&digits);
    let kept = match kept.iter().rposition(|digit| *digit != b'0') {
        Some(last) => kept.get(..=last).unwrap_or(kept),
        None => kept,
    };
    let (first, rest) = kept.split_first().unwrap_or((&b'0', &[]));
    out.extend_from_slice(&[*first, b'.']);
    out.extend_from_slice(if rest.is_empty() { b"0" } else { rest });
    // A vector takes all that is written to it.
    let _ = write!(out, "E{exponent}");
}

/// Java has two digits at least, as near as two digits get. Only among the smallest numbers is the
/// second not a zero: 2^-1074 is 4.9E-324, though 5E-324 reads back too.
fn write_subnormal_of_one_digit(out: &mut Vec<u8>, magnitude: f64) {
    let text = format!("{magnitude:.1E}");
    let text = if text.parse() == Ok(magnitude) {
        text
    } else {
        format!("{magnitude:E}").replacen('E', ".0E", 1)
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
