//! The structure of pages: decoded once when a page is read, so that lookups are binary searches.

use std::ops::Range;

use super::index::BlockPageEntry;
use super::{INSTANTS, MAX_BLOCK_POINTS, MetricNumber, SeriesKey};
use crate::{SeriesNumber, TimeRange};
use oxtsdb_storage_file::varint::Reader;

/// A page of blocks.
#[derive(Debug)]
pub(super) struct BlockPage {
    pub(super) bytes: Box<[u8]>,
    pub(super) times: Vec<Times>,
    /// Ascending by key.
    pub(super) blocks: Vec<BlockPlace>,
}

/// Instants of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
    pub(super) count: u32,
    pub(super) form: Form,
}

/// Location of the instants of a block, if they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Nowhere: they are equally far apart.
    Regular,
    /// Encoded in the page.
    Inline { at: u32, len: u32 },
    /// In a times page.
    Shared { number: u32 },
}

impl Times {
    /// First and last instant.
    pub(super) const fn range(&self) -> TimeRange {
        TimeRange {
            first_ms: self.first_ms,
            last_ms: self.last_ms,
        }
    }

    /// The distance of two instants of a regular column.
    pub(super) const fn step(&self) -> i64 {
        if self.count < 2 {
            return 0;
        }
        (self.last_ms - self.first_ms) / (self.count as i64 - 1)
    }
}

/// A block within a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockPlace {
    pub(super) key: SeriesKey,
    /// Index of its instants.
    pub(super) times: u32,
    at: u32,
    len: u32,
}

impl BlockPlace {
    /// Statistics, kinds and values.
    pub(super) const fn body(&self) -> Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
}

impl BlockPage {
    /// Decodes the structure; `None` if the bytes are invalid.
    pub(super) fn parse(bytes: Box<[u8]>) -> Option<Self> {
        let mut reader = Reader(&bytes);
        let base = reader.signed()?;
        let place = |reader: &Reader<'_>| u32::try_from(bytes.len() - reader.0.len()).ok();
        let count = reader.length()?;
        // An entry takes 3 bytes or more: memory is bounded by the bytes.
        if count > reader.0.len() / 3 {
            return None;
        }
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let head = reader.number()?;
            let count = head >> 2;
            if count == 0 || count > MAX_BLOCK_POINTS {
                return None;
            }
            let count = u32::try_from(count).ok()?;
            let first_ms = base.checked_add(reader.signed()?)?;
            let last = |reader: &mut Reader<'_>| first_ms.checked_add_unsigned(reader.number()?);
            let (last_ms, form) = match head & 3 {
                0 if count == 1 => (first_ms, Form::Regular),
                0 => {
                    let between = reader.number()?.checked_mul(u64::from(count) - 1)?;
                    (first_ms.checked_add_unsigned(between)?, Form::Regular)
                }
                1 => {
                    let last_ms = last(&mut reader)?;
                    let len = reader.length()?;
                    let at = place(&reader)?;
                    reader.bytes(len)?;
                    let len = u32::try_from(len).ok()?;
                    (last_ms, Form::Inline { at, len })
                }
                2 => {
                    let last_ms = last(&mut reader)?;
                    let number = u32::try_from(reader.number()?).ok()?;
                    (last_ms, Form::Shared { number })
                }
                _ => return None,
            };
            if !INSTANTS.contains(&first_ms) || !INSTANTS.contains(&last_ms) {
                return None;
            }
            times.push(Times {
                first_ms,
                last_ms,
                count,
                form,
            });
        }
        let blocks = Self::parse_blocks(&mut reader, bytes.len(), times.len())?;
        reader.0.is_empty().then_some(Self { times, blocks, bytes })
    }

    fn parse_blocks(reader: &mut Reader<'_>, page_len: usize, times_len: usize) -> Option<Vec<BlockPlace>> {
        let count = reader.length()?;
        if count > reader.0.len() / 4 {
            return None;
        }
        let mut blocks = Vec::with_capacity(count);
        let (mut metric, mut series) = (0_u32, 0_u32);
        for _ in 0..count {
            let head = reader.number()?;
            let difference = u32::try_from(head >> 1).ok()?;
            if head & 1 == 0 {
                series = series.checked_add(difference)?;
            } else {
                metric = metric.checked_add(difference)?;
                series = u32::try_from(reader.number()?).ok()?;
            }
            let times = reader.length()?;
            let len = reader.length()?;
            let at = page_len - reader.0.len();
            reader.bytes(len)?;
            if times >= times_len {
                return None;
            }
            blocks.push(BlockPlace {
                key: SeriesKey {
                    metric: MetricNumber(metric),
                    series: SeriesNumber(series),
                },
                times: u32::try_from(times).ok()?,
                at: u32::try_from(at).ok()?,
                len: u32::try_from(len).ok()?,
            });
        }
        Some(blocks)
    }

    /// Whether keys ascend, and keys and instants match the page's entry in the index.
    pub(super) fn fits(&self, entry: &BlockPageEntry) -> bool {
        let ends = (self.blocks.first(), self.blocks.last());
        let (Some(first), Some(last)) = ends else {
            return false;
        };
        let (range, mut times) = (entry.range, self.times.iter());
        entry.keys.first == first.key
            && entry.keys.last == last.key
            && self.blocks.is_sorted_by_key(|block| block.key)
            && times.all(|times| range.contains(times.first_ms) && range.contains(times.last_ms))
    }

    /// Bytes of memory.
    pub(super) const fn byte_len(&self) -> usize {
        self.bytes.len() + self.times.len() * size_of::<Times>() + self.blocks.len() * size_of::<BlockPlace>()
    }
}

/// A page of shared time columns.
#[derive(Debug)]
pub(super) struct TimesPage {
    bytes: Box<[u8]>,
    /// The end of each column.
    ends: Vec<u32>,
    start: u32,
}

impl TimesPage {
    /// Decodes the structure; `None` if the bytes are invalid.
    pub(super) fn parse(bytes: Box<[u8]>) -> Option<Self> {
        let mut reader = Reader(&bytes);
        let count = reader.length()?;
        if count > reader.0.len() {
            return None;
        }
        let mut ends = Vec::with_capacity(count);
        let mut end = 0_usize;
        for _ in 0..count {
            end = end.checked_add(reader.length()?)?;
            ends.push(u32::try_from(end).ok()?);
        }
        let start = bytes.len() - reader.0.len();
        if end != reader.0.len() {
            return None;
        }
        u32::try_from(bytes.len()).ok()?;
        let start = u32::try_from(start).ok()?;
        ends.iter_mut().for_each(|end| *end += start);
        Some(Self { bytes, ends, start })
    }

    /// The number of columns.
    pub(super) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// The encoded instants of a column.
    pub(super) fn column(&self, index: usize) -> Option<&[u8]> {
        let start = match index.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => self.start,
        };
        self.bytes.get(start as usize..*self.ends.get(index)? as usize)
    }

    /// Bytes of memory.
    pub(super) const fn byte_len(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u32>()
    }
}
