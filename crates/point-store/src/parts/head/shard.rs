//! A shard of the head: the chunks of its series.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::arena::Arena;
use super::chunk::Chunk;
use crate::Point;

/// Entries of a page of places, and of a page of chunks.
const PAGE: usize = 1024;

/// No chunk yet.
const NONE: u32 = u32::MAX;

/// The chunks of the series whose numbers have the same rest when divided by the number of shards. A series is known by
/// the quotient.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// By quotient: the place of its newest chunk. Pages without chunks are absent.
    places: Vec<Option<Box<[u32]>>>,
    /// The newest chunks in pages, so that growth copies nothing, in the order of their first points.
    chunks: Vec<Vec<Chunk>>,
    /// Full chunks, oldest first, by the place of the newest one.
    full: HashMap<u32, Vec<Chunk>, FxBuildHasher>,
    /// The first instant that was appended.
    base_ms: Option<i64>,
    arena: Arena,
    /// The least and greatest instants.
    extent: Option<(i64, i64)>,
    place_pages: usize,
}

/// Where the newest chunk of a series is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl Place {
    /// Of the first chunk.
    pub(super) const FIRST: Self = Self(0);
}

impl Shard {
    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let chunks = self.chunks.len() * PAGE * size_of::<Chunk>();
        let full = self.full.capacity() * size_of::<(u32, Vec<Chunk>)>();
        self.place_pages * PAGE * size_of::<u32>() + chunks + full + self.arena.byte_len()
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
                page.push(Chunk::new(&mut self.arena, base_ms));
            }
        }
        Place(*place)
    }

    /// Reads what [`Shard::append`] will change, so that it is in the processor's cache. The reads of several points
    /// overlap, those of one append do not.
    #[inline]
    pub(super) fn touch(&self, place: Place) -> u8 {
        let chunk = &self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        self.arena.touch(chunk.chain())
    }

    /// Appends a point.
    #[inline]
    pub(super) fn append(&mut self, place: Place, point: &Point) {
        let chunk = &mut self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        if chunk.is_full() {
            let base_ms = *self.base_ms.get_or_insert(point.time_ms);
            let full = std::mem::replace(chunk, Chunk::new(&mut self.arena, base_ms));
            self.full.entry(place.0).or_default().push(full);
        }
        chunk.append(&mut self.arena, point);
        let (first, last) = self.extent.unwrap_or((point.time_ms, point.time_ms));
        self.extent = Some((first.min(point.time_ms), last.max(point.time_ms)));
    }

    /// Bytes of the points of a series.
    pub(super) fn byte_len_of(&self, quotient: usize) -> usize {
        let Some(place) = self.find(quotient) else {
            return 0;
        };
        let newest = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        let full = self.full.get(&place).into_iter().flatten();
        full.chain([newest]).map(|chunk| chunk.chain().byte_len()).sum()
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

    /// Calls `each` with the points of a series' chunk of this number, from 0 on, in the order of their arrival. Returns
    /// whether there are more chunks.
    #[inline]
    pub(super) fn read(
        &self,
        quotient: usize,
        number: usize,
        bytes: &mut Vec<u8>,
        each: &mut impl FnMut(Point),
    ) -> bool {
        let (Some(base_ms), Some(place)) = (self.base_ms, self.find(quotient)) else {
            return false;
        };
        let full = self.full.get(&place).and_then(|full| full.get(number));
        let newest = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        full.unwrap_or(newest).read(&self.arena, base_ms, bytes, each);
        full.is_some()
    }
}
