//! A row as reads return it: its key and its cells in one buffer.

use std::fmt;
use std::sync::Arc;

use crate::cell_list::CellList;
use crate::limits::MAX_QUALIFIER;

/// A cell of a [`Row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRef<'a> {
    /// Column family.
    pub family: &'a str,
    /// Qualifier, without the family.
    pub qualifier: &'a [u8],
    /// The cell's own timestamp, milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// Value.
    pub value: &'a [u8],
}

/// A row with at least one cell.
///
/// Cells ascend by family (in the order of the table's definition), then by qualifier (unsigned bytes);
/// versions of one column are in descending order of time. All cells share one buffer, because a query reads
/// hundreds of thousands of them.
#[derive(Clone)]
pub struct Row {
    key: Box<[u8]>,
    families: Arc<[String]>,
    cells: CellList,
}

impl Row {
    /// A row of these cells; `None` if there are none.
    pub(crate) fn from_cells(
        key: impl Into<Box<[u8]>>,
        families: Arc<[String]>,
        cells: CellList,
    ) -> Option<Self> {
        (!cells.is_empty()).then(|| Self {
            key: key.into(),
            families,
            cells,
        })
    }

    /// The row key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The number of cells, counting all versions.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are no cells. A store never returns such a row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells in the order described at [`Row`].
    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellRef<'_>> + Clone {
        self.cells.iter().map(|cell| CellRef {
            family: &self.families[usize::from(cell.family)],
            qualifier: cell.qualifier,
            timestamp_ms: cell.timestamp_ms,
            value: cell.value,
        })
    }

    /// Bytes of the key and of all qualifiers and values.
    pub fn byte_len(&self) -> usize {
        self.key.len() + self.cells.byte_len()
    }

    /// The newest cell of a column.
    pub fn get(&self, family: &str, qualifier: &[u8]) -> Option<CellRef<'_>> {
        self.cells()
            .find(|cell| cell.family == family && cell.qualifier == qualifier)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.cells().eq(other.cells())
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("key", &self.key)
            .field("cells", &self.cells().collect::<Vec<_>>())
            .finish()
    }
}

/// Builds a [`Row`]; for backends.
#[derive(Debug)]
pub struct RowBuilder {
    key: Box<[u8]>,
    families: Arc<[String]>,
    cells: CellList,
}

impl RowBuilder {
    /// A row without cells. `families` are the table's families, in the order of its definition.
    pub fn new(key: &[u8], families: Arc<[String]>) -> Self {
        Self {
            key: key.into(),
            families,
            cells: CellList::default(),
        }
    }

    /// Reserves memory for `cells` cells with `bytes` bytes of qualifiers and values in total.
    pub fn reserve(&mut self, cells: usize, bytes: usize) {
        self.cells.reserve(cells, bytes);
    }

    /// Adds a cell. The caller keeps the order that [`Row`] guarantees.
    ///
    /// # Panics
    ///
    /// If `family` is not an index of the families, or if the qualifier or value exceeds the limits of
    /// [`RowStore`]; backends reject such input earlier.
    ///
    /// [`RowStore`]: crate::RowStore
    pub fn push(&mut self, family: usize, qualifier: &[u8], timestamp_ms: i64, value: &[u8]) {
        assert!(
            family < self.families.len(),
            "family {family} of {}",
            self.families.len()
        );
        assert!(
            qualifier.len() <= MAX_QUALIFIER,
            "a qualifier is at most {MAX_QUALIFIER} bytes"
        );
        assert!(
            u32::try_from(value.len()).is_ok(),
            "a value is smaller than 4 GiB"
        );
        let family = u8::try_from(family).expect("a table has at most 16 families");
        self.cells.push(family, qualifier, timestamp_ms, value);
    }

    /// The row, or `None` if it has no cells.
    pub fn finish(self) -> Option<Row> {
        Row::from_cells(self.key, self.families, self.cells)
    }
}
