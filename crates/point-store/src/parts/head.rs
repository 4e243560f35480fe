//! The head: points in memory that are in the journal and in no part yet.
//!
//! ```text
//!   head   shards, by number of the series modulo their number, each with a lock that readers share
//!   shard  series ─► chunks ─► each a chain of small blocks in the shard's arena
//! ```
//!
//! Points are kept in the order of their arrival; readers sort them and keep the newest of each instant. They decode
//! the newest chunk of a series, and its other chunks that overlap the range. A head only grows: it is frozen, written
//! as parts, and dropped.

mod arena;
mod chunk;
mod shard;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use parking_lot::RwLock;

use self::chunk::decode;
use self::shard::{Place, Selected, Shard};
use super::days::points::settle;
use super::part::Columns;
use super::series::{MetricNumber, SeriesKey};
use crate::{Point, PointBatch, ReadEstimate, SeriesNumber, TimeRange};

/// Points, or series, that have their memory read together before they are appended, or decoded.
const TOGETHER: usize = 64;

/// Series that an estimate looks at.
const SAMPLED_SERIES: usize = 64;

/// Blocks of a series that are read together. Later ones are larger, so that waiting for them takes less of the time.
const TOUCHED_BLOCKS: usize = 6;

/// Points in memory.
#[derive(Debug)]
pub struct Head {
    /// A power of two of them.
    shards: Box<[RwLock<Shard>]>,
    bytes: AtomicUsize,
    points: AtomicUsize,
    /// The least instant; greater than `last_ms` while there are no points.
    first_ms: AtomicI64,
    last_ms: AtomicI64,
}

/// Buffers of reads.
#[derive(Debug, Default)]
pub struct HeadScratch {
    selected: Selected,
    bytes: Vec<u8>,
}

impl Head {
    /// An empty head with `shards` shards, or the next power of two.
    pub fn new(shards: usize) -> Self {
        Self {
            shards: (0..shards.next_power_of_two())
                .map(|_| RwLock::default())
                .collect(),
            bytes: AtomicUsize::new(0),
            points: AtomicUsize::new(0),
            first_ms: AtomicI64::new(i64::MAX),
            last_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Bytes of memory.
    pub fn byte_len(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.extent().is_none()
    }

    /// The instants from the first to the last; `None`: there are no points.
    pub fn extent(&self) -> Option<TimeRange> {
        let (first_ms, last_ms) = (
            self.first_ms.load(Ordering::Relaxed),
            self.last_ms.load(Ordering::Relaxed),
        );
        (first_ms <= last_ms).then_some(TimeRange { first_ms, last_ms })
    }

    /// The index of the shard of a series, and its number within the shard.
    #[inline]
    const fn divide(&self, series: SeriesNumber) -> (usize, usize) {
        let count = self.shards.len();
        (
            series.index() & (count - 1),
            series.index() >> count.trailing_zeros(),
        )
    }

    /// Appends points, in their order.
    pub fn append(&self, batch: &PointBatch) {
        self.points.fetch_add(batch.len(), Ordering::Relaxed);
        // The positions of points, by shard: a counting sort.
        let mut ends = vec![0; self.shards.len()];
        for series in batch.series() {
            ends[self.divide(*series).0] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut positions = vec![0; batch.len()];
        for (position, series) in batch.series().iter().enumerate() {
            let end = &mut ends[self.divide(*series).0];
            positions[*end] = position;
            *end += 1;
        }
        let mut start = 0;
        for (shard, end) in self.shards.iter().zip(ends) {
            let own = &positions[start..end];
            start = end;
            if own.is_empty() {
                continue;
            }
            let mut shard = shard.write();
            let before = shard.byte_len();
            self.append_to(&mut shard, own, batch);
            let grown = shard.byte_len() - before;
            self.bytes.fetch_add(grown, Ordering::Relaxed);
            if let Some((first_ms, last_ms)) = shard.extent() {
                self.first_ms.fetch_min(first_ms, Ordering::Relaxed);
                self.last_ms.fetch_max(last_ms, Ordering::Relaxed);
            }
        }
    }

    /// Appends the points of one shard, which are at these positions.
    fn append_to(&self, shard: &mut Shard, positions: &[usize], batch: &PointBatch) {
        for positions in positions.chunks(TOGETHER) {
            let mut places = [Place::FIRST; TOGETHER];
            for (place, position) in places.iter_mut().zip(positions) {
                let (_, quotient) = self.divide(batch.series()[*position]);
                *place = shard.place(quotient, batch.times_ms()[*position]);
            }
            let places = &places[..positions.len()];
            let touched = places.iter().fold(0, |sum, place| sum ^ shard.touch(*place));
            std::hint::black_box(touched);
            for (place, position) in places.iter().zip(positions) {
                shard.append(*place, &batch.point(*position));
            }
        }
    }

    /// Calls `each` with the points of each series in a range, if there are any, as [`Head::read`] returns them.
    ///
    /// # Errors
    ///
    /// The first error of `each`.
    pub fn read_each<E>(
        &self,
        keys: &[SeriesKey],
        range: TimeRange,
        scratch: &mut HeadScratch,
        mut each: impl FnMut(SeriesKey, &Columns) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut points = Columns::default();
        for keys in keys.chunks(TOGETHER) {
            self.touch(keys.iter().map(|key| key.series));
            for key in keys {
                points.clear();
                self.read(key.series, range, scratch, &mut points);
                if !points.is_empty() {
                    each(*key, &points)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the memory of some series, so that it is in the processor's cache when they are decoded. Chunks lie in the
    /// order of their first points: each block is a cache miss. Misses of several series overlap, misses of one series
    /// do not.
    pub fn touch(&self, series: impl Iterator<Item = SeriesNumber>) {
        let shards: Vec<_> = self.shards.iter().map(RwLock::read).collect();
        let mut blocks = [(0, 0); TOGETHER];
        let mut count = 0;
        for series in series.take(TOGETHER) {
            let (index, quotient) = self.divide(series);
            if let Some(block) = shards[index].last_block(quotient) {
                blocks[count] = (index, block);
                count += 1;
            }
        }
        for _ in 0..TOUCHED_BLOCKS {
            for (index, block) in &mut blocks[..count] {
                *block = shards[*index].next_block(*block);
            }
        }
        std::hint::black_box(blocks);
    }

    /// Appends the points of a series in a range to `points`, ascending, the newest of each instant.
    pub fn read(
        &self,
        series: SeriesNumber,
        range: TimeRange,
        scratch: &mut HeadScratch,
        points: &mut Columns,
    ) {
        let (index, quotient) = self.divide(series);
        let shard = &self.shards[index];
        let HeadScratch { selected, bytes } = scratch;
        if !shard.read().select(quotient, range, selected) {
            return;
        }
        let from = points.len();
        // Full chunks do not change, so each is copied under a lock of its own: appends do not wait for long series.
        while let Some(chunk) = selected.full.pop() {
            shard.read().copy_full(&chunk, bytes);
            decode(bytes, selected.base_ms, range, points);
        }
        decode(&selected.newest, selected.base_ms, range, points);
        settle(points, from);
    }

    /// The newest point of a series in a range; `points` is a buffer.
    pub fn last(
        &self,
        series: SeriesNumber,
        range: TimeRange,
        scratch: &mut HeadScratch,
        points: &mut Columns,
    ) -> Option<Point> {
        let (index, quotient) = self.divide(series);
        let last = self.shards[index].read().last(quotient, range);
        last.unwrap_or_else(|| {
            points.clear();
            self.read(series, range, scratch, points);
            points.last()
        })
    }

    /// Estimates the cost of reading some series, from a sample of them.
    pub fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        if !self.extent().is_some_and(|extent| extent.overlaps(&range)) {
            return ReadEstimate::default();
        }
        let step = series.len().div_ceil(SAMPLED_SERIES).max(1);
        let sample = series.iter().step_by(step);
        let bytes: usize = sample
            .map(|series| {
                let (index, quotient) = self.divide(*series);
                self.shards[index].read().byte_len_of(quotient, range)
            })
            .sum();
        let bytes = (bytes * step) as u64;
        let (all, points) = (
            self.byte_len().max(1) as u64,
            self.points.load(Ordering::Relaxed) as u64,
        );
        let points = u128::from(bytes) * u128::from(points) / u128::from(all);
        // A point takes a byte at least, and rarely more than 4 on average. A small head has allocated far more.
        let points = u64::try_from(points).unwrap_or(bytes).clamp(bytes / 4, bytes);
        ReadEstimate {
            points,
            most_points: bytes,
            memory_points: points,
            bytes,
            ..ReadEstimate::default()
        }
    }

    /// The series that have points, in the order of parts; `metric_of` returns the metric of a series.
    pub fn series(&self, metric_of: impl Fn(SeriesNumber) -> MetricNumber) -> Vec<SeriesKey> {
        let mut keys = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            let shard = shard.read();
            keys.extend(shard.quotients().map(|quotient| {
                let number = quotient << self.shards.len().trailing_zeros() | index;
                // The number has 32 bits, as it had when it was appended.
                let series = SeriesNumber(u32::try_from(number).unwrap_or(u32::MAX));
                let metric = metric_of(series);
                SeriesKey { metric, series }
            }));
        }
        keys.sort_unstable();
        keys
    }
}

/// The head that appends go to, and the heads that are being written as parts, oldest first.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Takes points.
    pub active: Arc<Head>,
    /// Frozen heads.
    pub frozen: Vec<Arc<Head>>,
}

impl Heads {
    /// Bytes of memory.
    pub fn byte_len(&self) -> usize {
        let frozen: usize = self.frozen.iter().map(|head| head.byte_len()).sum();
        self.active.byte_len() + frozen
    }

    /// All heads, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Head>> {
        self.frozen.iter().chain([&self.active])
    }
}

#[cfg(test)]
mod tests;
