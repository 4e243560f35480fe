//! The cells of one row, stored in two vectors.

use crate::limits::MAX_QUALIFIER;

/// A cell that names its family by an index into the table's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawCell<'a> {
    /// Index of the family in the table's definition.
    pub(crate) family: u8,
    /// Qualifier.
    pub(crate) qualifier: &'a [u8],
    /// Milliseconds since the epoch.
    pub(crate) timestamp_ms: i64,
    /// Value.
    pub(crate) value: &'a [u8],
}

/// Cells in insertion order. All qualifiers and values share one buffer, because a query reads hundreds of
/// thousands of cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellList {
    /// The qualifier of each cell, directly followed by its value.
    data: Vec<u8>,
    cells: Vec<CellIndex>,
}

/// The position of a cell in [`CellList::data`].
#[derive(Clone, Copy, Debug)]
struct CellIndex {
    timestamp_ms: i64,
    offset: usize,
    value_length: u32,
    /// The upper 8 bits are the family, the others the length of the qualifier.
    family_and_qualifier: u32,
}

impl CellIndex {
    const QUALIFIER_BITS: u32 = MAX_QUALIFIER.ilog2() + 1;

    fn family(&self) -> u8 {
        self.family_and_qualifier.to_be_bytes()[0]
    }

    fn qualifier_length(&self) -> usize {
        (self.family_and_qualifier & ((1 << Self::QUALIFIER_BITS) - 1)) as usize
    }
}

impl CellList {
    pub(crate) fn len(&self) -> usize {
        self.cells.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The memory that the cells occupy, in bytes.
    pub(crate) fn byte_len(&self) -> usize {
        self.data.len() + self.cells.len() * size_of::<CellIndex>()
    }

    /// Reserves memory for `cells` cells with `bytes` bytes of qualifiers and values in total.
    pub(crate) fn reserve(&mut self, cells: usize, bytes: usize) {
        self.cells.reserve(cells);
        self.data.reserve(bytes);
    }

    /// Adds a cell.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "backends reject longer qualifiers and values"
    )]
    pub(crate) fn push(&mut self, family: u8, qualifier: &[u8], timestamp_ms: i64, value: &[u8]) {
        debug_assert!(qualifier.len() <= MAX_QUALIFIER && u32::try_from(value.len()).is_ok());
        self.index(family, qualifier.len() as u32, timestamp_ms, value.len() as u32);
        self.data.extend_from_slice(qualifier);
        self.data.extend_from_slice(value);
    }

    #[inline]
    fn index(&mut self, family: u8, qualifier_length: u32, timestamp_ms: i64, value_length: u32) {
        self.cells.push(CellIndex {
            timestamp_ms,
            offset: self.data.len(),
            value_length,
            family_and_qualifier: u32::from(family) << CellIndex::QUALIFIER_BITS | qualifier_length,
        });
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = RawCell<'_>> + DoubleEndedIterator + Clone {
        self.cells.iter().map(|index| {
            let value_start = index.offset + index.qualifier_length();
            RawCell {
                family: index.family(),
                qualifier: &self.data[index.offset..value_start],
                timestamp_ms: index.timestamp_ms,
                value: &self.data[value_start..value_start + index.value_length as usize],
            }
        })
    }
}

impl PartialEq for CellList {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_qualifier_does_not_overflow_into_the_family() {
        let longest = vec![7; MAX_QUALIFIER];
        let mut cells = CellList::default();
        cells.push(u8::MAX, &longest, 1, b"a");
        cells.push(0, &[], 2, b"b");
        let entries: Vec<_> = cells
            .iter()
            .map(|cell| (cell.family, cell.qualifier.len(), cell.value))
            .collect();
        assert_eq!(entries, [(u8::MAX, longest.len(), &b"a"[..]), (0, 0, b"b")]);
    }
}
