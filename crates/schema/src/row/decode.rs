//! Decodes a row.
//!
//! In nearly every row the cells, in stored order, ascend in time without duplicates: one compacted cell, or
//! single points of one resolution. Such a row is decoded in one pass. The first point out of order, or damage,
//! switches to the merge, which starts over.

use crate::qualifier::Qualifier;
use crate::value::Value;

use super::cell::{AppendedPoints, CellKind, CellRef, CompactedPoints, RawPoint, decode_value, single_point};
use super::error::RowError;
use super::merge::merge;
use super::points::Points;
use super::stats::{DuplicatePolicy, RowStats};

/// Appends the points of a row to `out`, in order of time.
///
/// `cells` are the row's cells of family `t`, ordered by qualifier, as stores return them. They are iterated a second
/// time if they have to be merged.
///
/// # Errors
///
/// [`RowError`] if a cell is damaged, or for conflicting duplicates. `out` is then unchanged.
pub fn decode_row<'a, I>(
    cells: I,
    duplicates: DuplicatePolicy,
    out: &mut Points,
) -> Result<RowStats, RowError>
where
    I: IntoIterator<Item = CellRef<'a>, IntoIter: Clone>,
{
    let cells = cells.into_iter();
    let start = out.len();
    let read = match read_ascending(cells.clone(), out) {
        Ok(Some(stats)) => Ok(stats),
        // A duplicate may have the damaged value, and only the merge knows that it is replaced.
        Ok(None) | Err(_) => {
            out.truncate(start);
            merge(cells, duplicates, out)
        }
    };
    match read {
        Ok(stats) => Ok(RowStats {
            points: out.len() - start,
            ..stats
        }),
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Decodes cells in order; `None` as soon as a point is not later than the previous one.
fn read_ascending<'a>(
    cells: impl Iterator<Item = CellRef<'a>>,
    out: &mut Points,
) -> Result<Option<RowStats>, RowError> {
    let mut stats = RowStats::default();
    let mut ascending = Ascending { next_ms: 0, out };
    for cell in cells {
        let ascends = match CellKind::from_qualifier(cell.qualifier) {
            CellKind::Point => ascending.push(single_point(cell)?)?,
            CellKind::Compacted => match ascending.push_uniform(cell) {
                Some(ascends) => ascends,
                None => ascending.push_compacted(cell)?,
            },
            CellKind::Appended => ascending.push_appended(cell)?,
            other => {
                stats.skip(other);
                true
            }
        };
        if !ascends {
            return Ok(None);
        }
    }
    Ok(Some(stats))
}

/// Collects points in ascending order.
struct Ascending<'a> {
    /// The smallest offset that the next point may have.
    next_ms: u32,
    out: &'a mut Points,
}

impl Ascending<'_> {
    /// Adds a point; `false` if it does not ascend.
    #[inline]
    fn push(&mut self, (qualifier, raw): RawPoint<'_>) -> Result<bool, RowError> {
        let offset_ms = qualifier.offset_ms();
        if offset_ms < self.next_ms {
            return Ok(false);
        }
        self.out.push(offset_ms, decode_value(qualifier, raw)?);
        self.next_ms = offset_ms + 1;
        Ok(true)
    }

    fn push_compacted(&mut self, cell: CellRef<'_>) -> Result<bool, RowError> {
        self.out.reserve(cell.qualifier.len() / 2);
        let mut points = CompactedPoints::new(cell);
        for point in &mut points {
            if !self.push(point)? {
                return Ok(false);
            }
        }
        points.end()?;
        Ok(true)
    }

    fn push_appended(&mut self, cell: CellRef<'_>) -> Result<bool, RowError> {
        let mut points = AppendedPoints::new(cell);
        for point in &mut points {
            if !self.push(point)? {
                return Ok(false);
            }
        }
        points.end()?;
        Ok(true)
    }

    /// Adds the points of a compacted cell with qualifiers of one length and type, the common case: loops over arrays
    /// without a branch per point. `None` if the cell is not uniform, `false` if it does not ascend.
    fn push_uniform(&mut self, cell: CellRef<'_>) -> Option<bool> {
        let (first, _) = Qualifier::split_first(cell.qualifier)?;
        let flags = first.flags();
        if first.is_ms() {
            let (qualifiers, []) = cell.qualifier.as_chunks::<4>() else {
                return None;
            };
            let differing = qualifiers.iter().fold(0, |bits, [mark, _, _, last]| {
                bits | (last ^ flags) & 0x0f | u8::from(*mark < 0xf0)
            });
            let offset = |qualifier: &[u8; 4]| (u32::from_be_bytes(*qualifier) & 0x0fff_ffc0) >> 6;
            return (differing == 0).then(|| self.push_typed(qualifiers, offset, flags, cell.value))?;
        }
        let (qualifiers, []) = cell.qualifier.as_chunks::<2>() else {
            return None;
        };
        let differing = qualifiers.iter().fold(0, |bits, [mark, last]| {
            bits | (last ^ flags) & 0x0f | u8::from(*mark >= 0xf0)
        });
        let offset = |qualifier: &[u8; 2]| u32::from(u16::from_be_bytes(*qualifier) >> 4) * 1000;
        (differing == 0).then(|| self.push_typed(qualifiers, offset, flags, cell.value))?
    }

    fn push_typed<Q>(
        &mut self,
        qualifiers: &[Q],
        offset: impl Fn(&Q) -> u32 + Copy,
        flags: u8,
        value: &[u8],
    ) -> Option<bool> {
        match flags {
            0x0 => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Int(i64::from(i8::from_be_bytes(raw)))
            }),
            0x1 => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Int(i64::from(i16::from_be_bytes(raw)))
            }),
            0x3 => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Int(i64::from(i32::from_be_bytes(raw)))
            }),
            0x7 => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Int(i64::from_be_bytes(raw))
            }),
            0xb => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Float(f32::from_be_bytes(raw))
            }),
            0xf => self.push_columns(qualifiers, offset, value, |raw| {
                Value::Double(f64::from_be_bytes(raw))
            }),
            _ => None,
        }
    }

    fn push_columns<Q, const N: usize>(
        &mut self,
        qualifiers: &[Q],
        offset: impl Fn(&Q) -> u32 + Copy,
        value: &[u8],
        decode: impl Fn([u8; N]) -> Value,
    ) -> Option<bool> {
        let (values, meta) = value.split_at_checked(N * qualifiers.len())?;
        if meta.len() > 1 {
            return None;
        }
        let (values, _) = values.as_chunks::<N>();
        let ascends = qualifiers
            .first()
            .is_some_and(|first| offset(first) >= self.next_ms)
            && qualifiers.is_sorted_by(|a, b| offset(a) < offset(b));
        if !ascends {
            return Some(false);
        }
        self.out.extend_columns(
            qualifiers.iter().map(offset),
            values.iter().map(|raw| decode(*raw)),
        );
        self.next_ms = offset(qualifiers.last()?) + 1;
        Some(true)
    }
}
