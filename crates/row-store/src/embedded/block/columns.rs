//! Runs of points: cells whose qualifier is a number that ends with the length of the value.
//!
//! OpenTSDB's single points have this form. The qualifier has 2 or 4 bytes; its low 3 bits are the length of
//! the value minus 1, the next bit marks a floating-point value, and the rest is the time within the hour. The
//! rest and the low 4 bits, the *flags*, are encoded separately:
//!
//! ```text
//!   timestamps of the cells | rest of the qualifiers | flags | integers | floating-point values
//!
//!   flags   0                          integers, each in the fewest of 1, 2, 4 and 8 bytes
//!           1                          floating-point values, each in 4 bytes if they are exact
//!           2 | a bit for each         a mix of both; a 1 bit is a floating-point value
//!           3 | which (2) | packed     for each cell the index of its flags among those that occur
//! ```
//!
//! Cells that do not fit use the general form of a run, so a block can encode any cells.
//!
//! Source: OpenTSDB 2.4, `Internal.getFlagsFromQualifier` and `Const.FLAG_FLOAT`, `LENGTH_MASK`.

use super::super::varint::Reader;
use super::floats::{self, Float};
use super::numbers;
use crate::PointColumns;
use crate::cell_list::{CellList, RawCell};

const FLOAT_FLAG: u8 = 8;
const LENGTH_MASK: u8 = 7;

const INTEGERS: u8 = 0;
const FLOATS: u8 = 1;
const MIXED: u8 = 2;
const LISTED: u8 = 3;

/// Bytes of the qualifier, if the cell can be in such a run.
pub(super) fn width(cell: &RawCell<'_>) -> Option<usize> {
    let width = cell.qualifier.len();
    let flags = *cell.qualifier.last()?;
    let length = cell.value.len();
    let fits = (width == 2 || width == 4)
        && length == usize::from(flags & LENGTH_MASK) + 1
        && (flags & FLOAT_FLAG == 0 || length == 4 || length == 8);
    fits.then_some(width)
}

/// Appends cells, all of one width and family.
pub(super) fn encode(bytes: &mut Vec<u8>, cells: &[RawCell<'_>]) {
    let mut timestamps = Vec::with_capacity(cells.len());
    let mut rests = Vec::with_capacity(cells.len());
    let mut flags = Vec::with_capacity(cells.len());
    let (mut integers, mut floats) = (Vec::new(), Vec::new());
    let mut lengths_are_implied = true;
    for cell in cells {
        let (rest, cell_flags) = rest_and_flags(cell.qualifier);
        timestamps.push(cell.timestamp_ms);
        rests.push(rest);
        flags.push(cell_flags);
        if cell_flags & FLOAT_FLAG == 0 {
            let integer = integer(cell.value);
            lengths_are_implied &= fewest_bytes(integer) == cell.value.len();
            integers.push(integer);
        } else {
            floats.extend(float(cell.value));
        }
    }
    numbers::encode(bytes, &timestamps);
    numbers::encode(bytes, &rests);
    let float_plan = (!floats.is_empty()).then(|| floats::plan(&floats));
    lengths_are_implied &= float_plan.as_ref().is_none_or(|plan| plan.widths_are_implied);
    encode_flags(bytes, &flags, lengths_are_implied);
    numbers::encode(bytes, &integers);
    if let Some(plan) = float_plan {
        floats::encode(bytes, &floats, &plan);
    }
}

/// Appends a cell that is a point; `false` if it is not a point or does not follow the others.
pub(super) fn push_point(points: &mut PointColumns, cell: &RawCell<'_>) -> bool {
    let Some(width) = width(cell) else {
        return false;
    };
    let (time, flags) = rest_and_flags(cell.qualifier);
    let is_int = matches!(flags, 0 | 1 | 3 | 7);
    if points.is_empty() {
        points.qualifier_width = width;
        points.are_ints = is_int;
    }
    if (points.qualifier_width, points.are_ints) != (width, is_int) || !points.ascends_to(width, time) {
        return false;
    }
    if is_int {
        points.ints.push(integer(cell.value));
    } else {
        let Some(float) = float(cell.value).filter(|_| flags & FLOAT_FLAG != 0) else {
            return false;
        };
        points.doubles.push(float.widened());
    }
    // The times no longer equal the encoded ones.
    points.times_read.0.clear();
    points.times.push(time);
    true
}

/// The bits of a qualifier before its flags, and the flags.
fn rest_and_flags(qualifier: &[u8]) -> (i64, u8) {
    let number = qualifier
        .iter()
        .fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    (i64::from(number >> 4), (number & 0xf).to_be_bytes()[3])
}

/// A value of 4 or 8 bytes as a floating-point number.
fn float(value: &[u8]) -> Option<Float> {
    if let Ok(value) = value.try_into() {
        return Some(Float::Single(f32::from_be_bytes(value)));
    }
    let value = value.try_into().ok()?;
    Some(Float::Double(f64::from_be_bytes(value)))
}

/// A value of up to 8 bytes as a signed number.
fn integer(value: &[u8]) -> i64 {
    let negative = value.first().is_some_and(|byte| *byte >= 0x80);
    value.iter().fold(if negative { -1 } else { 0 }, |number, byte| {
        number << 8 | i64::from(*byte)
    })
}

fn fewest_bytes(integer: i64) -> usize {
    if i8::try_from(integer).is_ok() {
        1
    } else if i16::try_from(integer).is_ok() {
        2
    } else if i32::try_from(integer).is_ok() {
        4
    } else {
        8
    }
}

fn encode_flags(bytes: &mut Vec<u8>, flags: &[u8], lengths_are_implied: bool) {
    let is_float = |flags: &u8| flags & FLOAT_FLAG != 0;
    if lengths_are_implied {
        if !flags.iter().any(is_float) {
            bytes.push(INTEGERS);
        } else if flags.iter().all(is_float) {
            bytes.push(FLOATS);
        } else {
            bytes.push(MIXED);
            numbers::pack(bytes, 1, flags.iter().map(|flags| u64::from(is_float(flags))));
        }
        return;
    }
    let which = flags.iter().fold(0_u16, |which, flags| which | 1 << flags);
    bytes.push(LISTED);
    bytes.extend_from_slice(&which.to_be_bytes());
    // The index of flags is the number of smaller flags that occur.
    let index = |flags: &u8| u64::from((which & ((1 << flags) - 1)).count_ones());
    numbers::pack(bytes, index_width(which), flags.iter().map(index));
}

/// Bits of an index into the set bits of `which`.
fn index_width(which: u16) -> u32 {
    u32::BITS - which.count_ones().saturating_sub(1).leading_zeros()
}

/// The flags of a run as far as they are known before the values.
enum Flags {
    Integers,
    Floats,
    Mixed(Vec<bool>),
    Listed(Vec<u8>),
}

fn decode_flags(reader: &mut Reader<'_>, count: usize) -> Option<Flags> {
    Some(match reader.byte()? {
        INTEGERS => Flags::Integers,
        FLOATS => Flags::Floats,
        MIXED => {
            let mut bits = vec![0; count];
            numbers::unpack(reader, 1, &mut bits)?;
            Flags::Mixed(bits.into_iter().map(|bit| bit == 1).collect())
        }
        LISTED => {
            let which = u16::from_be_bytes(reader.array()?);
            let listed: Vec<u8> = (0..16).filter(|flags| which & 1 << flags != 0).collect();
            let mut indexes = vec![0; count];
            numbers::unpack(reader, index_width(which), &mut indexes)?;
            let found = |index: i64| listed.get(usize::try_from(index).ok()?).copied();
            Flags::Listed(indexes.into_iter().map(found).collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

/// Decodes a run as points; `false` if [`PointColumns`] cannot represent it.
pub(super) fn decode_points(
    reader: &mut Reader<'_>,
    width: usize,
    count: usize,
    points: &mut PointColumns,
) -> Option<bool> {
    numbers::skip(reader, count)?;
    let ascends = decode_times(reader, width, count, points)?;
    let flags = decode_flags(reader, count)?;
    points.are_ints = match &flags {
        Flags::Integers => true,
        Flags::Floats => false,
        Flags::Listed(flags) if flags.iter().all(|flags| matches!(flags, 0 | 1 | 3 | 7)) => true,
        Flags::Listed(flags) if flags.iter().all(|flags| flags & FLOAT_FLAG != 0) => false,
        Flags::Mixed(_) | Flags::Listed(_) => return Some(false),
    };
    decode_values(reader, count, flags, points)?;
    Some(ascends)
}

/// Decodes the times of points and returns whether they ascend.
fn decode_times(
    reader: &mut Reader<'_>,
    width: usize,
    count: usize,
    points: &mut PointColumns,
) -> Option<bool> {
    let mut behind = *reader;
    numbers::skip(&mut behind, count)?;
    let encoded = reader.bytes(reader.0.len() - behind.0.len())?;
    let (last, ascend) = &points.times_read;
    if last == encoded && (points.qualifier_width, points.times.len()) == (width, count) {
        return Some(*ascend);
    }
    points.times_read.0.clear();
    points.qualifier_width = width;
    numbers::decode_into(&mut Reader(encoded), count, &mut points.times)?;
    let bits = points.times.iter().fold(0, |bits, time| bits | time);
    // Negative numbers set higher bits as well.
    if bits.cast_unsigned() >> (8 * width - 4) != 0 {
        return None;
    }
    points.times_read.0.extend_from_slice(encoded);
    points.times_read.1 = points.ascends();
    Some(points.times_read.1)
}

/// Decodes the values of points of one kind.
fn decode_values(
    reader: &mut Reader<'_>,
    count: usize,
    flags: Flags,
    points: &mut PointColumns,
) -> Option<()> {
    if points.are_ints {
        return numbers::decode_into(reader, count, &mut points.ints);
    }
    let singles: Option<Vec<bool>> = match flags {
        Flags::Listed(flags) => Some(flags.iter().map(|flags| flags & LENGTH_MASK == 3).collect()),
        _ => None,
    };
    // The values are decoded by way of integers.
    floats::decode_doubles(
        reader,
        count,
        singles.as_deref(),
        &mut points.ints,
        &mut points.doubles,
    )
}

/// Decodes a run as cells.
pub(super) fn decode(
    reader: &mut Reader<'_>,
    family: u8,
    width: usize,
    count: usize,
    cells: &mut CellList,
) -> Option<()> {
    let timestamps = numbers::decode(reader, count)?;
    let rests = numbers::decode(reader, count)?;
    let flags = decode_flags(reader, count)?;
    let float_count = match &flags {
        Flags::Integers => 0,
        Flags::Floats => count,
        Flags::Mixed(floats) => floats.iter().filter(|float| **float).count(),
        Flags::Listed(flags) => flags.iter().filter(|flags| **flags & FLOAT_FLAG != 0).count(),
    };
    let integers = numbers::decode(reader, count - float_count)?;
    let floats = if float_count == 0 {
        Vec::new()
    } else if let Flags::Listed(flags) = &flags {
        let singles: Vec<bool> = flags
            .iter()
            .filter(|flags| **flags & FLOAT_FLAG != 0)
            .map(|flags| flags & LENGTH_MASK == 3)
            .collect();
        floats::decode(reader, float_count, Some(&singles))?
    } else {
        floats::decode(reader, float_count, None)?
    };

    cells.reserve(count, count * (width + 8));
    let (mut integers, mut floats) = (integers.into_iter(), floats.into_iter());
    for (index, (timestamp_ms, rest)) in timestamps.into_iter().zip(rests).enumerate() {
        let is_float = match &flags {
            Flags::Integers => false,
            Flags::Floats => true,
            Flags::Mixed(floats) => *floats.get(index)?,
            Flags::Listed(flags) => flags.get(index)? & FLOAT_FLAG != 0,
        };
        let (value, length) = if is_float {
            match floats.next()? {
                Float::Single(value) => (u64::from(value.to_bits()), 4),
                Float::Double(value) => (value.to_bits(), 8),
            }
        } else {
            let integer = integers.next()?;
            let length = match &flags {
                Flags::Listed(flags) => usize::from(flags.get(index)? & LENGTH_MASK) + 1,
                _ => fewest_bytes(integer),
            };
            (integer.cast_unsigned(), length)
        };
        let rest = u32::try_from(rest)
            .ok()
            .filter(|rest| rest >> (8 * width - 4) == 0)?;
        let float_flag = if is_float { u32::from(FLOAT_FLAG) } else { 0 };
        let length_bits = u32::try_from(length - 1).ok()?;
        let qualifier = (rest << 4 | float_flag | length_bits).to_be_bytes();
        cells.push_point(family, qualifier.get(4 - width..)?, timestamp_ms, value, length);
    }
    Some(())
}
