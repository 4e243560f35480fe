//! Blocks of all tables in memory, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::block::Block;
use super::place::BlockRef;

/// Memory of an entry without its block.
const ENTRY_BYTES: u64 = 100;

/// A block, by the table's number in this process and the offset of the block.
pub(super) type BlockKey = (u64, u64);

#[derive(Clone, Debug)]
pub(super) enum CachedBlock {
    Data(Block),
    Index(Arc<Vec<BlockRef>>),
    Filter(Bytes),
}

#[derive(Clone, Copy, Debug)]
struct Weight;

impl Weighter<BlockKey, CachedBlock> for Weight {
    fn weight(&self, _: &BlockKey, block: &CachedBlock) -> u64 {
        let bytes = match block {
            CachedBlock::Data(block) => block.byte_len(),
            CachedBlock::Index(blocks) => blocks.iter().map(BlockRef::byte_len).sum(),
            CachedBlock::Filter(bytes) => bytes.len(),
        };
        ENTRY_BYTES + bytes as u64
    }
}

/// The blocks that the tables of a store share.
#[derive(Debug)]
pub(crate) struct BlockCache {
    blocks: Cache<BlockKey, CachedBlock, Weight>,
    next_table: AtomicU64,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub(crate) fn new(bytes: u64) -> Self {
        let blocks = usize::try_from(bytes / super::DATA_BYTES as u64).unwrap_or(usize::MAX);
        Self {
            blocks: Cache::with_weighter(blocks, bytes, Weight),
            next_table: AtomicU64::new(0),
        }
    }

    /// A number for a table that no other table of this cache had.
    pub(super) fn next_table(&self) -> u64 {
        self.next_table.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn get(&self, key: BlockKey) -> Option<CachedBlock> {
        self.blocks.get(&key)
    }

    pub(super) fn insert(&self, key: BlockKey, block: CachedBlock) {
        self.blocks.insert(key, block);
    }
}
