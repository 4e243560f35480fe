//! The blocks of a part in order, not decoded.

use std::ops::Deref;
use std::sync::Arc;

use super::index::{ALL_KEYS, KeySpan};
use super::page::{BlockPage, Times};
use super::reader::Part;
use super::{SeriesKey, Statistics};
use crate::{PointStoreError, TimeRange};
use oxtsdb_storage_file::varint::Reader;

/// The head of a block, known without decoding it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockHead {
    /// The series.
    pub key: SeriesKey,
    /// First and last instant.
    pub range: TimeRange,
    /// The number of points, at least 1.
    pub count: usize,
    /// Statistics of the values; `None` for small blocks and mixed types.
    pub statistics: Option<Statistics>,
}

/// A block as it is stored. It holds its page in memory.
#[derive(Clone, Debug)]
pub struct RawBlock {
    pub(super) head: BlockHead,
    pub(super) page: Arc<BlockPage>,
    pub(super) index: usize,
    /// The part's number in its cache.
    pub(super) part: u64,
}

impl RawBlock {
    /// The head, known without decoding it.
    pub const fn head(&self) -> &BlockHead {
        &self.head
    }

    pub(super) fn times(&self) -> Times {
        self.page.times[self.page.blocks[self.index].times as usize]
    }

    /// Statistics, kinds and values.
    pub(super) fn body(&self) -> &[u8] {
        &self.page.bytes[self.page.blocks[self.index].body()]
    }
}

/// Blocks of a part in order of series, then time, of a range of series keys, that overlap a time range.
///
/// `P` is `&Part` or `Arc<Part>`. Ends after the first error.
#[derive(Debug)]
pub struct Blocks<P> {
    part: P,
    keys: KeySpan,
    range: TimeRange,
    cached: bool,
    next_page: usize,
    page: Option<Arc<BlockPage>>,
    next_block: usize,
}

impl<P: Deref<Target = Part>> Blocks<P> {
    pub(super) fn new(part: P, keys: KeySpan, range: TimeRange, cached: bool) -> Self {
        let pages = &part.index.blocks;
        let next_page = pages.partition_point(|(_, page)| page.keys.last < keys.first);
        Self {
            part,
            keys,
            range,
            cached,
            next_page,
            page: None,
            next_block: 0,
        }
    }

    /// The blocks of a page only.
    pub(super) const fn from_page(part: P, page: Arc<BlockPage>) -> Self {
        Self {
            part,
            keys: ALL_KEYS,
            range: TimeRange::ALL,
            cached: false,
            next_page: usize::MAX,
            page: Some(page),
            next_block: 0,
        }
    }

    /// Loads the next page that may have a block.
    fn load(&mut self) -> Result<bool, PointStoreError> {
        while let Some((_, entry)) = self.part.index.blocks.get(self.next_page)
            && entry.keys.first <= self.keys.last
        {
            self.next_page += 1;
            if entry.range.overlaps(&self.range) {
                let page = self.part.block_page(self.next_page - 1, self.cached)?;
                self.next_block = page.blocks.partition_point(|block| block.key < self.keys.first);
                self.page = Some(page);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The next block of the page.
    fn next_of(&mut self, page: &Arc<BlockPage>) -> Result<Option<RawBlock>, PointStoreError> {
        while let Some(block) = page.blocks.get(self.next_block)
            && block.key <= self.keys.last
        {
            self.next_block += 1;
            let times = &page.times[block.times as usize];
            let range = times.range();
            if !range.overlaps(&self.range) {
                continue;
            }
            let Some(statistics) = Statistics::decode(&mut Reader(&page.bytes[block.body()])) else {
                return Err(self.part.damaged("statistics of a block are invalid"));
            };
            let head = BlockHead {
                key: block.key,
                range,
                count: times.count as usize,
                statistics,
            };
            return Ok(Some(RawBlock {
                head,
                page: Arc::clone(page),
                index: self.next_block - 1,
                part: self.part.id,
            }));
        }
        Ok(None)
    }

    fn try_next(&mut self) -> Result<Option<RawBlock>, PointStoreError> {
        loop {
            if let Some(page) = self.page.clone() {
                if let Some(block) = self.next_of(&page)? {
                    return Ok(Some(block));
                }
                self.page = None;
            }
            if !self.load()? {
                return Ok(None);
            }
        }
    }
}

impl<P: Deref<Target = Part>> Iterator for Blocks<P> {
    type Item = Result<RawBlock, PointStoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.try_next();
        if next.is_err() {
            self.page = None;
            self.next_page = usize::MAX;
        }
        next.transpose()
    }
}
