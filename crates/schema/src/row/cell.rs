//! A cell of a row: its kind and its points.

use crate::hex_text::excerpt;
use crate::qualifier::Qualifier;
use crate::value::Value;

use super::error::RowError;

/// A cell of family `t`, as a store returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// The qualifier, without the family.
    pub qualifier: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The timestamp of the cell, in milliseconds. It decides which of two values of one instant is newer; it is
    /// not the time of a point.
    pub timestamp_ms: i64,
}

/// Bytes of the shortest point in an append cell: a qualifier and a value of one byte.
const SHORTEST_APPENDED: usize = 3;

/// The content of a cell in a table of points, determined by its qualifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellKind {
    /// One point: 2 bytes, or 4 with the mark of milliseconds.
    Point,
    /// The points of an hour: any other even length.
    Compacted,
    /// The points of an hour as they arrived: odd length, first byte 05.
    Appended,
    /// An annotation: odd length, first byte 01.
    Annotation,
    /// A histogram: odd length, first byte 06.
    Histogram,
    /// Anything else; readers ignore it.
    Unknown,
}

impl CellKind {
    /// The kind of the cell with this qualifier, in a table of raw points. For odd lengths only the first byte
    /// counts, as in OpenTSDB.
    #[inline]
    pub fn from_qualifier(qualifier: &[u8]) -> CellKind {
        match *qualifier {
            [_, _] | [0xf0..=0xff, _, _, _] => CellKind::Point,
            [] => CellKind::Unknown,
            [first, ..] if qualifier.len() % 2 == 1 => match first {
                0x01 => CellKind::Annotation,
                0x05 => CellKind::Appended,
                0x06 => CellKind::Histogram,
                _ => CellKind::Unknown,
            },
            _ => CellKind::Compacted,
        }
    }
}

/// A point of a cell, as stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CellPoint {
    /// Instant and type, with known mistakes of old software corrected.
    pub qualifier: Qualifier,
    /// The value.
    pub value: Value,
}

/// Appends the points of one cell to `out`, in stored order, without merging or dropping any. Cells of other
/// kinds have none. For tools that display cells; queries use [`decode_row`](super::decode_row).
///
/// # Errors
///
/// [`RowError`], except `Duplicate`. Points before the damage are in `out`.
pub fn decode_cell(cell: CellRef<'_>, out: &mut Vec<CellPoint>) -> Result<CellKind, RowError> {
    let kind = CellKind::from_qualifier(cell.qualifier);
    let add = |out: &mut Vec<CellPoint>, (qualifier, raw): RawPoint<'_>| {
        out.push(CellPoint {
            qualifier,
            value: decode_value(qualifier, raw)?,
        });
        Ok::<_, RowError>(())
    };
    match kind {
        CellKind::Point => add(out, single_point(cell)?)?,
        CellKind::Compacted => {
            // Memory in proportion to the cell: a vector that grows takes up to three times as much.
            out.reserve_exact(cell.qualifier.len() / 2);
            let mut points = CompactedPoints::new(cell);
            points.by_ref().try_for_each(|point| add(out, point))?;
            points.end()?;
        }
        CellKind::Appended => {
            out.reserve_exact(cell.value.len() / SHORTEST_APPENDED);
            let mut points = AppendedPoints::new(cell);
            points.by_ref().try_for_each(|point| add(out, point))?;
            points.end()?;
        }
        CellKind::Annotation | CellKind::Histogram | CellKind::Unknown => {}
    }
    Ok(kind)
}

/// A point with its encoded value. The value has the length that the qualifier states, unless the cell is damaged.
pub(super) type RawPoint<'a> = (Qualifier, &'a [u8]);

/// Decodes the value of a point.
#[inline]
pub(super) fn decode_value(qualifier: Qualifier, raw: &[u8]) -> Result<Value, RowError> {
    match Value::read(qualifier.flags(), raw) {
        Some(value) => Ok(value),
        None => Err(damaged_value(qualifier, raw)),
    }
}

#[cold]
fn damaged_value(qualifier: Qualifier, raw: &[u8]) -> RowError {
    let source = Value::bad_length(qualifier.flags(), raw);
    RowError::Value {
        qualifier: qualifier.to_string(),
        source,
    }
}

/// Reads a cell of one point and corrects mistakes of old software in cells with 2-byte qualifiers: a 4-byte
/// float stored in 8 bytes after zeros, and flags with a length other than the value's. Millisecond qualifiers
/// are newer than those mistakes.
#[inline]
pub(super) fn single_point(cell: CellRef<'_>) -> Result<RawPoint<'_>, RowError> {
    let (qualifier, _) = Qualifier::read(cell.qualifier)?;
    if qualifier.is_ms() || qualifier.value_len() == cell.value.len() {
        return Ok((qualifier, cell.value));
    }
    repaired_point(qualifier, cell.value)
}

#[cold]
fn repaired_point(qualifier: Qualifier, stored: &[u8]) -> Result<RawPoint<'_>, RowError> {
    let value = match (qualifier.flags(), stored) {
        (0xb, [0, 0, 0, 0, float @ ..]) if stored.len() == 8 => float,
        (0xb, _) if stored.len() == 8 => {
            return Err(RowError::CorruptFloat {
                qualifier: qualifier.to_string(),
                value: excerpt(stored),
            });
        }
        _ => stored,
    };
    match u8::try_from(value.len()) {
        Ok(len @ 1..=8) => Ok((qualifier.with_value_len(len), value)),
        _ => Err(RowError::ValueLength {
            qualifier: qualifier.to_string(),
            length: value.len(),
        }),
    }
}

/// The points of a compacted cell, in stored order. [`CompactedPoints::end`] reports why iteration ended.
///
/// The meta byte is redundant, since every qualifier has the length of its value, and may be missing.
#[derive(Debug, Clone)]
pub(super) struct CompactedPoints<'a> {
    cell: CellRef<'a>,
    qualifiers: &'a [u8],
    values: &'a [u8],
}

impl<'a> CompactedPoints<'a> {
    pub(super) const fn new(cell: CellRef<'a>) -> CompactedPoints<'a> {
        CompactedPoints {
            cell,
            qualifiers: cell.qualifier,
            values: cell.value,
        }
    }

    /// Called after the last point: whether qualifiers and values ended together.
    pub(super) fn end(&self) -> Result<(), RowError> {
        if self.qualifiers.is_empty() && self.values.len() <= META_BYTE {
            return Ok(());
        }
        Err(damaged_compacted(self.cell))
    }
}

/// The length of the meta byte after the values of a compacted cell.
const META_BYTE: usize = 1;

#[cold]
fn damaged_compacted(cell: CellRef<'_>) -> RowError {
    let (mut points, mut expected) = (0, 0);
    let mut qualifiers = cell.qualifier;
    while !qualifiers.is_empty() {
        match Qualifier::read(qualifiers) {
            Ok((qualifier, rest)) => {
                points += 1;
                expected += qualifier.value_len();
                qualifiers = rest;
            }
            Err(error) => return error.into(),
        }
    }
    RowError::CompactedLength {
        qualifier: excerpt(cell.qualifier),
        points,
        expected,
        actual: cell.value.len(),
    }
}

impl<'a> Iterator for CompactedPoints<'a> {
    type Item = RawPoint<'a>;

    // Returns no errors, which would go through memory for every point.
    #[inline]
    fn next(&mut self) -> Option<RawPoint<'a>> {
        let (qualifier, qualifiers) = Qualifier::split_first(self.qualifiers)?;
        let (value, values) = self.values.split_at_checked(qualifier.value_len())?;
        self.qualifiers = qualifiers;
        self.values = values;
        Some((qualifier, value))
    }
}

/// The points of a cell of appended points, in stored order. [`AppendedPoints::end`] reports why iteration
/// ended.
#[derive(Debug, Clone)]
pub(super) struct AppendedPoints<'a> {
    cell: &'a [u8],
    rest: &'a [u8],
}

impl<'a> AppendedPoints<'a> {
    pub(super) const fn new(cell: CellRef<'a>) -> AppendedPoints<'a> {
        AppendedPoints {
            cell: cell.value,
            rest: cell.value,
        }
    }

    /// To be called after the last point.
    pub(super) fn end(&self) -> Result<(), RowError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(RowError::AppendedCutOff {
            value: excerpt(self.cell),
            position: self.cell.len() - self.rest.len(),
        })
    }
}

impl<'a> Iterator for AppendedPoints<'a> {
    type Item = RawPoint<'a>;

    #[inline]
    fn next(&mut self) -> Option<RawPoint<'a>> {
        let (qualifier, rest) = Qualifier::split_first(self.rest)?;
        let (value, rest) = rest.split_at_checked(qualifier.value_len())?;
        self.rest = rest;
        Some((qualifier, value))
    }
}

/// Appends a point to the value of a cell of appended points, which has the qualifier
/// [`APPEND_QUALIFIER`](crate::data_table::APPEND_QUALIFIER). `value` must have the length that `qualifier`
/// states.
pub fn append_point(qualifier: Qualifier, value: &[u8], out: &mut Vec<u8>) {
    debug_assert_eq!(qualifier.value_len(), value.len(), "{qualifier}");
    qualifier.write_to(out);
    out.extend_from_slice(value);
}
