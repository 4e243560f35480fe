//! Rows that are decoded on demand.

use std::fmt;
use std::sync::Arc;

use fjall::Slice;

use super::block;
use super::blocks;
use super::catalog::Table;
use super::merge::{self, View};
use super::row_buffer::{Entry, RowBuffer};
use crate::cell_list::{CellList, RawCell};
use crate::row::PackedCells;
use crate::{PointColumns, StoreError};

/// The block of a row, if any, and its later puts. It has at least one cell.
pub(super) struct PackedRow {
    table: Arc<Table>,
    block: Option<Slice>,
    /// Ordered from old to new.
    buffers: Vec<RowBuffer>,
    view: View,
    /// The family of the cells that may be points.
    family: u8,
    count: usize,
}

impl PackedRow {
    /// `None` if the row may have no cells or does not begin with points.
    pub(super) fn of(
        table: &Arc<Table>,
        block: Option<&Slice>,
        buffers: &[&RowBuffer],
        view: &View,
    ) -> Option<Self> {
        if !view.selects_all() || !buffers.iter().all(|buffer| buffer.has_only_puts()) {
            return None;
        }
        let (family, stored) = match block {
            Some(block) => block::first_points(block)?,
            None => {
                let first = buffers.iter().find_map(|buffer| buffer.entries().next())?;
                (first.family, 0)
            }
        };
        Some(Self {
            table: Arc::clone(table),
            block: block.cloned(),
            count: stored + buffers.iter().map(|buffer| buffer.len()).sum::<usize>(),
            buffers: buffers.iter().map(|buffer| (*buffer).clone()).collect(),
            view: view.clone(),
            family,
        })
    }
}

impl PackedCells for PackedRow {
    fn len(&self) -> usize {
        self.count
    }

    fn read_points(&self, row_key: &[u8], points: &mut PointColumns) -> Result<bool, StoreError> {
        match &self.block {
            None => points.clear(),
            Some(block) => {
                if !blocks::decode_points(&self.table, row_key, block, points)? {
                    return Ok(false);
                }
            }
        }
        let mut puts = self.buffers.iter().flat_map(RowBuffer::entries).map(cell_of);
        Ok(puts.all(|put| put.family == self.family && block::push_point(points, &put)))
    }

    fn read(&self, row_key: &[u8]) -> Result<CellList, StoreError> {
        let stored = self
            .block
            .as_ref()
            .map(|block| blocks::decode(&self.table, row_key, block));
        let buffers: Vec<&RowBuffer> = self.buffers.iter().collect();
        Ok(merge::merge(stored.transpose()?, &buffers, &self.view))
    }
}

/// The cell of a put.
fn cell_of(put: Entry<'_>) -> RawCell<'_> {
    RawCell {
        family: put.family,
        qualifier: put.qualifier,
        timestamp_ms: put.timestamp_ms,
        value: put.value,
    }
}

impl fmt::Debug for PackedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cells", self.count)
    }
}
