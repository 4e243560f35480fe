//! The fields of a message of protobuf, without copies.
//!
//! Generated types have a `String` for each label of each series; this way a label is a part of the body.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use prost::bytes::Buf as _;
use prost::encoding::decode_varint;

/// The bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(super) &'static str);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    /// A text, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// Takes the next field of a message: its number and its value; `None` at the end.
///
/// # Errors
///
/// If the bytes are no field.
#[inline]
pub(crate) fn next<'a>(message: &mut &'a [u8]) -> Result<Option<(u64, FieldValue<'a>)>, Malformed> {
    if message.is_empty() {
        return Ok(None);
    }
    let key = varint(message)?;
    let value = match key & 7 {
        0 => FieldValue::Varint(varint(message)?),
        1 => FieldValue::Fixed64(message.try_get_u64_le().map_err(|_| CUT)?),
        2 => {
            let length = varint(message)?;
            let bytes = usize::try_from(length)
                .ok()
                .and_then(|length| message.split_at_checked(length));
            let (bytes, rest) = bytes.ok_or(CUT)?;
            *message = rest;
            FieldValue::Bytes(bytes)
        }
        5 => FieldValue::Fixed32(message.try_get_u32_le().map_err(|_| CUT)?),
        _ => return Err(Malformed("a field has an unknown wire type")),
    };
    Ok(Some((key >> 3, value)))
}

/// Takes the next field if it has this key, number and type, and fewer than 128 bytes, as most texts and small messages have.
#[inline]
pub(crate) fn next_short<'a>(message: &mut &'a [u8], key: u8) -> Option<&'a [u8]> {
    let [first, length @ 0..0x80, rest @ ..] = *message else {
        return None;
    };
    let (bytes, rest) = rest.split_at_checked(usize::from(*length))?;
    if *first != key {
        return None;
    }
    *message = rest;
    Some(bytes)
}

/// Takes a number.
///
/// # Errors
///
/// If it is longer than 10 bytes, or cut off.
#[inline]
pub(crate) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    // Most keys and lengths have one byte.
    if let [byte @ 0..0x80, rest @ ..] = *bytes {
        *bytes = rest;
        return Ok(u64::from(*byte));
    }
    decode_varint(bytes).map_err(|_| CUT)
}

/// The number of a varint of type `sint32`.
pub(crate) const fn sint32(varint: u64) -> i32 {
    let zigzag = (varint & 0xffff_ffff) as u32;
    (zigzag >> 1).cast_signed() ^ -((zigzag & 1).cast_signed())
}

/// The number of a varint of type `sint64`.
pub(crate) const fn sint64(varint: u64) -> i64 {
    (varint >> 1).cast_signed() ^ -((varint & 1).cast_signed())
}

/// Adds numbers of 8 bytes, packed or one by one, up to `most`.
///
/// # Errors
///
/// If the last one is cut off.
pub(crate) fn fixed64s<T>(
    value: FieldValue<'_>,
    most: usize,
    numbers: &mut Vec<T>,
    from_bits: impl Fn(u64) -> T,
) -> Result<(), Malformed> {
    match value {
        FieldValue::Fixed64(bits) if numbers.len() < most => numbers.push(from_bits(bits)),
        FieldValue::Bytes(mut packed) => {
            while !packed.is_empty() && numbers.len() < most {
                numbers.push(from_bits(packed.try_get_u64_le().map_err(|_| CUT)?));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Adds varints, packed or one by one, up to `most`.
///
/// # Errors
///
/// If one is cut off.
pub(crate) fn varints<T>(
    value: FieldValue<'_>,
    most: usize,
    numbers: &mut Vec<T>,
    from_varint: impl Fn(u64) -> T,
) -> Result<(), Malformed> {
    match value {
        FieldValue::Varint(number) if numbers.len() < most => numbers.push(from_varint(number)),
        FieldValue::Bytes(mut packed) => {
            while !packed.is_empty() && numbers.len() < most {
                numbers.push(from_varint(varint(&mut packed)?));
            }
        }
        _ => {}
    }
    Ok(())
}

/// A text.
///
/// # Errors
///
/// If it is not UTF-8.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed("a text is not UTF-8"))
}

const CUT: Malformed = Malformed("a field is cut off");
