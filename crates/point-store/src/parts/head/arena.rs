//! The bytes of all chunks of a shard: chains of small blocks, freed all at once.
//!
//! ```text
//!   unit     16 bytes; a page is 64 KiB of them
//!   block    a power of two of units within a page: next (4, the number of its first unit) | data
//! ```
//!
//! A chain never moves its bytes when it grows. Its blocks grow with it, so that the last one is small compared with the
//! chain; a chain that continues another one begins with large blocks. The last block links to the first one, so that a
//! chain is held by its last block only.

/// Bytes of a unit.
const UNIT: usize = 16;
/// Units of a page.
const PAGE_UNITS: usize = 4096;
/// Bytes at the start of a block that link to the next one.
const LINK: usize = 4;
/// The number of the first block of a chain that continues another one.
const CONTINUED: u8 = 9;
/// The number behind the last block of a chain.
const BLOCKS: u8 = 12;

/// A chain of bytes that grows at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    last: u32,
    /// Bytes of data that the last block still takes.
    free: u8,
    /// The numbers of its first block, and of the next one.
    first: u8,
    blocks: u8,
}

/// Memory of chains.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pages: Vec<Box<[u8]>>,
    /// Units of the last page that are taken.
    taken: usize,
}

/// Units of the block with a number.
const fn units(number: u8) -> usize {
    match number {
        0..=1 => 1,
        2..=4 => 2,
        5..=8 => 4,
        _ => 16,
    }
}

impl Chain {
    /// Bytes of data.
    pub(super) fn byte_len(&self) -> usize {
        let blocks = (self.first..self.blocks).map(|number| units(number) * UNIT - LINK);
        blocks.sum::<usize>() - usize::from(self.free)
    }

    /// The last block.
    pub(super) const fn last(&self) -> u32 {
        self.last
    }

    /// Bits of [`Chain::pack`] beside the last block.
    pub(super) const STATE_BITS: u32 = 13;

    /// The last block, and everything else in the lowest [`Chain::STATE_BITS`] bits.
    #[inline]
    pub(super) fn pack(self) -> (u32, u64) {
        let is_continued = u64::from(self.first == CONTINUED);
        let state = u64::from(self.free) << 5 | u64::from(self.blocks) << 1 | is_continued;
        (self.last, state)
    }

    /// The chain that [`Chain::pack`] returned.
    #[inline]
    pub(super) fn unpack(last: u32, state: u64) -> Self {
        Self {
            last,
            free: u8::try_from(state >> 5 & 0xff).unwrap_or(0),
            first: if state & 1 == 0 { 0 } else { CONTINUED },
            blocks: u8::try_from(state >> 1 & 0xf).unwrap_or(0),
        }
    }
}

const _: () = assert!(BLOCKS < 1 << 4, "the number of blocks has 4 bits");

impl Arena {
    /// Bytes of memory.
    pub(super) const fn byte_len(&self) -> usize {
        self.pages.len() * PAGE_UNITS * UNIT
    }

    /// A chain without bytes.
    pub(super) fn chain(&mut self) -> Chain {
        self.chain_from(0)
    }

    /// A chain without bytes that continues one that is full.
    pub(super) fn continued(&mut self) -> Chain {
        self.chain_from(CONTINUED)
    }

    fn chain_from(&mut self, first: u8) -> Chain {
        let last = self.block(units(first));
        self.link(last).copy_from_slice(&last.to_be_bytes());
        Chain {
            last,
            free: free(units(first)),
            first,
            blocks: first + 1,
        }
    }

    /// Appends bytes to a chain.
    #[inline]
    pub(super) fn append(&mut self, chain: &mut Chain, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if chain.free == 0 {
                self.grow(chain);
            }
            let length = bytes.len().min(usize::from(chain.free));
            let (fits, rest) = bytes.split_at(length);
            // A block's data ends where the block ends.
            let end = self.end_of_last(chain) - usize::from(chain.free);
            let page = &mut self.pages[chain.last as usize / PAGE_UNITS];
            page[end..end + length].copy_from_slice(fits);
            chain.free -= u8::try_from(length).unwrap_or(chain.free);
            bytes = rest;
        }
    }

    /// Replaces `bytes` by the bytes of a chain.
    pub(super) fn read(&self, chain: &Chain, bytes: &mut Vec<u8>) {
        bytes.clear();
        let mut block = self.next(chain.last);
        for number in chain.first..chain.blocks {
            let start = block as usize % PAGE_UNITS * UNIT;
            let page = &self.pages[block as usize / PAGE_UNITS];
            let mut end = start + units(number) * UNIT;
            if block == chain.last {
                end -= usize::from(chain.free);
            }
            bytes.extend_from_slice(&page[start + LINK..end]);
            block = self.next(block);
        }
    }

    /// Whether a chain takes no more bytes than this many, whatever they are.
    pub(super) const fn is_full(chain: &Chain, bytes: usize) -> bool {
        chain.blocks == BLOCKS && (chain.free as usize) < bytes
    }

    /// Reads the byte before the next one of a chain, so that both are in the processor's cache.
    #[inline]
    pub(super) fn touch(&self, chain: &Chain) -> u8 {
        let end = self.end_of_last(chain) - usize::from(chain.free);
        self.pages[chain.last as usize / PAGE_UNITS][end - 1]
    }

    /// The block that a block links to; the last one links to the first.
    #[inline]
    pub(super) fn next(&self, block: u32) -> u32 {
        let start = block as usize % PAGE_UNITS * UNIT;
        let mut next = [0; LINK];
        next.copy_from_slice(&self.pages[block as usize / PAGE_UNITS][start..start + LINK]);
        u32::from_be_bytes(next)
    }

    fn end_of_last(&self, chain: &Chain) -> usize {
        (chain.last as usize % PAGE_UNITS + units(chain.blocks - 1)) * UNIT
    }

    fn grow(&mut self, chain: &mut Chain) {
        let units = units(chain.blocks);
        let block = self.block(units);
        let first = self.next(chain.last);
        self.link(block).copy_from_slice(&first.to_be_bytes());
        self.link(chain.last).copy_from_slice(&block.to_be_bytes());
        chain.last = block;
        chain.free = free(units);
        chain.blocks += 1;
    }

    /// The link of a block.
    fn link(&mut self, block: u32) -> &mut [u8] {
        let start = block as usize % PAGE_UNITS * UNIT;
        &mut self.pages[block as usize / PAGE_UNITS][start..start + LINK]
    }

    /// The first unit of a new block.
    fn block(&mut self, units: usize) -> u32 {
        if self.pages.is_empty() || self.taken + units > PAGE_UNITS {
            self.pages.push(vec![0; PAGE_UNITS * UNIT].into());
            self.taken = 0;
        }
        let unit = (self.pages.len() - 1) * PAGE_UNITS + self.taken;
        self.taken += units;
        // 64 GiB of units; the engine freezes a head long before.
        u32::try_from(unit).unwrap_or(u32::MAX)
    }
}

/// Bytes of data that a new block takes.
fn free(units: usize) -> u8 {
    u8::try_from(units * UNIT - LINK).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_keep_their_bytes_while_others_grow() {
        let mut arena = Arena::default();
        let chain = |number| {
            if number % 2 == 0 {
                arena.chain()
            } else {
                arena.continued()
            }
        };
        let mut chains: Vec<(Chain, Vec<u8>)> = (0..50).map(chain).map(|chain| (chain, Vec::new())).collect();
        for round in 0..400_u32 {
            for (index, (chain, model)) in (0_u32..).zip(&mut chains) {
                let length = (round * 7 + index * 13) % 23;
                let bytes: Vec<u8> = (0..length)
                    .map(|n| (n + round + index).to_be_bytes()[3])
                    .collect();
                if Arena::is_full(chain, bytes.len()) {
                    continue;
                }
                arena.append(chain, &bytes);
                model.extend(bytes);
            }
        }
        let mut read = Vec::new();
        for (chain, model) in &chains {
            arena.read(chain, &mut read);
            assert_eq!(chain.byte_len(), read.len());
            assert_eq!(&read, model);
            assert!(model.len() > 650);
        }
    }

    #[test]
    fn a_chain_says_when_it_is_full() {
        let mut arena = Arena::default();
        let mut chain = arena.chain();
        let mut bytes = 0;
        while !Arena::is_full(&chain, 20) {
            arena.append(&mut chain, &[1; 20]);
            bytes += 20;
        }
        let mut read = Vec::new();
        arena.read(&chain, &mut read);
        assert_eq!(read.len(), bytes);
        assert!(bytes > 800);
    }
}
