//! A shard of the head: the chunks of its series.

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::arena::Arena;
use super::chunk::Chunk;
use crate::{Point, SeriesNumber};

/// Entries of a page of places, and of a page of chunks.
const PAGE: usize = 1024;

/// No chunk yet.
const NONE: u32 = u32::MAX;

/// The chunks of the series whose numbers have the same rest when divided by the number of shards.
#[derive(Debug, Default)]
pub(super) struct Shard {
    /// By the quotient of the series' number: the place of its newest chunk. Pages without chunks are absent.
    places: Vec<Option<Box<[u32]>>>,
    /// The newest chunks in pages, so that growth copies nothing, in the order of their first points.
    chunks: Vec<Vec<(SeriesNumber, Chunk)>>,
    /// Full chunks, oldest first.
    full: HashMap<SeriesNumber, Vec<Chunk>, FxBuildHasher>,
    arena: Arena,
    /// The least and greatest instants.
    extent: Option<(i64, i64)>,
    place_pages: usize,
}

/// Where the newest chunk of a series is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(u32);

impl Shard {
    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let chunks = self.chunks.len() * PAGE * size_of::<(SeriesNumber, Chunk)>();
        let full = self.full.len() * 64;
        self.place_pages * PAGE * size_of::<u32>() + chunks + full + self.arena.byte_len()
    }

    /// The least and greatest instants; `None`: there are no points.
    pub(super) const fn extent(&self) -> Option<(i64, i64)> {
        self.extent
    }

    /// The series that have points, in any order.
    pub(super) fn series(&self) -> impl Iterator<Item = SeriesNumber> {
        self.chunks.iter().flatten().map(|(series, _)| *series)
    }

    /// The place of a series' newest chunk, which is created if there is none; `quotient` as in [`Shard::places`].
    #[inline]
    pub(super) fn place(&mut self, quotient: usize, series: SeriesNumber) -> Place {
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
                page.push((series, Chunk::new(&mut self.arena)));
            }
        }
        Place(*place)
    }

    /// Reads what [`Shard::append`] will change, so that it is in the processor's cache. The reads of several points
    /// overlap, those of one append do not.
    #[inline]
    pub(super) fn touch(&self, place: Place) -> u8 {
        let (_, chunk) = &self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        self.arena.touch(chunk.chain())
    }

    /// Appends a point.
    #[inline]
    pub(super) fn append(&mut self, place: Place, point: &Point) {
        let (series, chunk) = &mut self.chunks[place.0 as usize / PAGE][place.0 as usize % PAGE];
        if chunk.is_full() {
            let full = std::mem::replace(chunk, Chunk::new(&mut self.arena));
            self.full.entry(*series).or_default().push(full);
        }
        chunk.append(&mut self.arena, point);
        let (first, last) = self.extent.unwrap_or((point.time_ms, point.time_ms));
        self.extent = Some((first.min(point.time_ms), last.max(point.time_ms)));
    }

    /// Appends the points of a series in the order of their arrival to `points`.
    pub(super) fn read(
        &self,
        quotient: usize,
        series: SeriesNumber,
        bytes: &mut Vec<u8>,
        points: &mut Vec<Point>,
    ) {
        let page = self.places.get(quotient / PAGE).and_then(Option::as_ref);
        let Some(place) = page
            .map(|page| page[quotient % PAGE])
            .filter(|place| *place != NONE)
        else {
            return;
        };
        for chunk in self.full.get(&series).into_iter().flatten() {
            chunk.read(&self.arena, bytes, points);
        }
        let (_, chunk) = &self.chunks[place as usize / PAGE][place as usize % PAGE];
        chunk.read(&self.arena, bytes, points);
    }
}
