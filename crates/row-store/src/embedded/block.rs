//! Row blocks: the encoding of all cells of one row.
//!
//! ```text
//!   version (1) | crc (4) | runs
//!   run     form (4 bits) family (4 bits) | number of cells | cells
//!   form    0                       arbitrary cells
//!           2, 4                    points with qualifiers of this many bytes; see `columns`
//!   cells of form 0                 for each: timestamp, as difference to the previous one |
//!                                   length | qualifier | length | value
//! ```
//!
//! Cells are in the order of a [`Row`](crate::Row), and the encoding is lossless, including timestamps: they
//! distinguish versions and decide which cells a delete or a time to live removes. A run is a sequence of cells
//! of one family and form, at most 65,536. The checksum covers the runs. Numbers without a size are varints.

mod columns;
mod floats;
mod numbers;

use super::varint::{self, Reader};
use crate::PointColumns;
use crate::cell_list::{CellList, RawCell};
use crate::limits::MAX_QUALIFIER;

const VERSION: u8 = 1;
/// Bytes before the runs.
const HEADER: usize = 5;
/// The most cells of a run, which bounds the memory that a damaged block can request.
const MAX_RUN: usize = 1 << 16;

/// Encodes the cells of a row.
pub(super) fn encode(cells: &CellList) -> Vec<u8> {
    let cells: Vec<RawCell<'_>> = cells.iter().collect();
    let mut block = vec![VERSION, 0, 0, 0, 0];
    let alike =
        |a: &RawCell<'_>, b: &RawCell<'_>| a.family == b.family && columns::width(a) == columns::width(b);
    for run in cells.chunk_by(alike).flat_map(|run| run.chunks(MAX_RUN)) {
        let Some(first) = run.first() else { continue };
        let width = columns::width(first);
        block.push(u8::try_from(width.unwrap_or(0)).unwrap_or(0) << 4 | first.family & 0xf);
        varint::put(&mut block, run.len() as u64);
        match width {
            Some(_) => columns::encode(&mut block, run),
            None => encode_any(&mut block, run),
        }
    }
    let crc = crc32fast::hash(&block[HEADER..]);
    block[1..HEADER].copy_from_slice(&crc.to_be_bytes());
    block
}

/// Verifies the version and the checksum of a block and returns its runs.
fn runs(block: &[u8]) -> Result<Reader<'_>, &'static str> {
    let mut reader = Reader(block);
    if reader.byte() != Some(VERSION) {
        return Err("unknown version of a row block");
    }
    if reader.array().map(u32::from_be_bytes) != Some(crc32fast::hash(reader.0)) {
        return Err("the checksum does not match");
    }
    Ok(reader)
}

/// The family and number of the points that a block begins with, possibly all of its content. Verifies nothing.
pub(super) fn first_points(block: &[u8]) -> Option<(u8, usize)> {
    let mut reader = Reader(block.get(HEADER..)?);
    let first = reader.byte().filter(|first| first >> 4 != 0)?;
    let count = reader.length().filter(|count| (1..=MAX_RUN).contains(count))?;
    Some((first & 0xf, count))
}

/// Decodes a block that consists of points only; `false` if it has other cells.
pub(super) fn decode_points(block: &[u8], points: &mut PointColumns) -> Result<bool, &'static str> {
    let mut reader = runs(block)?;
    if reader.0.is_empty() {
        return Ok(false);
    }
    let damaged = "the cells cannot be decoded";
    let width = usize::from(reader.byte().ok_or(damaged)? >> 4);
    let count = reader.length().filter(|count| *count <= MAX_RUN).ok_or(damaged)?;
    if width == 0 || count == 0 {
        return Ok(false);
    }
    let are_points = columns::decode_points(&mut reader, width, count, points).ok_or(damaged)?;
    Ok(are_points && reader.0.is_empty())
}

/// Appends a cell that is a point; `false` if it is not a point or does not follow the others.
pub(super) fn push_point(points: &mut PointColumns, cell: &RawCell<'_>) -> bool {
    columns::push_point(points, cell)
}

/// Decodes the cells of a block; the error describes the damage.
pub(super) fn decode(block: &[u8]) -> Result<CellList, &'static str> {
    let mut reader = runs(block)?;
    let mut cells = CellList::default();
    while !reader.0.is_empty() {
        decode_run(&mut reader, &mut cells).ok_or("the cells cannot be decoded")?;
    }
    Ok(cells)
}

fn decode_run(reader: &mut Reader<'_>, cells: &mut CellList) -> Option<()> {
    let first = reader.byte()?;
    let count = reader.length().filter(|count| *count <= MAX_RUN)?;
    let family = first & 0xf;
    match first >> 4 {
        0 => decode_any(reader, family, count, cells),
        2 => columns::decode(reader, family, 2, count, cells),
        4 => columns::decode(reader, family, 4, count, cells),
        _ => None,
    }
}

fn encode_any(block: &mut Vec<u8>, cells: &[RawCell<'_>]) {
    let mut last_ms = 0_i64;
    for cell in cells {
        varint::put(block, varint::zigzag(cell.timestamp_ms.wrapping_sub(last_ms)));
        last_ms = cell.timestamp_ms;
        for bytes in [cell.qualifier, cell.value] {
            varint::put(block, bytes.len() as u64);
            block.extend_from_slice(bytes);
        }
    }
}

fn decode_any(reader: &mut Reader<'_>, family: u8, count: usize, cells: &mut CellList) -> Option<()> {
    let mut timestamp_ms = 0_i64;
    for _ in 0..count {
        timestamp_ms = timestamp_ms.wrapping_add(reader.signed()?);
        let length = reader.length().filter(|length| *length <= MAX_QUALIFIER)?;
        let qualifier = reader.bytes(length)?;
        let length = reader.length().filter(|length| u32::try_from(*length).is_ok())?;
        cells.push(family, qualifier, timestamp_ms, reader.bytes(length)?);
    }
    Some(())
}

#[cfg(test)]
mod tests;
