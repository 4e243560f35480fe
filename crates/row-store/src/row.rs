//! A row as it is read: its key and its cells, packed.

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

/// A row with at least one cell. Where a [`Scan`](crate::Scan) allows it, the cells may be packed as the store
/// keeps them: [`Row::unpacked`] has them, and [`Row::read_points`] may do without.
///
/// Cells ascend by family (in the order of the table's definition), then by qualifier (unsigned
/// bytes); of one column the newest comes first. All cells share one buffer, because a query reads
/// hundreds of thousands of them.
#[derive(Clone)]
pub struct Row {
    key: Box<[u8]>,
    families: Arc<[String]>,
    cells: CellList,
    packed: Option<Arc<dyn PackedCells>>,
}

/// The cells of a row as a store keeps them.
pub(crate) trait PackedCells: fmt::Debug + Send + Sync {
    /// How many there are, or as many as can be told without decoding them: at least one.
    fn len(&self) -> usize;

    /// Reads them as points; `false` if they are not what [`PointColumns`] are.
    fn read_points(&self, row_key: &[u8], points: &mut PointColumns) -> Result<bool, StoreError>;

    /// Reads them.
    fn read(&self, row_key: &[u8]) -> Result<CellList, StoreError>;
}

impl Row {
    /// A row of packed cells.
    pub(crate) fn packed(key: &[u8], families: Arc<[String]>, packed: Arc<dyn PackedCells>) -> Self {
        Self {
            key: key.into(),
            families,
            cells: CellList::default(),
            packed: Some(packed),
        }
    }

    /// Reads the points of a row whose cells are packed; `false` if they are not, or are not what
    /// [`PointColumns`] are.
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

    /// The row with its cells, which are not packed.
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

    /// The row of these cells, or `None` if there are none.
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

    /// Number of cells, all versions counted; if they are packed there may be more.
    pub fn len(&self) -> usize {
        self.packed
            .as_ref()
            .map_or(self.cells.len(), |packed| packed.len())
    }

    /// True if there are no cells. A store never returns such a row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The cells in their order; see [`Row`]. None, if they are packed.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = CellRef<'_>> + Clone {
        self.cells.iter().map(|cell| CellRef {
            family: &self.families[usize::from(cell.family)],
            qualifier: cell.qualifier,
            timestamp_ms: cell.timestamp_ms,
            value: cell.value,
        })
    }

    /// Bytes of the key, and of the qualifiers and values of all cells; of cells that are packed, 16 each.
    pub fn byte_len(&self) -> usize {
        let packed = self.packed.as_ref().map_or(0, |packed| packed.len());
        self.key.len() + self.cells.byte_len() + packed * 2 * size_of::<i64>()
    }

    /// The newest cell of a column, unless they are packed.
    pub fn get(&self, family: &str, qualifier: &[u8]) -> Option<CellRef<'_>> {
        self.cells()
            .find(|cell| cell.family == family && cell.qualifier == qualifier)
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Self, b: &Self| a.cells().eq(b.cells());
        // What cannot be unpacked is equal to nothing.
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
    /// A row without cells. `families` are the table's, in the order of its definition.
    pub fn new(key: &[u8], families: Arc<[String]>) -> Self {
        Self {
            key: key.into(),
            families,
            cells: CellList::default(),
        }
    }

    /// Makes room for so many cells with so many bytes of qualifiers and values together.
    pub fn reserve(&mut self, cells: usize, bytes: usize) {
        self.cells.reserve(cells, bytes);
    }

    /// Adds a cell; the caller keeps the order that [`Row`] promises.
    ///
    /// # Panics
    ///
    /// If `family` is no index of the families, the qualifier is longer than [`RowStore`] allows or
    /// the value than 4 GiB: a backend has refused such input before.
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
