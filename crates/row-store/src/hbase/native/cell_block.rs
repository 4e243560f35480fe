//! Cells behind a message, in the form of HBase's `KeyValueCodec`.
//!
//! ```text
//!   u32 length | u32 key length | u32 value length | u16 row length | row | u8 family length | family | qualifier
//!   | u64 timestamp | u8 type | value                                                             all big endian
//! ```
//!
//! Source: HBase 2.6.1, `KeyValueCodec`, `KeyValue`.

use bytes::{BufMut as _, Bytes};

use super::error::CallError;

/// The types of cells.
pub(super) mod cell_type {
    pub(in super::super) const PUT: u8 = 4;
    /// All versions of a column that are not newer.
    pub(in super::super) const DELETE_COLUMN: u8 = 12;
    pub(in super::super) const DELETE_FAMILY: u8 = 14;
}

/// The timestamp that the server replaces by its time.
pub(super) const NOW: i64 = i64::MAX;

/// Bytes of a key beside row, family and qualifier.
const KEY_OVERHEAD: usize = 2 + 1 + 8 + 1;

/// A cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell<'a> {
    pub(super) row: &'a [u8],
    pub(super) family: &'a [u8],
    pub(super) qualifier: &'a [u8],
    pub(super) timestamp_ms: i64,
    pub(super) kind: u8,
    pub(super) value: &'a [u8],
}

impl Cell<'_> {
    /// Appends the cell to a block. Row and family have lengths that HBase allows: up to 32,767 and 127 bytes.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rows, families, qualifiers and values are bounded by the rules of the data model"
    )]
    pub(super) fn encode(&self, block: &mut Vec<u8>) {
        let key_length = KEY_OVERHEAD + self.row.len() + self.family.len() + self.qualifier.len();
        block.reserve(12 + key_length + self.value.len());
        block.put_u32((8 + key_length + self.value.len()) as u32);
        block.put_u32(key_length as u32);
        block.put_u32(self.value.len() as u32);
        block.put_u16(self.row.len() as u16);
        block.put_slice(self.row);
        block.put_u8(self.family.len() as u8);
        block.put_slice(self.family);
        block.put_slice(self.qualifier);
        block.put_i64(self.timestamp_ms);
        block.put_u8(self.kind);
        block.put_slice(self.value);
    }
}

/// Reads the cells of a block one after the other.
#[derive(Debug)]
pub(super) struct CellReader {
    block: Bytes,
    at: usize,
}

impl CellReader {
    pub(super) const fn new(block: Bytes) -> Self {
        Self { block, at: 0 }
    }

    /// The next cell.
    ///
    /// # Errors
    ///
    /// [`CallError::Malformed`] if the block ends before it, or a length does not fit.
    pub(super) fn next(&mut self) -> Result<Cell<'_>, CallError> {
        let (cell, length) = decode(&self.block[self.at..])
            .ok_or_else(|| CallError::malformed(format!("byte {} of a cell block is no cell", self.at)))?;
        self.at += length;
        Ok(cell)
    }

    /// Whether all cells were read.
    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.block.len()
    }
}

/// The first cell of a block, and its length.
fn decode(block: &[u8]) -> Option<(Cell<'_>, usize)> {
    let (length, rest) = split_u32(block)?;
    let (cell, _) = rest.split_at_checked(length)?;
    let (key_length, rest) = split_u32(cell)?;
    let (value_length, rest) = split_u32(rest)?;
    let (key, value) = rest.split_at_checked(key_length)?;
    if value.len() != value_length {
        return None;
    }
    let (row_length, rest) = key.split_first_chunk()?;
    let (row, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*row_length)))?;
    let (family_length, rest) = rest.split_first()?;
    let (family, rest) = rest.split_at_checked(usize::from(*family_length))?;
    let (rest, kind) = rest.split_last_chunk::<1>()?;
    let (qualifier, timestamp) = rest.split_last_chunk()?;
    let cell = Cell {
        row,
        family,
        qualifier,
        timestamp_ms: i64::from_be_bytes(*timestamp),
        kind: kind[0],
        value,
    };
    Some((cell, size_of::<u32>() + length))
}

fn split_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((usize::try_from(u32::from_be_bytes(*number)).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cell_has_the_bytes_of_hbase() {
        // Written by HBase 2.6.1's KeyValueCodec: row `r`, family `t`, qualifier `q`, timestamp 1, value `v`.
        let mut block = Vec::new();
        let cell = Cell {
            row: b"r",
            family: b"t",
            qualifier: b"q",
            timestamp_ms: 1,
            kind: cell_type::PUT,
            value: b"v",
        };
        cell.encode(&mut block);
        let expected = [
            &[0, 0, 0, 24, 0, 0, 0, 15, 0, 0, 0, 1, 0, 1][..],
            b"r\x01tq",
            &[0, 0, 0, 0, 0, 0, 0, 1, 4],
            b"v",
        ];
        assert_eq!(block, expected.concat());
    }

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..most)
    }

    proptest! {
        #[test]
        fn cells_are_read_as_they_were_written(
            cells in prop::collection::vec((bytes(40), bytes(5), bytes(20), any::<i64>(), any::<u8>(), bytes(30)), 0..10)
        ) {
            let mut block = Vec::new();
            for (row, family, qualifier, timestamp_ms, kind, value) in &cells {
                Cell { row, family, qualifier, timestamp_ms: *timestamp_ms, kind: *kind, value }.encode(&mut block);
            }
            let mut reader = CellReader::new(block.into());
            for (row, family, qualifier, timestamp_ms, kind, value) in &cells {
                let read = reader.next().unwrap();
                prop_assert_eq!(read, Cell { row, family, qualifier, timestamp_ms: *timestamp_ms, kind: *kind, value });
            }
            prop_assert!(reader.is_at_end());
            prop_assert!(reader.next().is_err());
        }

        #[test]
        fn any_bytes_are_cells_or_an_error(block in bytes(200)) {
            let mut reader = CellReader::new(block.into());
            while reader.next().is_ok() {}
        }
    }
}
