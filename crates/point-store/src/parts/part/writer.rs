//! Writes parts.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::blocks::RawBlock;
use super::columns::Columns;
use super::index::{IndexBuilder, PartMeta};
use super::metric_set::{MOST_METRIC_RUNS, MetricSet};
use super::page::Form;
use super::page_builder::{NewForm, NewTimes, PageBuilder};
use super::reader::Part;
use super::shared_times::SharedTimes;
use super::{BLOCK_POINTS, HEADER, INSTANTS, PAGE_BYTES, SeriesKey, Statistics, TRAILER_MAGIC};
use crate::parts::codec::numbers;
use crate::parts::codec::values::Encoder;
use crate::{PointStoreError, TimeRange};
use oxtsdb_storage_file::disk::{Disk, WriteFile};

/// Encoded instants up to this size are not shared: a reference takes almost as much.
const INLINE_BYTES: usize = 12;

/// A part that is being written, at the path it was given. The caller removes the file if the writer is dropped
/// before [`PartWriter::finish`], and renames it afterwards.
#[derive(Debug)]
pub struct PartWriter {
    file: Box<dyn WriteFile>,
    path: PathBuf,
    offset: u64,
    index: IndexBuilder,
    page: PageBuilder,
    shared: SharedTimes,
    encoder: Encoder,
    /// The series that was written last, and its last instant.
    last: Option<(SeriesKey, i64)>,
    /// Points of the last series that are in no block yet.
    pending: Columns,
    /// The instants of the block before, and how they are stored.
    times: Option<(Vec<i64>, NewTimes)>,
    meta: PartMeta,
    metrics: MetricSet,
    body: Vec<u8>,
    distances: Vec<i64>,
    encoded_times: Vec<u8>,
    buffer: Vec<u8>,
}

impl PartWriter {
    /// Creates a part file.
    ///
    /// # Errors
    ///
    /// Errors of the disk; the file must not exist.
    pub fn create(disk: &dyn Disk, path: &Path) -> Result<Self, PointStoreError> {
        let file = disk
            .create(path)
            .map_err(|error| PointStoreError::io(path.display(), &error))?;
        let mut writer = Self {
            file,
            path: path.to_owned(),
            offset: 0,
            index: IndexBuilder::default(),
            page: PageBuilder::default(),
            shared: SharedTimes::default(),
            encoder: Encoder::default(),
            last: None,
            pending: Columns::default(),
            times: None,
            meta: PartMeta {
                series: 0,
                points: 0,
                blocks: 0,
                range: TimeRange {
                    first_ms: 0,
                    last_ms: -1,
                },
                bytes: 0,
            },
            metrics: MetricSet::default(),
            body: Vec::new(),
            distances: Vec::new(),
            encoded_times: Vec::new(),
            buffer: HEADER.to_vec(),
        };
        writer.write()?;
        Ok(writer)
    }

    /// Bytes of the file so far, without pages that are not full.
    pub const fn byte_len(&self) -> u64 {
        self.offset
    }

    /// Whether it has no points.
    pub const fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// The metrics so far. With too many runs the closest were joined, and the metrics between them included.
    pub const fn metrics(&self) -> &MetricSet {
        &self.metrics
    }

    /// Appends points of a series, ascending by instant. Series ascend; a series may be continued with later points,
    /// which are joined to blocks of [`BLOCK_POINTS`].
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if the order is not kept; errors of the disk, after which the writer is unusable.
    pub fn push(&mut self, key: SeriesKey, columns: &Columns) -> Result<(), PointStoreError> {
        self.push_range(key, columns, 0..columns.len())
    }

    /// As [`PartWriter::push`], some of the points.
    ///
    /// # Errors
    ///
    /// As [`PartWriter::push`].
    pub fn push_range(
        &mut self,
        key: SeriesKey,
        columns: &Columns,
        points: Range<usize>,
    ) -> Result<(), PointStoreError> {
        let times = &columns.times_ms[points.clone()];
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Ok(());
        };
        if !times.is_sorted_by(|one, other| one < other) {
            return Err(PointStoreError::Invalid(
                "points of a part do not ascend".to_owned(),
            ));
        }
        self.begin(key, *first, *last)?;
        self.pending.extend_from(columns, points);
        if self.pending.len() < 2 * BLOCK_POINTS {
            return Ok(());
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut start = 0;
        while pending.len() - start >= 2 * BLOCK_POINTS {
            self.write_block(key, &pending, start..start + BLOCK_POINTS)?;
            start += BLOCK_POINTS;
        }
        pending.remove(0..start);
        self.pending = pending;
        Ok(())
    }

    /// Appends a block of another part without decoding it, in the order of [`PartWriter::push`].
    ///
    /// # Errors
    ///
    /// As [`PartWriter::push`], and errors of reading the block's instants from `part`.
    pub fn push_block(&mut self, part: &Part, block: &RawBlock) -> Result<(), PointStoreError> {
        let head = block.head();
        self.begin(head.key, head.range.first_ms, head.range.last_ms)?;
        self.end_pending()?;
        let times = block.times();
        let form = match times.form {
            Form::Regular => NewForm::Regular(times.step()),
            Form::Inline { at, len } => {
                NewForm::Inline(block.page.bytes[at as usize..][..len as usize].into())
            }
            Form::Shared { number } => {
                let (page, index) = part.times_column(number)?;
                let encoded = page.column(index);
                let encoded = encoded.ok_or_else(|| part.damaged("a time column is absent"))?;
                NewForm::Shared(self.shared.number(encoded))
            }
        };
        let times = NewTimes {
            first_ms: times.first_ms,
            last_ms: times.last_ms,
            count: head.count,
            form,
        };
        self.page.push(head.key, &times, block.body());
        self.end_block(head.count)
    }

    /// Writes the rest, the index and the trailer, and makes the file durable. The name is not.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn finish(mut self) -> Result<PartMeta, PointStoreError> {
        self.end_pending()?;
        self.end_page()?;
        self.end_times_page()?;
        let index = self
            .index
            .finish(self.meta.series, self.meta.points, self.meta.blocks);
        let len = u32::try_from(index.len())
            .map_err(|_| PointStoreError::Full("the part has too many pages".to_owned()))?;
        self.buffer.extend_from_slice(&index);
        self.buffer.extend_from_slice(&self.offset.to_be_bytes());
        self.buffer.extend_from_slice(&len.to_be_bytes());
        let crc = crc32fast::hash(&self.buffer);
        self.buffer.extend_from_slice(&crc.to_be_bytes());
        self.buffer.extend_from_slice(&TRAILER_MAGIC);
        self.write()?;
        self.file
            .sync()
            .map_err(|error| PointStoreError::io(self.path.display(), &error))?;
        self.meta.bytes = self.offset;
        Ok(self.meta)
    }

    /// Checks the order and begins a series.
    fn begin(&mut self, key: SeriesKey, first_ms: i64, last_ms: i64) -> Result<(), PointStoreError> {
        let in_order = match self.last {
            Some((last, time)) if last == key => time < first_ms,
            Some((last, _)) => last < key,
            None => true,
        };
        if !in_order || !INSTANTS.contains(&first_ms) || !INSTANTS.contains(&last_ms) {
            let place = format!("{key:?} from {first_ms} to {last_ms}");
            return Err(PointStoreError::Invalid(format!(
                "{place} is not behind {:?}",
                self.last
            )));
        }
        if self.last.is_none_or(|(last, _)| last != key) {
            self.end_pending()?;
            self.meta.series += 1;
            self.metrics.push(key.metric);
            if self.metrics.runs() > 2 * MOST_METRIC_RUNS {
                self.metrics.bound(MOST_METRIC_RUNS);
            }
        }
        let range = &mut self.meta.range;
        *range = if self.last.is_none() {
            TimeRange { first_ms, last_ms }
        } else {
            TimeRange {
                first_ms: range.first_ms.min(first_ms),
                last_ms: range.last_ms.max(last_ms),
            }
        };
        self.last = Some((key, last_ms));
        Ok(())
    }

    /// Writes the pending points, as two blocks of equal size if they are too many for one.
    fn end_pending(&mut self) -> Result<(), PointStoreError> {
        let Some((key, _)) = self.last.filter(|_| !self.pending.is_empty()) else {
            return Ok(());
        };
        let mut pending = std::mem::take(&mut self.pending);
        let count = pending.len();
        let half = if count > BLOCK_POINTS {
            count.div_ceil(2)
        } else {
            count
        };
        self.write_block(key, &pending, 0..half)?;
        if half < count {
            self.write_block(key, &pending, half..count)?;
        }
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    fn write_block(
        &mut self,
        key: SeriesKey,
        columns: &Columns,
        points: Range<usize>,
    ) -> Result<(), PointStoreError> {
        let (kinds, bits) = (&columns.kinds[points.clone()], &columns.bits[points.clone()]);
        self.body.clear();
        Statistics::encode(Statistics::from_values(kinds, bits).as_ref(), &mut self.body);
        self.encoder.encode(&mut self.body, kinds, bits);
        let count = points.len();
        let times = &columns.times_ms[points];
        if self.times.as_ref().is_none_or(|(last, _)| last != times) {
            let form = self.times_form(times);
            let (mut last, _) = self.times.take().unzip();
            let mut last: Vec<i64> = last.take().unwrap_or_default();
            last.clear();
            last.extend_from_slice(times);
            let new = NewTimes {
                first_ms: times[0],
                last_ms: times[count - 1],
                count,
                form,
            };
            self.times = Some((last, new));
        }
        if let Some((_, times)) = &self.times {
            self.page.push(key, times, &self.body);
        }
        self.end_block(count)
    }

    /// How instants are stored.
    fn times_form(&mut self, times: &[i64]) -> NewForm {
        let step = times.get(1).map_or(0, |second| second - times[0]);
        if times.windows(2).all(|pair| pair[1] - pair[0] == step) {
            return NewForm::Regular(step);
        }
        self.distances.clear();
        self.distances.extend(times.iter().map(|time| time - times[0]));
        self.encoded_times.clear();
        numbers::encode(
            &mut self.encoded_times,
            &self.distances,
            &mut self.encoder.buffers,
        );
        if self.encoded_times.len() <= INLINE_BYTES {
            return NewForm::Inline(self.encoded_times.as_slice().into());
        }
        NewForm::Shared(self.shared.number(&self.encoded_times))
    }

    /// Counts a block and ends pages that are full.
    fn end_block(&mut self, points: usize) -> Result<(), PointStoreError> {
        self.meta.blocks += 1;
        self.meta.points += points as u64;
        if self.shared.byte_len() >= PAGE_BYTES {
            self.end_times_page()?;
        }
        if self.page.byte_len() >= PAGE_BYTES {
            self.end_page()?;
        }
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), PointStoreError> {
        let Some(entry) = self.page.finish(&mut self.buffer) else {
            return Ok(());
        };
        self.index.push_blocks(&self.buffer, &entry);
        self.write()
    }

    fn end_times_page(&mut self) -> Result<(), PointStoreError> {
        let Some(columns) = self.shared.finish(&mut self.buffer) else {
            return Ok(());
        };
        self.index.push_times(&self.buffer, columns);
        self.write()
    }

    fn write(&mut self) -> Result<(), PointStoreError> {
        self.file
            .write(&self.buffer)
            .map_err(|error| PointStoreError::io(self.path.display(), &error))?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
