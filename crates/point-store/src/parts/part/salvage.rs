//! Copies the intact blocks of a damaged part.

use super::blocks::{Blocks, RawBlock};
use super::columns::Columns;
use super::decode::Decoder;
use super::index::KeySpan;
use super::lost::Lost;
use super::page::Form;
use super::reader::Part;
use super::writer::PartWriter;
use crate::{PointStoreError, TimeRange};

/// The most ranges that are kept apart: bounds memory and the record on disk.
const MOST_RANGES: usize = 256;

impl Part {
    /// Writes all blocks that are intact to a part, and returns the losses, ascending by series. The index in memory
    /// has the offsets of pages, so the one in the file may be damaged, too.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn salvage(&self, writer: &mut PartWriter) -> Result<Vec<Lost>, PointStoreError> {
        // Read once, and not for each block that has its instants there.
        let times: Vec<bool> = (0..self.index.times.len())
            .map(|index| if_intact(self.read_times_page(index)).map(|page| page.is_some()))
            .collect::<Result<_, _>>()?;
        let has_times = |block: &RawBlock| match block.times().form {
            Form::Shared { number } => {
                let index = self.index.times.partition_point(|(_, end)| *end <= number);
                times.get(index) == Some(&true)
            }
            Form::Regular | Form::Inline { .. } => true,
        };
        let (mut decoder, mut columns) = (Decoder::default(), Columns::default());
        let mut lost = Vec::new();
        for (index, (_, entry)) in self.index.blocks.iter().enumerate() {
            let Some(page) = if_intact(self.block_page(index, false))? else {
                add(&mut lost, entry.keys, entry.range);
                continue;
            };
            for block in Blocks::from_page(self, page) {
                let Some(block) = if_intact(block)? else {
                    add(&mut lost, entry.keys, entry.range);
                    break;
                };
                columns.clear();
                let copied = has_times(&block).then(|| {
                    self.decode(&block, TimeRange::ALL, &mut decoder, &mut columns)?;
                    self.verify_block(&block, &columns)?;
                    writer.push_block(self, &block)
                });
                if copied.map(if_intact).transpose()?.flatten().is_none() {
                    let head = block.head();
                    let keys = KeySpan {
                        first: head.key,
                        last: head.key,
                    };
                    add(&mut lost, keys, head.range);
                }
            }
        }
        Ok(lost)
    }
}

/// `None` for damaged content, or content out of order.
fn if_intact<T>(result: Result<T, PointStoreError>) -> Result<Option<T>, PointStoreError> {
    match result {
        Ok(content) => Ok(Some(content)),
        Err(PointStoreError::Damaged { .. } | PointStoreError::Invalid(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds a range behind the others; extends the last one if they meet, or are too many.
fn add(lost: &mut Vec<Lost>, keys: KeySpan, range: TimeRange) {
    let is_full = lost.len() >= MOST_RANGES;
    match lost.last_mut().filter(|last| is_full || last.last >= keys.first) {
        Some(last) => {
            last.last = last.last.max(keys.last);
            last.range = TimeRange {
                first_ms: last.range.first_ms.min(range.first_ms),
                last_ms: last.range.last_ms.max(range.last_ms),
            };
        }
        None => lost.push(Lost {
            first: keys.first,
            last: keys.last,
            range,
        }),
    }
}
