//! Builds rows of cells.

use std::sync::Arc;

use super::cell_block::{Cell, CellReader};
use super::error::CallError;
use crate::{Row, RowBuilder};

/// Builds the rows of one read. Rows with the same families share their names.
#[derive(Debug, Default)]
pub(super) struct RowReader {
    /// The families that were seen, ascending: HBase orders cells by the names of their families.
    families: Vec<String>,
    shared: Option<Arc<[String]>>,
}

/// The cells of a row that may have more.
#[derive(Debug)]
pub(super) struct PartialRow {
    key: Vec<u8>,
    /// Family, qualifier, timestamp and value of each cell.
    cells: Vec<(usize, Vec<u8>, i64, Vec<u8>)>,
}

impl RowReader {
    /// The row of the next `count` cells; `None` if there are none.
    ///
    /// # Errors
    ///
    /// [`CallError::Malformed`].
    pub(super) fn read(&mut self, cells: &mut CellReader, count: usize) -> Result<Option<Row>, CallError> {
        let mut builder: Option<RowBuilder> = None;
        for read in 0..count {
            let cell = cells.next()?;
            let family = self.family(&cell)?;
            if builder.is_none() || self.shared.is_none() {
                // A family that is new in the middle of a row: the cells before it are copied.
                let families = self.shared_families();
                let mut begun = RowBuilder::new(cell.row, families);
                if let Some(row) = builder.take().and_then(RowBuilder::finish) {
                    self.copy(&row, &mut begun);
                } else {
                    begun.reserve(count - read, 0);
                }
                builder = Some(begun);
            }
            if let Some(builder) = &mut builder {
                builder.push(family, cell.qualifier, cell.timestamp_ms, cell.value);
            }
        }
        Ok(builder.and_then(RowBuilder::finish))
    }

    /// Adds the next `count` cells to a row that began before.
    ///
    /// # Errors
    ///
    /// [`CallError::Malformed`].
    pub(super) fn extend(
        &mut self,
        partial: &mut Option<PartialRow>,
        cells: &mut CellReader,
        count: usize,
    ) -> Result<(), CallError> {
        for _ in 0..count {
            let cell = cells.next()?;
            let family = self.family(&cell)?;
            let row = partial.get_or_insert_with(|| PartialRow {
                key: cell.row.to_vec(),
                cells: Vec::new(),
            });
            row.cells.push((
                family,
                cell.qualifier.to_vec(),
                cell.timestamp_ms,
                cell.value.to_vec(),
            ));
        }
        Ok(())
    }

    /// The whole of a row that came in parts.
    pub(super) fn finish(&mut self, partial: PartialRow) -> Option<Row> {
        let mut builder = RowBuilder::new(&partial.key, self.shared_families());
        for (family, qualifier, timestamp_ms, value) in &partial.cells {
            builder.push(*family, qualifier, *timestamp_ms, value);
        }
        builder.finish()
    }

    /// The index of a cell's family.
    fn family(&mut self, cell: &Cell<'_>) -> Result<usize, CallError> {
        let known = self
            .families
            .iter()
            .position(|family| family.as_bytes() == cell.family);
        if let Some(known) = known {
            return Ok(known);
        }
        let family = std::str::from_utf8(cell.family)
            .map_err(|_| CallError::malformed("the family of a cell is not UTF-8"))?;
        if self.families.len() >= crate::limits::MAX_FAMILIES {
            return Err(CallError::malformed(format!(
                "a table has more than {} families",
                crate::limits::MAX_FAMILIES
            )));
        }
        self.families.push(family.to_owned());
        self.shared = None;
        Ok(self.families.len() - 1)
    }

    fn shared_families(&mut self) -> Arc<[String]> {
        let families = &self.families;
        Arc::clone(self.shared.get_or_insert_with(|| Arc::from(families.as_slice())))
    }

    fn copy(&self, row: &Row, builder: &mut RowBuilder) {
        for cell in row.cells() {
            let family = self.families.iter().position(|family| family == cell.family);
            builder.push(
                family.unwrap_or_default(),
                cell.qualifier,
                cell.timestamp_ms,
                cell.value,
            );
        }
    }
}

impl PartialRow {
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Adds the cells that follow.
    pub(super) fn append(&mut self, mut later: Self) {
        self.cells.append(&mut later.cells);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell_block::cell_type;
    use super::*;

    fn block(cells: &[(&str, &str, &str)]) -> CellReader {
        let mut block = Vec::new();
        for (row, family, qualifier) in cells {
            let cell = Cell {
                row: row.as_bytes(),
                family: family.as_bytes(),
                qualifier: qualifier.as_bytes(),
                timestamp_ms: 1,
                kind: cell_type::PUT,
                value: b"v",
            };
            cell.encode(&mut block);
        }
        CellReader::new(block.into())
    }

    fn texts(row: &Row) -> Vec<String> {
        let text =
            |cell: crate::CellRef<'_>| format!("{}:{}", cell.family, String::from_utf8_lossy(cell.qualifier));
        row.cells().map(text).collect()
    }

    #[test]
    fn a_row_has_its_cells_with_their_families() {
        let mut reader = RowReader::default();
        let mut cells = block(&[("r", "a", "1"), ("r", "a", "2"), ("r", "b", "1"), ("s", "b", "9")]);
        let first = reader.read(&mut cells, 3).unwrap().unwrap();
        let second = reader.read(&mut cells, 1).unwrap().unwrap();
        assert_eq!(
            (first.key(), texts(&first)),
            (&b"r"[..], vec!["a:1".into(), "a:2".into(), "b:1".into()])
        );
        assert_eq!((second.key(), texts(&second)), (&b"s"[..], vec!["b:9".into()]));
        assert!(reader.read(&mut cells, 0).unwrap().is_none());
        assert!(reader.read(&mut cells, 1).is_err(), "there are no more cells");
    }

    #[test]
    fn a_row_in_parts_is_one_row() {
        let mut reader = RowReader::default();
        let mut cells = block(&[("r", "a", "1"), ("r", "a", "2"), ("r", "b", "1")]);
        let mut partial = None;
        reader.extend(&mut partial, &mut cells, 2).unwrap();
        reader.extend(&mut partial, &mut cells, 1).unwrap();
        let row = reader.finish(partial.unwrap()).unwrap();
        assert_eq!(texts(&row), ["a:1", "a:2", "b:1"]);
    }
}
