//! Qualifiers of points: the offset within the hour and the type of the value.
//!
//! ```text
//!   seconds, 2 bytes:   bits 15..4  seconds since the base time, 0..3599     bits 3..0  flags
//!   millis,  4 bytes:   bits 31..28 1111
//!                       bits 27..6  milliseconds since the base time, 0..3599999
//!                       bits 5..4   00                                       bits 3..0  flags
//!   flags:              bit 3       1 = floating point, 0 = integer
//!                       bits 2..0   length of the value in bytes, minus 1
//! ```
//!
//! A qualifier with first four bits that are all set has milliseconds; one with seconds never starts that way (3599
//! is `E0F`). A whole second sent as milliseconds keeps its 4 bytes: it is a different cell than the one in seconds,
//! at the same instant.
//!
//! Source: OpenTSDB 2.4, `Internal.buildQualifier`, `Internal.getOffsetFromQualifier`, `Const.FLAG_BITS`,
//! `Const.MS_FLAG_BITS`.

use std::fmt;

use thiserror::Error;

use crate::hex_text::excerpt;
use crate::timestamp::Timestamp;
use crate::value::Value;

/// The first four bits of a qualifier with milliseconds.
const MILLIS_MARK: u8 = 0xf0;

/// A point's qualifier: 2 or 4 bytes, held inline. Ordered by bytes, as HBase orders cells.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qualifier {
    // A qualifier with seconds is padded with two zero bytes. The first byte of one with milliseconds is greater than
    // the first byte of any with seconds, so the derived order is the order of the stored bytes.
    bytes: [u8; 4],
}

/// A truncated qualifier.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("qualifier `{qualifier}` ends within a point, expected {expected} more bytes")]
pub struct QualifierError {
    /// The existing bytes, as hex.
    pub qualifier: String,
    /// The number of missing bytes.
    pub expected: usize,
}

impl Qualifier {
    /// The qualifier of a point in the row of its hour.
    #[inline]
    pub fn new(timestamp: Timestamp, value: &Value) -> Qualifier {
        Qualifier::from_offset(timestamp.offset_ms(), timestamp.is_millis(), value.flags())
    }

    /// Offsets are below one hour, so they fit their bits.
    #[expect(clippy::cast_possible_truncation, reason = "3599 << 4 has 16 bits")]
    fn from_offset(offset_ms: u32, is_ms: bool, flags: u8) -> Qualifier {
        if is_ms {
            let bits = u32::from(MILLIS_MARK) << 24 | offset_ms << 6 | u32::from(flags);
            Qualifier {
                bytes: bits.to_be_bytes(),
            }
        } else {
            let [first, second] = (((offset_ms / 1000) << 4) as u16 | u16::from(flags)).to_be_bytes();
            Qualifier {
                bytes: [first, second, 0, 0],
            }
        }
    }

    /// Splits the first qualifier off `bytes`: the qualifier of a compacted cell is a sequence of them, and an
    /// appended point's is followed by its value.
    ///
    /// Offsets beyond the hour, which no writer produces, are returned unchanged.
    ///
    /// # Errors
    ///
    /// [`QualifierError`] if there are fewer than 2 bytes, or fewer than 4 for milliseconds.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<(Qualifier, &[u8]), QualifierError> {
        Qualifier::split_first(bytes).ok_or_else(|| Qualifier::cut_off(bytes))
    }

    /// As [`Qualifier::read`], without an error.
    #[inline]
    pub(crate) fn split_first(bytes: &[u8]) -> Option<(Qualifier, &[u8])> {
        match *bytes {
            [first @ MILLIS_MARK..=0xff, second, third, fourth, ref rest @ ..] => Some((
                Qualifier {
                    bytes: [first, second, third, fourth],
                },
                rest,
            )),
            [first @ 0..MILLIS_MARK, second, ref rest @ ..] => Some((
                Qualifier {
                    bytes: [first, second, 0, 0],
                },
                rest,
            )),
            _ => None,
        }
    }

    #[cold]
    fn cut_off(bytes: &[u8]) -> QualifierError {
        let is_ms = bytes.first().is_some_and(|first| *first >= MILLIS_MARK);
        QualifierError {
            qualifier: excerpt(bytes),
            expected: if is_ms { 4 } else { 2 } - bytes.len(),
        }
    }

    /// The stored bytes: 2 or 4.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match self.bytes.first_chunk::<2>() {
            Some(seconds) if !self.is_ms() => seconds,
            _ => &self.bytes,
        }
    }

    /// Appends the stored bytes to `out`.
    #[inline]
    pub fn write_to(&self, out: &mut Vec<u8>) {
        // Copying four bytes and truncating is faster than a copy of variable length.
        let end = out.len() + if self.is_ms() { 4 } else { 2 };
        out.extend_from_slice(&self.bytes);
        out.truncate(end);
    }

    /// Whether the point has milliseconds.
    #[inline]
    pub const fn is_ms(&self) -> bool {
        let [first, ..] = self.bytes;
        first >= MILLIS_MARK
    }

    /// Milliseconds since the base time: below 3600000 for all writers, below 4194304 for arbitrary bytes.
    #[inline]
    pub const fn offset_ms(&self) -> u32 {
        let bits = u32::from_be_bytes(self.bytes);
        if self.is_ms() {
            (bits & 0x0fff_ffc0) >> 6
        } else {
            (bits >> 20) * 1000
        }
    }

    /// As [`Qualifier::offset_ms`], for a qualifier of `width` bytes given by its bits without flags.
    #[inline]
    pub const fn offset_ms_of(width: usize, bits: i64) -> i64 {
        if width == 4 {
            (bits & 0x00ff_fffc) >> 2
        } else {
            bits * 1000
        }
    }

    /// The type and length of the value: 0 to 15.
    #[inline]
    pub const fn flags(&self) -> u8 {
        let [_, second, _, fourth] = self.bytes;
        (if self.is_ms() { fourth } else { second }) & 0x0f
    }

    /// The length of the value in bytes: 1 to 8.
    #[inline]
    pub const fn value_len(&self) -> usize {
        (self.flags() & 0x07) as usize + 1
    }

    /// Whether the value is floating point.
    pub const fn is_float(&self) -> bool {
        self.flags() & 0x08 != 0
    }

    /// The same qualifier with another length of the value, 1 to 8.
    pub(crate) fn with_value_len(self, len: u8) -> Qualifier {
        let [first, second, third, fourth] = self.bytes;
        let set = |byte: u8| byte & 0xf8 | (len.wrapping_sub(1) & 0x07);
        let bytes = if self.is_ms() {
            [first, second, third, set(fourth)]
        } else {
            [first, set(second), third, fourth]
        };
        Qualifier { bytes }
    }
}

impl fmt::Display for Qualifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(self.as_bytes()))
    }
}

impl fmt::Debug for Qualifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qualifier({self})")
    }
}

#[cfg(test)]
mod tests;
