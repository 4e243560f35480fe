//! A shard of the head: the chunks of its series.
//!
//! ```text
//!   place    of a series: its newest chunk
//!   full     its chunks before that, each with its extent and the one before it: a read visits the chunks in its range
//! ```

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::arena::{Arena, Chain};
use super::chunk::Chunk;
use crate::{Point, TimeRange};

/// Entries of a page of places, of newest and of full chunks.
const PAGE: usize = 1024;

/// No chunk.
const NONE: u32 = u32::MAX;

/// The chunks of the series with numbers that have the same rest when divided by the number of shards. The quotient
/// identifies a series.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// By quotient: the place of its newest chunk. Pages without chunks are absent.
    places: Vec<Option<Box<[u32]>>>,
    /// The newest chunks in pages, so that growth copies nothing, in the order of their first points.
    chunks: Vec<Vec<Chunk>>,
    /// Full chunks in pages, in the order in which they became full.
    full: Vec<Vec<FullChunk>>,
    /// The last full chunk of a series, by the place of its newest one.
    last_full: HashMap<u32, u32, FxBuildHasher>,
    /// A buffer.
    bytes: Vec<u8>,
    /// The first instant that was appended.
    base_ms: Option<i64>,
    arena: Arena,
    /// The least and greatest instants.
    extent: Option<(i64, i64)>,
    place_pages: usize,
}

/// A chunk that no longer changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FullChunk {
    chain: Chain,
    /// The one before it, of the same series.
    before: u32,
    first_ms: i64,
    /// The greatest instant of this chunk and of the chunks before it.
    through_ms: i64,
}

/// The bytes and chunks of a shard that a read needs.
#[derive(Debug, Default)]
pub(super) struct Selected {
    /// The instant that chunks are relative to.
    pub(super) base_ms: i64,
    /// The full chunks that may have points in the range, newest first.
    pub(super) full: Vec<FullChunk>,
    /// The bytes of the newest chunk.
    pub(super) newest: Vec<u8>,
}

/// Location of the newest chunk of a series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl Place {
    /// Location of the first chunk.
    pub(super) const FIRST: Self = Self(0);
}

impl Shard {
    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let chunks = self.chunks.len() * PAGE * size_of::<Chunk>();
        let full = self.full.len() * PAGE * size_of::<FullChunk>();
        let last_full = self.last_full.capacity() * size_of::<(u32, u32)>();
        self.place_pages * PAGE * size_of::<u32>() + chunks + full + last_full + self.arena.byte_len()
    }

    /// The least and greatest instants; `None`: there are no points.
    pub(super) const fn extent(&self) -> Option<(i64, i64)> {
        self.extent
    }

    /// The quotients of series that have points, ascending.
    pub(super) fn quotients(&self) -> impl Iterator<Item = usize> {
        let pages = self.places.iter().enumerate();
        pages.flat_map(|(number, page)| {
            let places = page.iter().flat_map(|page| page.iter().enumerate());
            let used = places.filter(|(_, place)| **place != NONE);
            used.map(move |(index, _)| number * PAGE + index)
        })
    }

    /// The place of a series' newest chunk, which is created for a point at `time_ms` if there is none.
    #[inline]
    pub(super) fn place(&mut self, quotient: usize, time_ms: i64) -> Place {
        let page = quotient / PAGE;
        if page >= self.places.len() {
            self.places.resize(page + 1, None);
        }
        let place_pages = &mut self.place_pages;
        let page = self.places[page].get_or_insert_with(|| {
            *place_pages += 1;
            vec![NONE; PAGE].into()
        });
        let place = &mut page[quotient % PAGE];
        if *place == NONE {
            if self.chunks.last().is_none_or(|page| page.len() == PAGE) {
                self.chunks.push(Vec::with_capacity(PAGE));
            }
            let pages = self.chunks.len();
            if let Some(page) = self.chunks.last_mut() {
                // There are fewer chunks than numbers of series, which have 32 bits.
                *place = u32::try_from((pages - 1) * PAGE + page.len()).unwrap_or(NONE);
                let base_ms = *self.base_ms.get_or_insert(time_ms);
                page.push(Chunk::new(self.arena.chain(), base_ms));
            }
        }
        Place(*place)
    }

    /// Reads the memory that [`Shard::append`] will change, so that it is in the processor's cache. The reads of
    /// several points overlap, the reads of one append do not.
    #[inline]
    pub(super) fn touch(&self, place: Place) -> u8 {
        let chunk = &self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        self.arena.touch(&chunk.chain())
    }

    /// Appends a point.
    #[inline]
    pub(super) fn append(&mut self, place: Place, point: &Point) {
        if self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE].is_full() {
            self.begin_next(place, point.time_ms);
        }
        let chunk = &mut self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        chunk.append(&mut self.arena, point);
        let (first, last) = self.extent.unwrap_or((point.time_ms, point.time_ms));
        self.extent = Some((first.min(point.time_ms), last.max(point.time_ms)));
    }

    /// Replaces the newest chunk of a series, which is full, by an empty one.
    #[cold]
    fn begin_next(&mut self, place: Place, time_ms: i64) {
        let base_ms = *self.base_ms.get_or_insert(time_ms);
        let next = Chunk::new(self.arena.continued(), base_ms);
        let newest = &mut self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        let full = std::mem::replace(newest, next);
        let (first_ms, last_ms) = full.extent(&self.arena, base_ms, &mut self.bytes);
        let before = self.last_full.get(&place.0).copied().unwrap_or(NONE);
        let through_ms = self
            .full_at(before)
            .map_or(last_ms, |before| before.through_ms.max(last_ms));
        if self.full.last().is_none_or(|page| page.len() == PAGE) {
            self.full.push(Vec::with_capacity(PAGE));
        }
        let pages = self.full.len();
        if let Some(page) = self.full.last_mut() {
            // Fewer than units of the arena, which have 32-bit numbers.
            let number = u32::try_from((pages - 1) * PAGE + page.len()).unwrap_or(NONE);
            page.push(FullChunk {
                chain: full.chain(),
                before,
                first_ms,
                through_ms,
            });
            self.last_full.insert(place.0, number);
        }
    }

    /// The full chunk with a number; `None`: there is none.
    fn full_at(&self, number: u32) -> Option<&FullChunk> {
        self.full.get(number as usize / PAGE)?.get(number as usize % PAGE)
    }

    /// The full chunks of a series that may have points in a range, newest first.
    fn full_of(&self, place: u32, range: TimeRange) -> impl Iterator<Item = &FullChunk> {
        let last = self.last_full.get(&place).and_then(|last| self.full_at(*last));
        let chunks = std::iter::successors(last, |chunk| self.full_at(chunk.before));
        chunks
            .take_while(move |chunk| range.first_ms <= chunk.through_ms)
            .filter(move |chunk| chunk.first_ms <= range.last_ms)
    }

    /// Bytes of the chunks of a series that may have points in a range.
    pub(super) fn byte_len_of(&self, quotient: usize, range: TimeRange) -> usize {
        let Some(place) = self.find(quotient) else {
            return 0;
        };
        let newest = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        let full = self.full_of(place, range).map(|chunk| chunk.chain);
        let chains = full.chain([newest.chain()]);
        chains.map(|chain| chain.byte_len()).sum()
    }

    /// The last block of a series' newest chunk; `None`: it has no points.
    #[inline]
    pub(super) fn last_block(&self, quotient: usize) -> Option<u32> {
        let place = self.find(quotient)?;
        let chunk = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        Some(chunk.chain().last())
    }

    /// The next block of a chunk. Reading it brings it into the processor's cache.
    #[inline]
    pub(super) fn next_block(&self, block: u32) -> u32 {
        self.arena.next(block)
    }

    /// The place of a series' newest chunk.
    #[inline]
    fn find(&self, quotient: usize) -> Option<u32> {
        let page = self.places.get(quotient / PAGE)?.as_ref()?;
        Some(page[quotient % PAGE]).filter(|place| *place != NONE)
    }

    /// Selects the chunks of a series that may have points in a range; returns whether there are any.
    #[inline]
    pub(super) fn select(&self, quotient: usize, range: TimeRange, selected: &mut Selected) -> bool {
        let (Some(base_ms), Some((first_ms, last_ms))) = (self.base_ms, self.extent) else {
            return false;
        };
        if !range.overlaps(&TimeRange { first_ms, last_ms }) {
            return false;
        }
        let Some(place) = self.find(quotient) else {
            return false;
        };
        selected.base_ms = base_ms;
        selected.full.clear();
        selected.full.extend(self.full_of(place, range));
        let newest = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        self.arena.read(&newest.chain(), &mut selected.newest);
        true
    }

    /// The newest point of a series in a range; `None` if only a read finds it, as points were late or are newer.
    #[inline]
    pub(super) fn last(&self, quotient: usize, range: TimeRange) -> Option<Option<Point>> {
        let Some(place) = self.find(quotient) else {
            return Some(None);
        };
        let last = self.chunks[place as usize / PAGE][place as usize % PAGE].last()?;
        let full = self.last_full.get(&place).and_then(|full| self.full_at(*full));
        if range.last_ms < last.time_ms || full.is_some_and(|full| last.time_ms < full.through_ms) {
            return None;
        }
        Some(Some(last).filter(|last| range.first_ms <= last.time_ms))
    }

    /// Replaces `bytes` by the bytes of a full chunk.
    pub(super) fn copy_full(&self, chunk: &FullChunk, bytes: &mut Vec<u8>) {
        self.arena.read(&chunk.chain, bytes);
    }
}
