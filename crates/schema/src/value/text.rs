//! Text forms of values in telnet lines, JSON and import files.
//!
//! The syntax determines the type: without `.`, `e` and `E` a text is an integer, otherwise floating point.
//! `42.0` and `1e3` are therefore floats, and `NaN`, `Infinity` and `0x10` are invalid integers. Floating point
//! follows Java's `Double.parseDouble`: `.5`, `5.`, `+1.5`, exponents, an optional suffix of `f F d D`, and
//! hexadecimal (`0x1.8p1`).

use thiserror::Error;

use super::{Value, ValueError};

mod float;

/// Why a text is not an integer. Has OpenTSDB's messages.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntegerTextError {
    /// No characters.
    #[error("Empty string")]
    Empty,
    /// `+` or `-` alone.
    #[error("Just a sign, no value: {text}")]
    JustASign {
        /// The rejected text.
        text: String,
    },
    /// More than 19 digits, or a sign and more than 19 other characters.
    #[error("Value too long: {text}")]
    TooLong {
        /// The rejected text.
        text: String,
    },
    /// A character other than a digit.
    #[error("Invalid character '{character}' in {text}")]
    InvalidCharacter {
        /// The first such character.
        character: char,
        /// The whole text.
        text: String,
    },
    /// A number beyond 64 bits.
    #[error("Overflow in {text}")]
    Overflow {
        /// The rejected text.
        text: String,
    },
}

/// Why a text is not a value.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ValueTextError {
    /// No characters.
    #[error("empty value")]
    Empty,
    /// Without `.`, `e` and `E`, but not an integer.
    #[error(transparent)]
    Integer(#[from] IntegerTextError),
    /// With one of them, but not a number. Has Java's message.
    #[error("For input string: \"{text}\"")]
    NotANumber {
        /// The rejected text.
        text: String,
    },
    /// Two dots, for which Java has a specific message.
    #[error("multiple points")]
    MultiplePoints {
        /// The rejected text.
        text: String,
    },
    /// A number, but not one that can be stored.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Parses the value of a telnet `put`. Floats use 4 bytes if they are exact, otherwise 8.
///
/// # Errors
///
/// [`ValueTextError`]. Permanent.
pub fn parse_telnet(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    Ok(Value::number(parse_double(text)?)?)
}

/// Parses a value of HTTP `/api/put`: the JSON string, or the source text of the JSON number. Floats always use
/// 8 bytes and may be surrounded by blanks.
///
/// # Errors
///
/// [`ValueTextError`]. Permanent.
pub fn parse_http(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    // As Java's `String.trim`.
    let trimmed = text.trim_matches(|character| character <= ' ');
    Ok(Value::double(parse_double(trimmed)?)?)
}

/// Parses a value of an import file. Floats always use 4 bytes: 0.1 is stored as 0.10000000149.
///
/// # Errors
///
/// [`ValueTextError`]. Permanent. Numbers beyond the range of 4-byte floats are infinite.
pub fn parse_import(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    let float = float::parse_f32(text).ok_or_else(|| not_a_number(text))?;
    Ok(Value::float(float)?)
}

/// Parses a float as Java's `Float.parseFloat` does, with surrounding blanks, `NaN` and `Infinity`; `None` if the text is
/// not one.
pub fn parse_java_float(text: &str) -> Option<f32> {
    // As Java's `String.trim`.
    let trimmed = text.trim_matches(|character| character <= ' ');
    let unsigned = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    let magnitude = match unsigned {
        "NaN" => f32::NAN,
        "Infinity" => f32::INFINITY,
        _ => return float::parse_f32(trimmed),
    };
    Some(if trimmed.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

/// Parses an integer as OpenTSDB does: an optional sign and 1 to 19 ASCII digits, with leading zeros allowed.
///
/// # Errors
///
/// [`IntegerTextError`], with OpenTSDB's messages.
pub fn parse_integer(text: &str) -> Result<i64, IntegerTextError> {
    let (sign, digits) = match text.as_bytes() {
        [] => return Err(IntegerTextError::Empty),
        [b'+' | b'-'] => {
            return Err(IntegerTextError::JustASign {
                text: text.to_owned(),
            });
        }
        [sign @ (b'+' | b'-'), digits @ ..] => (*sign, digits),
        digits => (b'+', digits),
    };
    // 19 digits are below 10^19, which fits in 64 unsigned bits.
    let magnitude = (digits.len() <= 19)
        .then(|| {
            digits.iter().try_fold(0_u64, |number, digit| {
                digit
                    .is_ascii_digit()
                    .then(|| number * 10 + u64::from(digit - b'0'))
            })
        })
        .flatten()
        .ok_or_else(|| not_digits(text))?;
    let number = if sign == b'-' {
        0_i64.checked_sub_unsigned(magnitude)
    } else {
        i64::try_from(magnitude).ok()
    };
    number.ok_or_else(|| IntegerTextError::Overflow {
        text: text.to_owned(),
    })
}

/// The error of a text that is not an optional sign and 1 to 19 digits.
#[cold]
fn not_digits(text: &str) -> IntegerTextError {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Java counts UTF-16 units.
    if unsigned.encode_utf16().count() > 19 {
        return IntegerTextError::TooLong {
            text: text.to_owned(),
        };
    }
    match unsigned.chars().find(|character| !character.is_ascii_digit()) {
        Some(character) => IntegerTextError::InvalidCharacter {
            character,
            text: text.to_owned(),
        },
        None => IntegerTextError::Empty,
    }
}

/// OpenTSDB's test whether a text is meant as an integer.
fn is_integer(text: &str) -> Result<bool, ValueTextError> {
    if text.is_empty() {
        return Err(ValueTextError::Empty);
    }
    Ok(!text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')))
}

fn parse_double(text: &str) -> Result<f64, ValueTextError> {
    float::parse_f64(text).ok_or_else(|| not_a_number(text))
}

/// Java's error for a text that is not a number.
#[cold]
fn not_a_number(text: &str) -> ValueTextError {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_mantissa = |character: &char| character.is_ascii_digit() || *character == '.';
    let dots = unsigned
        .chars()
        .take_while(is_mantissa)
        .filter(|character| *character == '.');
    let text = text.to_owned();
    if dots.count() > 1 {
        ValueTextError::MultiplePoints { text }
    } else {
        ValueTextError::NotANumber { text }
    }
}
