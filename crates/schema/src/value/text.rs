//! Values as text: what telnet lines, JSON and import files may say.
//!
//! The text decides the type: without `.`, `e` and `E` it is an integer, else floating point. So
//! `42.0` and `1e3` are floats, and `NaN`, `Infinity` and `0x10` are broken integers. Floating
//! point is what Java's `Double.parseDouble` takes: `.5`, `5.`, `+1.5`, exponents, one of `f F d D`
//! at the end, and hexadecimal (`0x1.8p1`).

use thiserror::Error;

use super::{Value, ValueError};

mod float;

/// Why a text is not an integer. Says it as OpenTSDB does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntegerTextError {
    /// No characters.
    #[error("Empty string")]
    Empty,
    /// `+` or `-` alone.
    #[error("Just a sign, no value: {text}")]
    JustASign {
        /// The refused text.
        text: String,
    },
    /// More than 19 digits, or a sign and more than 19 other characters.
    #[error("Value too long: {text}")]
    TooLong {
        /// The refused text.
        text: String,
    },
    /// A character that is no digit.
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
        /// The refused text.
        text: String,
    },
}

/// Why a text is not a value.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ValueTextError {
    /// No characters.
    #[error("empty value")]
    Empty,
    /// Without `.`, `e` and `E`, and no integer.
    #[error(transparent)]
    Integer(#[from] IntegerTextError),
    /// With one of them, and no number either. Says it as Java does.
    #[error("For input string: \"{text}\"")]
    NotANumber {
        /// The refused text.
        text: String,
    },
    /// Two dots, for which Java has a text of its own.
    #[error("multiple points")]
    MultiplePoints {
        /// The refused text.
        text: String,
    },
    /// A number, but not one that can be stored.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// Reads the value of a telnet `put`. Floats take 4 bytes where they lose nothing, else 8.
///
/// # Errors
///
/// [`ValueTextError`]; it never helps to repeat.
pub fn parse_telnet(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    Ok(Value::number(parse_double(text)?)?)
}

/// Reads a value of HTTP `/api/put`: the JSON string, or the source text of the JSON number. Floats
/// always take 8 bytes, and may have blanks around them.
///
/// # Errors
///
/// [`ValueTextError`]; it never helps to repeat.
pub fn parse_http(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    // What Java's `String.trim` cuts off.
    let trimmed = text.trim_matches(|character| character <= ' ');
    Ok(Value::double(parse_double(trimmed)?)?)
}

/// Reads a value of an import file. Floats always take 4 bytes: 0.1 is stored as 0.10000000149.
///
/// # Errors
///
/// [`ValueTextError`]; it never helps to repeat. Numbers beyond the range of 4-byte floats are
/// infinite.
pub fn parse_import(text: &str) -> Result<Value, ValueTextError> {
    if is_integer(text)? {
        return Ok(Value::Int(parse_integer(text)?));
    }
    let float = float::parse_f32(text).ok_or_else(|| not_a_number(text))?;
    Ok(Value::float(float)?)
}

/// Reads an integer as OpenTSDB does: an optional sign, 1 to 19 ASCII digits, leading zeros
/// allowed.
///
/// # Errors
///
/// [`IntegerTextError`], whose texts are OpenTSDB's.
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
    // 19 digits stay below 10^19, which 64 bits without sign hold.
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

/// What is wrong with a text that is not an optional sign and 1 to 19 digits.
#[cold]
fn not_digits(text: &str) -> IntegerTextError {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Java counts UTF-16.
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

/// OpenTSDB's test of what a text means to be.
fn is_integer(text: &str) -> Result<bool, ValueTextError> {
    if text.is_empty() {
        return Err(ValueTextError::Empty);
    }
    Ok(!text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E')))
}

fn parse_double(text: &str) -> Result<f64, ValueTextError> {
    float::parse_f64(text).ok_or_else(|| not_a_number(text))
}

/// What Java says of a text that is no number.
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
