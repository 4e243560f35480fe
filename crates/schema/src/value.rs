//! Values of points as stored in cells, and their text forms.
//!
//! ```text
//!   integer:  two's complement in 1, 2, 4 or 8 bytes; writers use the fewest
//!   float:    IEEE 754 in 4 or 8 bytes; negative zero is preserved
//! ```
//!
//! The flags of the qualifier determine which ([`crate::qualifier`]). NaN and infinities are never stored. The
//! width of a float depends on the protocol: telnet uses 4 bytes if they are exact, HTTP always 8, the import
//! tool always 4.
//!
//! Source: OpenTSDB 2.4, `Internal.vleEncodeLong`, `TSDB.addPoint`, `Tags.parseLong`, `Tags.looksLikeInteger`,
//! `PutDataPointRpc`, `TextImporter`.

mod text;

use std::fmt;

use thiserror::Error;

use crate::hex_text::excerpt;
pub use text::{
    IntegerTextError, ValueTextError, parse_http, parse_import, parse_integer, parse_java_float, parse_telnet,
};

/// The value of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// Floating point in 4 bytes.
    Float(f32),
    /// Floating point in 8 bytes.
    Double(f64),
}

/// Why a number or stored bytes are not a value.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ValueError {
    /// NaN or an infinity, which are never stored. Has OpenTSDB's message.
    #[error("value is NaN or Infinite: {}", java_name(*value))]
    NotFinite {
        /// The rejected number.
        value: f64,
    },
    /// A stored length that contradicts the flags or that no value has.
    #[error(
        "value `{value}` has {length} bytes, flags {flags:#x} are for {}", announced(*flags)
    )]
    Length {
        /// The flags of the qualifier.
        flags: u8,
        /// The value, as hex.
        value: String,
        /// Its length in bytes.
        length: usize,
    },
}

/// Java's text form of a non-finite number.
fn java_name(value: f64) -> &'static str {
    match value {
        f64::INFINITY => "Infinity",
        f64::NEG_INFINITY => "-Infinity",
        _ => "NaN",
    }
}

fn announced(flags: u8) -> &'static str {
    match flags & 0x0f {
        0x0 => "an integer of 1 byte",
        0x1 => "an integer of 2 bytes",
        0x3 => "an integer of 4 bytes",
        0x7 => "an integer of 8 bytes",
        0xb => "a float of 4 bytes",
        0xf => "a float of 8 bytes",
        _ => "no length that a value can have",
    }
}

impl Value {
    /// A floating-point number in 4 bytes if they are exact, otherwise in 8: OpenTSDB's rule for telnet.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotFinite`] for NaN and infinities.
    pub fn number(value: f64) -> Result<Value, ValueError> {
        #[expect(clippy::cast_possible_truncation, reason = "the comparison detects the loss")]
        let float = value as f32;
        if f64::from(float) == value && float.is_finite() {
            return Ok(Value::Float(float));
        }
        Value::double(value)
    }

    /// A floating-point number in 8 bytes: OpenTSDB's rule for HTTP.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotFinite`] for NaN and infinities.
    pub fn double(value: f64) -> Result<Value, ValueError> {
        if value.is_finite() {
            Ok(Value::Double(value))
        } else {
            Err(ValueError::NotFinite { value })
        }
    }

    /// A floating-point number in 4 bytes: OpenTSDB's rule for import files.
    ///
    /// # Errors
    ///
    /// [`ValueError::NotFinite`] for NaN and infinities.
    pub fn float(value: f32) -> Result<Value, ValueError> {
        if value.is_finite() {
            Ok(Value::Float(value))
        } else {
            Err(ValueError::NotFinite {
                value: f64::from(value),
            })
        }
    }

    /// The stored bytes; integers use the fewest.
    #[inline]
    pub fn encoded(&self) -> EncodedValue {
        match *self {
            Value::Int(int) => {
                let len = int_width(int);
                // The bytes shifted out repeat the sign.
                EncodedValue {
                    bytes: (int << (64 - 8 * u32::from(len))).to_be_bytes(),
                    len,
                }
            }
            Value::Float(float) => {
                let [a, b, c, d] = float.to_be_bytes();
                EncodedValue {
                    bytes: [a, b, c, d, 0, 0, 0, 0],
                    len: 4,
                }
            }
            Value::Double(double) => EncodedValue {
                bytes: double.to_be_bytes(),
                len: 8,
            },
        }
    }

    /// The qualifier's flags for [`Value::encoded`]: 0 to 15.
    #[inline]
    pub fn flags(&self) -> u8 {
        match *self {
            Value::Int(int) => int_width(int) - 1,
            Value::Float(_) => 0xb,
            Value::Double(_) => 0xf,
        }
    }

    /// Decodes a stored value. Ignores the upper bits of `flags`. Integers may use more bytes than necessary; a
    /// non-finite float is returned unchanged.
    ///
    /// # Errors
    ///
    /// [`ValueError::Length`] unless the flags announce the number of bytes and values can have that length.
    #[inline]
    pub fn decode(flags: u8, bytes: &[u8]) -> Result<Value, ValueError> {
        Value::read(flags, bytes).ok_or_else(|| Value::bad_length(flags, bytes))
    }

    /// As [`Value::decode`], without an error.
    #[inline]
    pub(crate) fn read(flags: u8, bytes: &[u8]) -> Option<Value> {
        match (flags & 0x0f, bytes) {
            (0x0, &[a]) => Some(Value::Int(i64::from(i8::from_be_bytes([a])))),
            (0x1, &[a, b]) => Some(Value::Int(i64::from(i16::from_be_bytes([a, b])))),
            (0x3, &[a, b, c, d]) => Some(Value::Int(i64::from(i32::from_be_bytes([a, b, c, d])))),
            (0x7, &[a, b, c, d, e, f, g, h]) => {
                Some(Value::Int(i64::from_be_bytes([a, b, c, d, e, f, g, h])))
            }
            (0xb, &[a, b, c, d]) => Some(Value::Float(f32::from_be_bytes([a, b, c, d]))),
            (0xf, &[a, b, c, d, e, f, g, h]) => {
                Some(Value::Double(f64::from_be_bytes([a, b, c, d, e, f, g, h])))
            }
            _ => None,
        }
    }

    /// The error of [`Value::decode`].
    #[cold]
    pub(crate) fn bad_length(flags: u8, bytes: &[u8]) -> ValueError {
        ValueError::Length {
            flags,
            value: excerpt(bytes),
            length: bytes.len(),
        }
    }

    /// The number as a double; integers beyond 2^53 are rounded.
    #[inline]
    pub fn as_f64(&self) -> f64 {
        match *self {
            #[expect(clippy::cast_precision_loss, reason = "documented")]
            Value::Int(int) => int as f64,
            Value::Float(float) => f64::from(float),
            Value::Double(double) => double,
        }
    }

    /// Whether the value is an integer.
    #[inline]
    pub fn is_int(&self) -> bool {
        matches!(self, Value::Int(_))
    }
}

/// The fewest of 1, 2, 4 and 8 bytes that hold a number.
fn int_width(int: i64) -> u8 {
    if i8::try_from(int).is_ok() {
        1
    } else if i16::try_from(int).is_ok() {
        2
    } else if i32::try_from(int).is_ok() {
        4
    } else {
        8
    }
}

/// The stored bytes of a value: 1 to 8, stored inline.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct EncodedValue {
    bytes: [u8; 8],
    len: u8,
}

impl EncodedValue {
    /// The stored bytes, big endian.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Appends the stored bytes to `out`.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        // Copying eight bytes and truncating is faster than a copy of variable length.
        let end = out.len() + usize::from(self.len);
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }
}

impl AsRef<[u8]> for EncodedValue {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Debug for EncodedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncodedValue({})", excerpt(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests;
