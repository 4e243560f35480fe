//! Rows of the gateway's responses, decoded in one pass: bytes go from the connection's buffer to the cells of a row.
//!
//! ```text
//!   TRowResult   1: row          string
//!                2: columns      map  column name -> TCell      of gets, in no useful order
//!                3: sortedColumns list of TColumn               of scans, in HBase's order
//!   TColumn      1: columnName   string   family ':' qualifier
//!                2: cell         TCell
//!   TCell        1: value        string
//!                2: timestamp    i64      milliseconds
//! ```
//!
//! The generated code allocates a name, a value and two structs for each cell; of a row of single points that is most
//! of the time of a read.
//!
//! Source: HBase 2.6, `Hbase.thrift`, `ThriftUtilities.rowResultFromHBase`.

use std::io::Read;
use std::sync::Arc;

use thrift::protocol::{TInputProtocol, TType};
use thrift::{ProtocolErrorKind, new_protocol_error};

use super::protocol::BoundedInput;
use crate::Row;
use crate::cell_list::CellList;
use crate::limits::MAX_QUALIFIER;

/// A row of a response; a wide row arrives in several parts.
#[derive(Debug)]
pub(super) struct RowPart {
    pub(super) key: Vec<u8>,
    /// The families of the cells.
    families: Arc<[String]>,
    cells: CellList,
    is_sorted: bool,
}

impl RowPart {
    /// A part of one cell.
    #[cfg(test)]
    pub(super) fn from_cell(key: &[u8], family: &str, qualifier: &[u8], value: &[u8]) -> Self {
        let mut cells = CellList::default();
        cells.push(0, qualifier, 1, value);
        Self {
            key: key.to_vec(),
            families: [family.to_owned()].into(),
            cells,
            is_sorted: true,
        }
    }

    /// Adds the next part of the row.
    ///
    /// # Errors
    ///
    /// If the row has too many families.
    pub(super) fn append(&mut self, next: &Self) -> thrift::Result<()> {
        let mut families = Families {
            names: self.families.to_vec(),
            last: 0,
        };
        let indexes: Vec<u8> = next
            .families
            .iter()
            .map(|family| families.index(family))
            .collect::<Result<_, _>>()?;
        if families.names.len() > self.families.len() {
            self.families = families.names.into();
        }
        for cell in next.cells.iter() {
            let Some(family) = indexes.get(usize::from(cell.family)) else {
                continue;
            };
            self.is_sorted &= follows(&self.families, &self.cells, *family, cell.qualifier);
            self.cells
                .push(*family, cell.qualifier, cell.timestamp_ms, cell.value);
        }
        Ok(())
    }

    /// The row; `None` if it has no cells.
    ///
    /// HBase orders families by name, regardless of the table's definition; so do the cells.
    pub(super) fn into_row(mut self) -> Option<Row> {
        if !self.is_sorted {
            let mut cells: Vec<_> = self.cells.iter().collect();
            cells.sort_by_key(|cell| (&self.families[usize::from(cell.family)], cell.qualifier));
            let mut sorted = CellList::default();
            let bytes = cells.iter().map(|cell| cell.qualifier.len() + cell.value.len());
            sorted.reserve(cells.len(), bytes.sum());
            for cell in cells {
                sorted.push(cell.family, cell.qualifier, cell.timestamp_ms, cell.value);
            }
            self.cells = sorted;
        }
        Row::from_cells(self.key, self.families, self.cells)
    }
}

/// Whether a cell may follow the last one of a list.
#[inline]
fn follows(families: &[String], cells: &CellList, family: u8, qualifier: &[u8]) -> bool {
    let Some(last) = cells.iter().next_back() else {
        return true;
    };
    if last.family == family {
        return last.qualifier <= qualifier;
    }
    let name = |index: u8| families.get(usize::from(index));
    name(last.family) < name(family)
}

/// The families of a response, in the order in which they arrive.
#[derive(Default)]
struct Families {
    names: Vec<String>,
    /// Index of the family that was found last.
    last: u8,
}

impl Families {
    /// Splits a column's name into its family and its qualifier, if the name before had the same family.
    #[inline]
    fn last_of<'n>(&self, name: &'n [u8]) -> Option<(u8, &'n [u8])> {
        let family = self.names.get(usize::from(self.last))?;
        let qualifier = name.strip_prefix(family.as_bytes())?.strip_prefix(b":")?;
        Some((self.last, qualifier))
    }

    /// Splits a column's name.
    fn split<'n>(&mut self, name: &'n [u8]) -> thrift::Result<(u8, &'n [u8])> {
        let split = name.iter().position(|byte| *byte == b':');
        let (family, qualifier) = split
            .and_then(|at| Some((name.get(..at)?, name.get(at + 1..)?)))
            .ok_or_else(|| invalid(format!("a column `{}` without a family", name.escape_ascii())))?;
        let family = std::str::from_utf8(family).map_err(|_| {
            invalid(format!(
                "a column family `{}` that is not UTF-8",
                family.escape_ascii()
            ))
        })?;
        Ok((self.index(family)?, qualifier))
    }

    fn index(&mut self, name: &str) -> thrift::Result<u8> {
        let index = match self.names.iter().position(|family| family == name) {
            Some(index) => index,
            None => {
                self.names.push(name.to_owned());
                self.names.len() - 1
            }
        };
        self.last = u8::try_from(index).map_err(|_| invalid(format!("a row with {} families", index + 1)))?;
        Ok(self.last)
    }
}

/// Reads a list of rows.
pub(super) fn read_rows<R: Read>(input: &mut BoundedInput<R>) -> thrift::Result<Vec<RowPart>> {
    let count = input.read_list_begin()?.size;
    let mut decoder = Decoder::default();
    let mut rows = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    for _ in 0..count {
        rows.push(decoder.row(input)?);
    }
    let families: Arc<[String]> = decoder.families.names.into();
    let part = |(key, cells, is_sorted)| RowPart {
        key,
        families: Arc::clone(&families),
        cells,
        is_sorted,
    };
    Ok(rows.into_iter().map(part).collect())
}

/// The buffers of a response.
#[derive(Default)]
struct Decoder {
    families: Families,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Decoder {
    /// Reads a row: its key, its cells, and whether they are sorted.
    fn row<R: Read>(&mut self, input: &mut BoundedInput<R>) -> thrift::Result<(Vec<u8>, CellList, bool)> {
        let (mut key, mut cells, mut is_sorted) = (Vec::new(), CellList::default(), true);
        while let Some((kind, field)) = input.field()? {
            match (field, kind) {
                (1, TType::String) => {
                    key.clear();
                    input.append_string(&mut key)?;
                }
                (2, TType::Map) => {
                    for left in (0..input.read_map_begin()?.size).rev() {
                        self.name.clear();
                        input.append_string(&mut self.name)?;
                        let timestamp_ms = self.cell(input)?;
                        is_sorted &= self.add(&mut cells, timestamp_ms, left)?;
                    }
                }
                (3, TType::List) => {
                    for left in (0..input.read_list_begin()?.size).rev() {
                        let timestamp_ms = self.column(input)?;
                        is_sorted &= self.add(&mut cells, timestamp_ms, left)?;
                    }
                }
                _ => input.skip(kind)?,
            }
        }
        Ok((key, cells, is_sorted))
    }

    /// Reads a column into the buffers; returns its timestamp.
    fn column<R: Read>(&mut self, input: &mut BoundedInput<R>) -> thrift::Result<i64> {
        self.name.clear();
        let mut timestamp_ms = None;
        while let Some((kind, field)) = input.field()? {
            match (field, kind) {
                (1, TType::String) => {
                    self.name.clear();
                    input.append_string(&mut self.name)?;
                }
                (2, TType::Struct) => timestamp_ms = Some(self.cell(input)?),
                _ => input.skip(kind)?,
            }
        }
        timestamp_ms.ok_or_else(|| invalid("a column without a cell".to_owned()))
    }

    /// Reads a cell; its value goes into the buffer.
    fn cell<R: Read>(&mut self, input: &mut BoundedInput<R>) -> thrift::Result<i64> {
        self.value.clear();
        let mut timestamp_ms = 0;
        while let Some((kind, field)) = input.field()? {
            match (field, kind) {
                (1, TType::String) => {
                    self.value.clear();
                    input.append_string(&mut self.value)?;
                }
                (2, TType::I64) => timestamp_ms = input.read_i64()?,
                _ => input.skip(kind)?,
            }
        }
        Ok(timestamp_ms)
    }

    /// Adds the cell in the buffers to a row that gets `left` more; returns whether it is in order.
    fn add(&mut self, cells: &mut CellList, timestamp_ms: i64, left: i32) -> thrift::Result<bool> {
        let name = self.name.as_slice();
        let (family, qualifier) = match self.families.last_of(name) {
            Some(column) => column,
            None => self.families.split(name)?,
        };
        if qualifier.len() > MAX_QUALIFIER {
            return Err(invalid(format!(
                "a qualifier of {} bytes, at most {MAX_QUALIFIER} can be read",
                qualifier.len()
            )));
        }
        if cells.is_empty() {
            // The others are about as long. The announced cells were charged to the response's allowance.
            let left = usize::try_from(left).unwrap_or_default();
            let bytes = qualifier.len() + self.value.len();
            cells.reserve(left + 1, bytes + left * bytes.min(EXPECTED_CELL_BYTES));
        }
        let is_sorted = follows(&self.families.names, cells, family, qualifier);
        cells.push(family, qualifier, timestamp_ms, &self.value);
        Ok(is_sorted)
    }
}

/// The most bytes that are reserved for a cell before it arrives; less than its charge.
const EXPECTED_CELL_BYTES: usize = 32;

fn invalid(detail: String) -> thrift::Error {
    new_protocol_error(ProtocolErrorKind::InvalidData, detail)
}

#[cfg(test)]
mod tests;
