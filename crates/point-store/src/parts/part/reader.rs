//! An open part: its index, and its pages through the cache.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cache::{CachedPage, PageCache, PageKey};
use super::index::{Index, PagePlace, PartMeta};
use super::metric_set::{MOST_METRIC_RUNS, MetricSet};
use super::page::{BlockPage, BlockPlace, Form, TimesPage};
use super::{HEADER, SeriesKey, TRAILER_BYTES, TRAILER_MAGIC};
use crate::{PointStoreError, ReadEstimate, TimeRange};
use oxtsdb_storage_file::disk::{Disk, ReadFile};
use oxtsdb_storage_file::varint::Reader;

/// The version of the format, the last bytes of [`HEADER`].
const FORMAT: u32 = 1;

/// A part file.
///
/// The index is in memory; pages are read when they are needed, and kept in the cache. The file may be opened again
/// at its path at any time until the part is dropped, because the cache bounds the number of open files.
#[derive(Debug)]
pub struct Part {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    cache: Arc<PageCache>,
    pub(super) id: u64,
    pub(super) index: Index,
    meta: PartMeta,
    /// The checksum of the index.
    crc: u32,
    /// Series have lower numbers.
    series_end: u32,
}

impl Part {
    /// Opens a part file and reads its index.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] if the file is no complete part; [`PointStoreError::Format`] if it is of another
    /// version; errors of the disk.
    pub fn open(disk: &Arc<dyn Disk>, path: &Path, cache: &Arc<PageCache>) -> Result<Self, PointStoreError> {
        let file = disk
            .open(path)
            .map_err(|error| PointStoreError::io(path.display(), &error))?;
        let (index, meta, crc) = read_index(&*file, path)?;
        let part = Self {
            disk: Arc::clone(disk),
            path: path.to_owned(),
            cache: Arc::clone(cache),
            id: cache.next_part(),
            index,
            meta,
            crc,
            series_end: u32::MAX,
        };
        part.cache.file(part.id, || Ok(file))?;
        Ok(part)
    }

    /// Checks that all points are in a range and of series before `series_end`; of pages when they are read.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`].
    pub fn within(mut self, range: TimeRange, series_end: u32) -> Result<Self, PointStoreError> {
        self.series_end = series_end;
        let whole = self.meta.range;
        if self.meta.points > 0 && !(range.contains(whole.first_ms) && range.contains(whole.last_ms)) {
            let detail = format!(
                "points from {} to {} ms are not of its day",
                whole.first_ms, whole.last_ms
            );
            return Err(self.damaged(&detail));
        }
        let keys = self.index.blocks.iter().map(|(_, entry)| entry.keys);
        let series = keys.flat_map(|keys| [keys.first.series, keys.last.series]).max();
        match series.filter(|series| series.0 >= series_end) {
            Some(series) => Err(self.damaged(&format!(
                "series {} is unknown, the store has {series_end}",
                series.0
            ))),
            None => Ok(self),
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Numbers of the part.
    pub const fn meta(&self) -> &PartMeta {
        &self.meta
    }

    /// The checksum of the index, which has the checksums of all pages: two parts of equal checksums are the same.
    pub const fn crc(&self) -> u32 {
        self.crc
    }

    /// The metrics as the index has them: from the first to the last of each page, also those that are between.
    pub fn metrics(&self) -> MetricSet {
        let mut metrics = MetricSet::default();
        for (_, entry) in &self.index.blocks {
            metrics.push_run(entry.keys.first.metric.0, entry.keys.last.metric.0);
        }
        metrics.bound(MOST_METRIC_RUNS);
        metrics
    }

    /// Bytes of memory without cached pages.
    pub const fn byte_len(&self) -> usize {
        size_of::<Self>()
            + size_of_val(self.index.blocks.as_slice())
            + size_of_val(self.index.times.as_slice())
    }

    /// Estimates the cost of reading `count` series out of a range of keys in a time range.
    pub fn estimate(&self, keys: RangeInclusive<SeriesKey>, count: usize, range: TimeRange) -> ReadEstimate {
        let pages = &self.index.blocks;
        let first = pages.partition_point(|(_, page)| page.keys.last < *keys.start());
        let pages_of_span = pages[first..].iter();
        let pages_of_span = pages_of_span.take_while(|(_, page)| page.keys.first <= *keys.end());
        let hit: f64 = pages_of_span.map(|(_, page)| overlap(page.range, range)).sum();
        let PartMeta {
            series,
            points,
            blocks,
            bytes,
            range: whole,
        } = self.meta;
        // A range of keys has other series, too, and a page has several.
        let of_pages = hit / as_f64(pages.len() as u64);
        let of_series = as_f64((count as u64).min(series)) / as_f64(series) * overlap(whole, range);
        let share = of_pages.min(of_series);
        ReadEstimate {
            points: share_of(points, share),
            most_points: share_of(points, of_pages),
            blocks: share_of(blocks, share),
            bytes: share_of(bytes, share),
            files: u64::from(share > 0.0),
            memory_points: 0,
        }
    }

    /// The points of the blocks that [`Part::read`] decodes, if all of their pages are cached.
    pub fn cached_points(&self, key: SeriesKey, range: TimeRange) -> Option<u64> {
        let pages = &self.index.blocks;
        let first = pages.partition_point(|(_, page)| page.keys.last < key);
        let of_key = pages.iter().enumerate().skip(first);
        let of_key = of_key.take_while(|(_, (_, page))| page.keys.first <= key);
        let mut points = 0;
        for (index, _) in of_key.filter(|(_, (_, page))| page.range.overlaps(&range)) {
            let CachedPage::Blocks(page) = self.cache.cached(self.page_key(false, index))? else {
                return None;
            };
            let first = page.blocks.partition_point(|block| block.key < key);
            let blocks = page.blocks[first..].iter().take_while(|block| block.key == key);
            for times in blocks.map(|block| &page.times[block.times as usize]) {
                if !times.range().overlaps(&range) {
                    continue;
                }
                if let Form::Shared { number } = times.form {
                    self.cache.cached(self.page_key(true, self.times_index(number)))?;
                }
                points += u64::from(times.count);
            }
        }
        Some(points)
    }

    /// The index of the page of a shared time column.
    fn times_index(&self, number: u32) -> usize {
        self.index.times.partition_point(|(_, end)| *end <= number)
    }

    fn page_key(&self, is_times: bool, index: usize) -> PageKey {
        PageKey {
            part: self.id,
            is_times,
            index,
        }
    }

    /// The page of a shared time column, and its index there.
    pub(super) fn times_column(&self, number: u32) -> Result<(Arc<TimesPage>, usize), PointStoreError> {
        let index = self.times_index(number);
        let first = index
            .checked_sub(1)
            .map_or(0, |before| self.index.times[before].1);
        let page = self.times_page(index)?;
        Ok((page, (number - first) as usize))
    }

    fn times_page(&self, index: usize) -> Result<Arc<TimesPage>, PointStoreError> {
        let page = self.cache.page(self.page_key(true, index), || {
            Ok(CachedPage::Times(Arc::new(self.read_times_page(index)?)))
        })?;
        match page {
            CachedPage::Times(page) => Ok(page),
            CachedPage::Blocks(_) => unreachable!("the key is of a times page"),
        }
    }

    /// Reads a page of time columns past the cache.
    pub(super) fn read_times_page(&self, index: usize) -> Result<TimesPage, PointStoreError> {
        let Some((place, end)) = self.index.times.get(index) else {
            return Err(self.damaged("a time column is absent"));
        };
        let first = index
            .checked_sub(1)
            .map_or(0, |before| self.index.times[before].1);
        TimesPage::parse(self.read_page(*place)?)
            .filter(|page| page.len() == (end - first) as usize)
            .ok_or_else(|| self.damaged(&format!("times page at {} is invalid", place.offset)))
    }

    /// A page of blocks.
    pub(super) fn block_page(&self, index: usize, cached: bool) -> Result<Arc<BlockPage>, PointStoreError> {
        if !cached {
            return self.read_block_page(index);
        }
        let page = self.cache.page(self.page_key(false, index), || {
            Ok(CachedPage::Blocks(self.read_block_page(index)?))
        })?;
        match page {
            CachedPage::Blocks(page) => Ok(page),
            CachedPage::Times(_) => unreachable!("the key is of a page of blocks"),
        }
    }

    fn read_block_page(&self, index: usize) -> Result<Arc<BlockPage>, PointStoreError> {
        let (place, entry) = self.index.blocks[index];
        let page = BlockPage::parse(self.read_page(place)?)
            .ok_or_else(|| self.damaged(&format!("page at {} is invalid", place.offset)))?;
        let is_known = |block: &BlockPlace| block.key.series.0 < self.series_end;
        if !page.fits(&entry) || !page.blocks.iter().all(is_known) {
            let detail = format!(
                "page at {} has other series or instants than its entry",
                place.offset
            );
            return Err(self.damaged(&detail));
        }
        Ok(Arc::new(page))
    }

    fn read_page(&self, place: PagePlace) -> Result<Box<[u8]>, PointStoreError> {
        let mut bytes = vec![0; place.len as usize].into_boxed_slice();
        read_at(&*self.file()?, &self.path, &mut bytes, place.offset)?;
        if crc32fast::hash(&bytes) != place.crc {
            return Err(self.damaged(&format!("page at {} has a wrong checksum", place.offset)));
        }
        Ok(bytes)
    }

    fn file(&self) -> Result<Arc<dyn ReadFile>, PointStoreError> {
        self.cache.file(self.id, || {
            self.disk
                .open(&self.path)
                .map_err(|error| PointStoreError::io(self.path.display(), &error))
        })
    }

    /// Reads the index of the file again.
    pub(super) fn reread_index(&self) -> Result<PartMeta, PointStoreError> {
        read_index(&*self.file()?, &self.path).map(|(_, meta, _)| meta)
    }

    pub(super) fn damaged(&self, detail: &str) -> PointStoreError {
        damaged(&self.path, detail)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let pages = [(false, self.index.blocks.len()), (true, self.index.times.len())];
        for (is_times, count) in pages {
            for index in 0..count {
                self.cache.remove_page(PageKey {
                    part: self.id,
                    is_times,
                    index,
                });
            }
        }
        self.cache.remove_file(self.id);
    }
}

/// The share of a range that another one covers.
fn overlap(range: TimeRange, other: TimeRange) -> f64 {
    let first_ms = range.first_ms.max(other.first_ms);
    let last_ms = range.last_ms.min(other.last_ms);
    let length = |first_ms: i64, last_ms: i64| as_f64((last_ms - first_ms + 1).max(0).cast_unsigned());
    length(first_ms, last_ms) / length(range.first_ms, range.last_ms).max(1.0)
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
const fn as_f64(number: u64) -> f64 {
    number as f64
}

/// A share of a number, rounded up; none of nothing.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is not negative, and not greater than the number"
)]
fn share_of(number: u64, share: f64) -> u64 {
    (as_f64(number) * share).ceil() as u64
}

fn damaged(path: &Path, detail: &str) -> PointStoreError {
    PointStoreError::Damaged {
        path: path.to_owned(),
        detail: detail.to_owned(),
    }
}

fn read_at(file: &dyn ReadFile, path: &Path, buffer: &mut [u8], offset: u64) -> Result<(), PointStoreError> {
    file.read_at(buffer, offset).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => damaged(path, "the file is cut"),
        _ => PointStoreError::io(path.display(), &error),
    })
}

/// Reads header, index and trailer.
fn read_index(file: &dyn ReadFile, path: &Path) -> Result<(Index, PartMeta, u32), PointStoreError> {
    let file_bytes = file
        .len()
        .map_err(|error| PointStoreError::io(path.display(), &error))?;
    let trailer_offset = file_bytes.checked_sub(TRAILER_BYTES as u64);
    let Some(trailer_offset) = trailer_offset.filter(|offset| *offset >= HEADER.len() as u64) else {
        return Err(damaged(path, "the file is cut"));
    };
    let mut header = [0; HEADER.len()];
    read_at(file, path, &mut header, 0)?;
    if header[..6] != HEADER[..6] {
        return Err(damaged(path, "the file does not begin as a part"));
    }
    let format = u32::from(header[6]) << 8 | u32::from(header[7]);
    if format != FORMAT {
        return Err(PointStoreError::Format {
            path: path.to_owned(),
            format: format.to_string(),
            supported: FORMAT,
        });
    }
    let mut trailer = [0; TRAILER_BYTES];
    read_at(file, path, &mut trailer, trailer_offset)?;
    let mut reader = Reader(&trailer);
    let fields = (|| Some((reader.array()?, reader.array()?, reader.array()?, reader.array()?)))();
    let Some((offset, len, crc, TRAILER_MAGIC)) = fields else {
        return Err(damaged(path, "the file does not end as a part"));
    };
    let (offset, len) = (u64::from_be_bytes(offset), u32::from_be_bytes(len));
    if offset.checked_add(u64::from(len)) != Some(trailer_offset) {
        return Err(damaged(path, "the index does not end at the trailer"));
    }
    let mut index = vec![0; len as usize];
    read_at(file, path, &mut index, offset)?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&index);
    hasher.update(&trailer[..12]);
    let crc = u32::from_be_bytes(crc);
    if hasher.finalize() != crc {
        return Err(damaged(path, "the index has a wrong checksum"));
    }
    let parsed = Index::parse(&index, offset, file_bytes);
    let (index, meta) = parsed.ok_or_else(|| damaged(path, "the index is invalid"))?;
    Ok((index, meta, crc))
}
