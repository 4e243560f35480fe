//! The index of a part: its pages in order.

use super::{HEADER, INSTANTS, MAX_BLOCK_POINTS, MetricNumber, SeriesKey};
use crate::{SeriesNumber, TimeRange};
use oxtsdb_storage_file::varint::{self, Reader};

/// Series from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeySpan {
    pub(super) first: SeriesKey,
    pub(super) last: SeriesKey,
}

/// All series.
pub(super) const ALL_KEYS: KeySpan = KeySpan {
    first: SeriesKey {
        metric: MetricNumber(0),
        series: SeriesNumber(0),
    },
    last: SeriesKey {
        metric: MetricNumber(u32::MAX),
        series: SeriesNumber(u32::MAX),
    },
};

/// The series and the range of a page of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPageEntry {
    pub(super) keys: KeySpan,
    pub(super) range: TimeRange,
}

/// The place of a page in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePlace {
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) crc: u32,
}

/// Numbers of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartMeta {
    /// The number of series.
    pub series: u64,
    /// The number of points.
    pub points: u64,
    /// The number of blocks.
    pub blocks: u64,
    /// First and last instant; 0 to -1 for a part without points.
    pub range: TimeRange,
    /// Bytes of the file.
    pub bytes: u64,
}

/// The pages of a part.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Ascending by keys.
    pub(super) blocks: Vec<(PagePlace, BlockPageEntry)>,
    /// With the number of the first column behind each page.
    pub(super) times: Vec<(PagePlace, u32)>,
}

/// An index that is being written.
#[derive(Debug, Default)]
pub(super) struct IndexBuilder {
    bytes: Vec<u8>,
    pages: u64,
}

impl IndexBuilder {
    /// Appends a page of blocks.
    pub(super) fn push_blocks(&mut self, page: &[u8], entry: &BlockPageEntry) {
        self.push_page(page, 0);
        for key in [entry.keys.first, entry.keys.last] {
            varint::put(&mut self.bytes, u64::from(key.metric.0));
            varint::put(&mut self.bytes, u64::from(key.series.0));
        }
        let TimeRange { first_ms, last_ms } = entry.range;
        varint::put(&mut self.bytes, first_ms.cast_unsigned());
        varint::put(&mut self.bytes, (last_ms - first_ms).cast_unsigned());
    }

    /// Appends a page of time columns.
    pub(super) fn push_times(&mut self, page: &[u8], columns: u64) {
        self.push_page(page, 1);
        varint::put(&mut self.bytes, columns);
    }

    fn push_page(&mut self, page: &[u8], is_times: u64) {
        varint::put(&mut self.bytes, (page.len() as u64) << 1 | is_times);
        self.bytes.extend_from_slice(&crc32fast::hash(page).to_be_bytes());
        self.pages += 1;
    }

    /// The index.
    pub(super) fn finish(&self, series: u64, points: u64, blocks: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes.len() + 40);
        for number in [series, points, blocks, self.pages] {
            varint::put(&mut bytes, number);
        }
        bytes.extend_from_slice(&self.bytes);
        bytes
    }
}

impl Index {
    /// Decodes an index that begins at an offset of the file; `None` if the bytes are invalid.
    pub(super) fn parse(bytes: &[u8], index_offset: u64, file_bytes: u64) -> Option<(Self, PartMeta)> {
        let mut reader = Reader(bytes);
        let (series, points, blocks) = (reader.number()?, reader.number()?, reader.number()?);
        let page_count = reader.length()?;
        let mut index = Self::default();
        let mut offset = HEADER.len() as u64;
        let (mut columns, mut range) = (0_u32, None::<TimeRange>);
        for _ in 0..page_count {
            let head = reader.number()?;
            let place = PagePlace {
                offset,
                len: u32::try_from(head >> 1).ok()?,
                crc: u32::from_be_bytes(reader.array()?),
            };
            offset = offset.checked_add(u64::from(place.len))?;
            if head & 1 == 1 {
                columns = columns.checked_add(u32::try_from(reader.number()?).ok()?)?;
                index.times.push((place, columns));
                continue;
            }
            let entry = block_page(&mut reader)?;
            if index
                .blocks
                .last()
                .is_some_and(|(_, last)| last.keys.last > entry.keys.first)
            {
                return None;
            }
            range = Some(range.map_or(entry.range, |range| TimeRange {
                first_ms: range.first_ms.min(entry.range.first_ms),
                last_ms: range.last_ms.max(entry.range.last_ms),
            }));
            index.blocks.push((place, entry));
        }
        if offset != index_offset || !reader.0.is_empty() {
            return None;
        }
        let pages = index.blocks.len() as u64;
        let most_points = blocks.saturating_mul(MAX_BLOCK_POINTS);
        if pages > blocks || (pages == 0) != (blocks == 0) || blocks > points || points > most_points {
            return None;
        }
        if series > blocks || (series == 0) != (blocks == 0) {
            return None;
        }
        let meta = PartMeta {
            series,
            points,
            blocks,
            range: range.unwrap_or(EMPTY),
            bytes: file_bytes,
        };
        Some((index, meta))
    }
}

/// The range of a part without points.
const EMPTY: TimeRange = TimeRange {
    first_ms: 0,
    last_ms: -1,
};

fn block_page(reader: &mut Reader<'_>) -> Option<BlockPageEntry> {
    let mut key = || {
        Some(SeriesKey {
            metric: MetricNumber(u32::try_from(reader.number()?).ok()?),
            series: SeriesNumber(u32::try_from(reader.number()?).ok()?),
        })
    };
    let (first, last) = (key()?, key()?);
    let first_ms = i64::try_from(reader.number()?).ok()?;
    let last_ms = first_ms.checked_add_unsigned(reader.number()?)?;
    let valid = first <= last && INSTANTS.contains(&first_ms) && INSTANTS.contains(&last_ms);
    valid.then_some(BlockPageEntry {
        keys: KeySpan { first, last },
        range: TimeRange { first_ms, last_ms },
    })
}
