//! A row as reads return it: its key and its cells in one buffer.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::cell_list::CellList;
use crate::limits::MAX_QUALIFIER;
use crate::{PointColumns, StoreError};

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

/// A row with at least one cell. If a [`Scan`](crate::Scan) allows it, the cells stay in the store's encoding:
/// [`Row::unpacked`] decodes them, and [`Row::read_points`] decodes points without building cells.
///
/// Cells ascend by family (in the order of the table's definition), then by qualifier (unsigned bytes);
/// versions of one column are in descending order of time. All cells share one buffer, because a query reads
/// hundreds of thousands of them.
#[derive(Clone)]
pub struct Row {
    key: Box<[u8]>,
    families: Arc<[String]>,
    cells: CellList,
    packed: Option<Arc<dyn PackedCells>>,
}

/// The cells of a row in the encoding of a store.
pub(crate) trait PackedCells: fmt::Debug + Send + Sync {
    /// An upper bound of the number of cells that needs no decoding; at least one.
    fn len(&self) -> usize;

    /// Decodes the cells as points; `false` if [`PointColumns`] cannot represent them.
    fn read_points(&self, row_key: &[u8], points: &mut PointColumns) -> Result<bool, StoreError>;

    /// Decodes the cells.
    fn read(&self, row_key: &[u8]) -> Result<CellList, StoreError>;
}

impl Row {
    /// A row whose cells are decoded on demand.
    pub(crate) fn packed(key: &[u8], families: Arc<[String]>, packed: Arc<dyn PackedCells>) -> Self {
        Self {
            key: key.into(),
            families,
            cells: CellList::default(),
            packed: Some(packed),
        }
    }

    /// Decodes the points of a packed row; `false` if the row is not packed or [`PointColumns`] cannot represent
    /// it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`].
    pub fn read_points(&self, points: &mut PointColumns) -> Result<bool, StoreError> {
        match &self.packed {
            Some(packed) => packed.read_points(&self.key, points),
            None => Ok(false),
        }
    }

    /// The row with its cells decoded.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`].
    pub fn unpacked(&self) -> Result<Cow<'_, Self>, StoreError> {
        let Some(packed) = &self.packed else {
            return Ok(Cow::Borrowed(self));
        };
        Ok(Cow::Owned(Self {
            cells: packed.read(&self.key)?,
            packed: None,
            ..self.clone()
        }))
    }

    /// A row of these cells; `None` if there are none.
    pub(crate) fn of(key: &[u8], families: Arc<[String]>, cells: CellList) -> Option<Self> {
        (!cells.is_empty()).then(|| Self {
            key: key.into(),
            families,
            cells,
            packed: None,
        })
    }

    /// The row key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The number of cells, counting all versions; an upper bound if the row is packed.
    pub fn len(&self) -> usize {
        self.packed
            .as_ref()
            .map_or(self.cells.len(), |packed| packed.len())
    }

    /// Whether there are no cells. A store never returns such a row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells in the order described at [`Row`]; none if the row is packed.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellRef<'_>> + Clone {
        self.cells.iter().map(|cell| CellRef {
            family: &self.families[usize::from(cell.family)],
            qualifier: cell.qualifier,
            timestamp_ms: cell.timestamp_ms,
            value: cell.value,
        })
    }

    /// Bytes of the key and of all qualifiers and values; a packed cell counts 16 bytes.
    pub fn byte_len(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, |packed| packed.len());
        self.key.len() + self.cells.byte_len() + packed * 2 * size_of::<i64>()
    }

    /// The newest cell of a column; `None` if the row is packed.
    pub fn get(&self, family: &str, qualifier: &[u8]) -> Option<CellRef<'_>> {
        self.cells()
            .find(|cell| cell.family == family && cell.qualifier == qualifier)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Self, b: &Self| a.cells().eq(b.cells());
        // A row that cannot be decoded is equal to no row.
        let same_cells = || matches!((self.unpacked(), other.unpacked()), (Ok(a), Ok(b)) if same(&a, &b));
        self.key == other.key && same_cells()
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("key", &self.key)
            .field("cells", &self.cells().collect::<Vec<_>>())
            .field("packed", &self.packed)
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
    /// A row without cells. `families` are those of the table, in the order of its definition.
    pub fn new(key: &[u8], families: Arc<[String]>) -> Self {
        Self {
            key: key.into(),
            families,
            cells: CellList::default(),
        }
    }

    /// Reserves memory for `cells` cells whose qualifiers and values have `bytes` bytes in total.
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
        Row::of(&self.key, self.families, self.cells)
    }
}
