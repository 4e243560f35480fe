//! Checks a part completely: every byte, and that heads and statistics match the points.

use super::blocks::RawBlock;
use super::columns::Columns;
use super::decode::Decoder;
use super::reader::Part;
use super::{SeriesKey, Statistics};
use crate::{PointStoreError, TimeRange};

impl Part {
    /// Reads the whole file past the cache, and decodes it.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] with the first damage, or errors of the disk.
    pub fn verify(&self) -> Result<(), PointStoreError> {
        if self.reread_index()? != *self.meta() {
            return Err(self.damaged("the index changed"));
        }
        for index in 0..self.index.times.len() {
            self.read_times_page(index)?;
        }
        for index in 0..self.index.blocks.len() {
            self.block_page(index, false)?;
        }
        let (mut decoder, mut columns) = (Decoder::default(), Columns::default());
        let (mut series, mut points, mut blocks) = (0, 0, 0);
        let mut last: Option<(SeriesKey, i64)> = None;
        for block in self.all_blocks() {
            let block = block?;
            columns.clear();
            self.decode(&block, TimeRange::ALL, &mut decoder, &mut columns)?;
            self.verify_block(&block, &columns)?;
            let head = block.head();
            let in_order = last.is_none_or(|(key, last_ms)| {
                key < head.key || (key == head.key && last_ms < head.range.first_ms)
            });
            if !in_order {
                return Err(self.damaged("blocks do not ascend"));
            }
            series += u64::from(last.is_none_or(|(key, _)| key != head.key));
            last = Some((head.key, head.range.last_ms));
            points += head.count as u64;
            blocks += 1;
        }
        let meta = self.meta();
        if (series, points, blocks) != (meta.series, meta.points, meta.blocks) {
            return Err(self.damaged("the index counts other points than there are"));
        }
        Ok(())
    }

    /// Compares the head of a block with its decoded points.
    pub(super) fn verify_block(&self, block: &RawBlock, columns: &Columns) -> Result<(), PointStoreError> {
        let head = block.head();
        let times = &columns.times_ms;
        let range = (times.first().copied(), times.last().copied());
        if range != (Some(head.range.first_ms), Some(head.range.last_ms)) || !times.is_sorted_by(|a, b| a < b)
        {
            return Err(self.damaged("instants of a block do not ascend in its range"));
        }
        if head.statistics != Statistics::from_values(&columns.kinds, &columns.bits) {
            return Err(self.damaged("statistics of a block are not those of its points"));
        }
        Ok(())
    }
}
