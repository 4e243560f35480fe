//! Java's part in stored bytes and responses: the text of doubles, the hash of strings, the order of hash maps.
//!
//! # Doubles
//!
//! `Double.toString`, which JSON responses and `ts_meta` cells use.
//!
//! ```text
//!   0.001 <= |v| < 10000000     decimal: 0.001, 100.0, 9999999.5
//!   otherwise                   d.dddE±n: 1.0E7, 1.0E-4, 1.23456789125E8 (no plus)
//! ```
//!
//! There is always a digit after the dot. The digits are the shortest that parse to the same number, and among
//! those the nearest, with an even last digit if two are equally near. Java 17 prints one digit more than
//! necessary for a few numbers: 3.0309225492203438E18 instead of 3.030922549220344E18 (Java 19 does not). Both
//! parse to the same number.
//!
//! # Hash maps
//!
//! `custom` of metadata is serialised in the order of a `HashMap`, branches of trees are identified by hashes.
//!
//! ```text
//!   hash   = c0 * 31^(n-1) + … + c(n-1) over UTF-16 code units, wrapping at 32 bits
//!   bucket = (hash ^ hash >>> 16) & (buckets - 1); keys of one bucket are in the order in which they were put
//! ```
//!
//! Source: Java 17, `Double.toString` as OpenTSDB 2.4's JSON serializer calls it, `String.hashCode`, `HashMap`
//! with its default load of 0.75.

use std::io::Write as _;

/// Appends `value` to `out` in Java's form. NaN is `NaN`, infinities are `Infinity` and `-Infinity`.
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

/// `value` in Java's form; see [`write_double`].
pub fn double_to_string(value: f64) -> String {
    let mut text = Vec::with_capacity(24);
    write_double(&mut text, value);
    text.into_iter().map(char::from).collect()
}

/// `Float.toString` of a number.
pub fn float_to_string(value: f32) -> String {
    if value.is_nan() || value.is_infinite() || value == 0.0 {
        return double_to_string(f64::from(value));
    }
    let mut text = Vec::with_capacity(16);
    if value.is_sign_negative() {
        text.push(b'-');
    }
    let mut buffer = ryu::Buffer::new();
    let shortest = buffer.format_finite(value.abs()).as_bytes();
    if (1e-3..1e7).contains(&value.abs()) && !shortest.contains(&b'e') {
        text.extend_from_slice(shortest);
    } else {
        write_scientific(&mut text, shortest);
    }
    text.into_iter().map(char::from).collect()
}

/// `String.hashCode` of a text.
pub fn string_hash(text: &str) -> i32 {
    hash(text).cast_signed()
}

/// The number of buckets of a `HashMap` that was copied from a map of `entries` entries.
pub const fn buckets_of_copy(entries: usize) -> usize {
    // As a float: entries / 0.75 + 1, rounded down.
    (entries * 4 / 3 + 1).next_power_of_two()
}

/// Sorts keys into the iteration order of a `HashMap` that was made for `capacity` entries and into which they were
/// put in the given order.
pub fn sort_as_hash_map<K: AsRef<str>>(keys: &mut [K], capacity: usize) {
    let mut buckets = capacity.next_power_of_two();
    while keys.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    let mask = u32::try_from(buckets - 1).unwrap_or(u32::MAX);
    keys.sort_by_cached_key(|key| {
        let hash = hash(key.as_ref());
        (hash ^ hash >> 16) & mask
    });
}

fn hash(text: &str) -> u32 {
    text.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(unit.into())
    })
}

/// Most digits behind the dot of a short decimal, and the power of ten that makes it an integer.
const SHORT_DIGITS: usize = 3;
const SHORT_SCALE: f64 = 1000.0;

/// Appends a number from 1e-3 to 1e7 that has at most [`SHORT_DIGITS`] digits behind the dot; `false`: it has more.
///
/// At most 15 digits identify a double, so these are the shortest if the quotient, which is rounded as the text
/// would be when it is parsed, is the number.
fn write_short_decimal(out: &mut Vec<u8>, magnitude: f64) -> bool {
    let scaled = (magnitude * SHORT_SCALE).round();
    #[expect(clippy::float_cmp, reason = "the number itself, not one nearby")]
    let is_exact = scaled / SHORT_SCALE == magnitude;
    if !is_exact {
        return false;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive integer of at most 1e10"
    )]
    let scaled = scaled as u64;
    let (whole, fraction) = (scaled / 1000, scaled % 1000);
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    out.push(b'.');
    let (mut rest, mut unit) = (fraction, 100_u64);
    for place in 0..SHORT_DIGITS {
        // One digit at least, and no zeros at the end.
        if place > 0 && rest == 0 {
            break;
        }
        out.push(u8::try_from(rest / unit).map_or(b'0', |digit| b'0' + digit));
        rest %= unit;
        unit /= 10;
    }
    true
}

/// Appends a finite positive number.
fn write_positive(out: &mut Vec<u8>, magnitude: f64) {
    let is_plain = (1e-3..1e7).contains(&magnitude);
    if is_plain && write_short_decimal(out, magnitude) {
        return;
    }
    let mut buffer = ryu::Buffer::new();
    let shortest = buffer.format_finite(magnitude).as_bytes();
    if is_plain {
        // In this range ryu uses decimal notation, as Java does.
        out.extend_from_slice(shortest);
    } else if magnitude < f64::MIN_POSITIVE && !shortest.contains(&b'.') {
        write_subnormal_of_one_digit(out, magnitude);
    } else {
        write_scientific(out, shortest);
    }
}

/// Appends `d.dddE±n` for the output of ryu, which is `d.ddde±n`, or decimal between 1e-5 and 1e16.
fn write_scientific(out: &mut Vec<u8>, shortest: &[u8]) {
    let mut exponent = 0_i32;
    let mut digits = [0_u8; 17];
    let mut len = 0;
    let mut places = digits.iter_mut();
    let mut text = shortest.iter();
    let mut after_dot = false;
    // The first non-zero digit has the exponent.
    for character in text.by_ref() {
        match character {
            b'.' => after_dot = true,
            b'e' => break,
            b'0' if len == 0 => exponent -= i32::from(after_dot),
            digit => {
                exponent += i32::from(!after_dot && len > 0);
                exponent -= i32::from(after_dot && len == 0);
                // 17 digits identify every double; further digits are zeros.
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
    // Writing to a vector cannot fail.
    let _ = write!(out, "E{exponent}");
}

/// Appends a number with a shortest form of one digit. Java prints at least two, as near as two digits
/// get; only for the smallest numbers is the second one not zero: 2^-1074 is 4.9E-324, although 5E-324 parses
/// to it as well.
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
