//! Reads the points and the blocks of series.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::SeriesKey;
use super::blocks::{Blocks, RawBlock};
use super::columns::Columns;
use super::decode::Decoder;
use super::index::{ALL_KEYS, KeySpan};
use super::reader::Part;
use crate::{BlockSummary, PointStoreError, TimeRange};

impl Part {
    /// Appends the points of a series in a range, ascending by instant.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`], or errors of the disk. Some points may have been appended.
    pub fn read(
        &self,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<(), PointStoreError> {
        for block in self.blocks(key..=key, range) {
            self.decode(&block?, range, decoder, out)?;
        }
        Ok(())
    }

    /// As [`Part::read`], but summarizes blocks that lie in the range and that `summarizes` accepts.
    ///
    /// # Errors
    ///
    /// As [`Part::read`].
    pub fn read_summarized(
        &self,
        key: SeriesKey,
        range: TimeRange,
        summarizes: &dyn Fn(&BlockSummary) -> bool,
        decoder: &mut Decoder,
        (out, summaries): (&mut Columns, &mut Vec<BlockSummary>),
    ) -> Result<(), PointStoreError> {
        for block in self.blocks(key..=key, range) {
            let block = block?;
            let head = block.head();
            let is_inside = range.contains(head.range.first_ms) && range.contains(head.range.last_ms);
            let summary = head
                .statistics
                .filter(|_| is_inside)
                .map(|statistics| BlockSummary {
                    after: out.len(),
                    range: head.range,
                    count: head.count,
                    statistics,
                });
            match summary.filter(summarizes) {
                Some(summary) => summaries.push(summary),
                None => self.decode(&block, range, decoder, out)?,
            }
        }
        Ok(())
    }

    /// As [`Part::read`], but decodes only the last block that has points in the range.
    ///
    /// # Errors
    ///
    /// As [`Part::read`].
    pub fn read_last(
        &self,
        key: SeriesKey,
        range: TimeRange,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let from = out.len();
        let blocks: Vec<RawBlock> = self.blocks(key..=key, range).collect::<Result<_, _>>()?;
        for block in blocks.iter().rev() {
            self.decode(block, range, decoder, out)?;
            if out.len() > from {
                break;
            }
        }
        Ok(())
    }

    /// The blocks of a range of series that overlap a time range, in order of series, then time. Pages are cached.
    pub fn blocks(&self, keys: RangeInclusive<SeriesKey>, range: TimeRange) -> Blocks<&Self> {
        let (first, last) = keys.into_inner();
        Blocks::new(self, KeySpan { first, last }, range, true)
    }

    /// All blocks in order, for a merge: pages are not cached.
    pub fn iter(self: &Arc<Self>) -> Blocks<Arc<Self>> {
        Blocks::new(Arc::clone(self), ALL_KEYS, TimeRange::ALL, false)
    }

    /// All blocks in order. Pages are not cached.
    pub(super) fn all_blocks(&self) -> Blocks<&Self> {
        Blocks::new(self, ALL_KEYS, TimeRange::ALL, false)
    }
}
