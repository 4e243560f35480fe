//! Decodes blocks.

use std::ops::Range;

use super::Statistics;
use super::blocks::RawBlock;
use super::columns::Columns;
use super::page::Form;
use super::reader::Part;
use crate::parts::codec::{numbers, values};
use crate::{PointStoreError, TimeRange};
use oxtsdb_storage_file::varint::Reader;

/// Buffers to decode blocks, of any parts.
#[derive(Debug, Default)]
pub struct Decoder {
    numbers: Vec<i64>,
    /// The shared column that was decoded last.
    distances: Vec<i64>,
    column: Option<Column>,
}

/// A time column of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Column {
    part: u64,
    number: u32,
    count: u32,
}

impl Part {
    /// Appends the points of a block of this part in a range, ascending by instant.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`], or errors of the disk; then no points are appended.
    pub fn decode(
        &self,
        block: &RawBlock,
        range: TimeRange,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<(), PointStoreError> {
        debug_assert_eq!(block.part, self.id, "the block is of this part");
        let start = out.len();
        let decoded = self.append_times(block, range, decoder, out).and_then(|points| {
            let decoded = decode_values(block.body(), block.head.count, points, decoder, out);
            decoded.ok_or_else(|| self.damaged("values of a block are invalid"))
        });
        if decoded.is_err() {
            out.truncate(start);
        }
        decoded
    }

    /// Appends the instants of a block in a range, and returns the indexes of their points in the block.
    fn append_times(
        &self,
        block: &RawBlock,
        range: TimeRange,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<Range<usize>, PointStoreError> {
        let times = block.times();
        let first = times.first_ms;
        if range.first_ms > times.last_ms || range.last_ms < first {
            return Ok(0..0);
        }
        // As distances from the first instant.
        let low = range.first_ms.max(first) - first;
        let high = range.last_ms.min(times.last_ms) - first;
        let Decoder {
            numbers,
            distances,
            column,
        } = decoder;
        let distances = match times.form {
            Form::Regular => {
                let step = times.step();
                let divisor = step.max(1);
                let end = (high / divisor + 1).min(times.count.into());
                let points = (low / divisor + i64::from(low % divisor > 0)).min(end)..end;
                out.times_ms
                    .extend(points.clone().map(|index| first + index * step));
                return Ok(to_index(points.start)..to_index(points.end));
            }
            Form::Inline { at, len } => {
                let encoded = &block.page.bytes[at as usize..][..len as usize];
                self.decode_times(encoded, times.count, numbers)?;
                numbers
            }
            Form::Shared { number } => {
                let wanted = Column {
                    part: self.id,
                    number,
                    count: times.count,
                };
                if *column != Some(wanted) {
                    *column = None;
                    let (page, index) = self.times_column(number)?;
                    let encoded = page
                        .column(index)
                        .ok_or_else(|| self.damaged("a time column is absent"))?;
                    self.decode_times(encoded, times.count, distances)?;
                    *column = Some(wanted);
                }
                distances
            }
        };
        if distances.last() != Some(&(times.last_ms - first)) {
            return Err(self.damaged("instants of a block do not end at its last one"));
        }
        let from = if low == 0 {
            0
        } else {
            distances.partition_point(|distance| *distance < low)
        };
        let to = if range.last_ms >= times.last_ms {
            distances.len()
        } else {
            distances.partition_point(|distance| *distance <= high)
        };
        let points = from..to.max(from);
        let distances = distances[points.clone()].iter();
        out.times_ms
            .extend(distances.map(|distance| first.wrapping_add(*distance)));
        Ok(points)
    }

    fn decode_times(
        &self,
        encoded: &[u8],
        count: u32,
        distances: &mut Vec<i64>,
    ) -> Result<(), PointStoreError> {
        let mut reader = Reader(encoded);
        numbers::decode(&mut reader, count as usize, distances)
            .filter(|()| reader.0.is_empty())
            .ok_or_else(|| self.damaged("instants of a block are invalid"))
    }
}

/// An index of a block, which is never negative and below the greatest number of points of a block.
fn to_index(number: i64) -> usize {
    usize::try_from(number).unwrap_or_default()
}

/// Appends kinds and values of some points of a block of `count`.
fn decode_values(
    body: &[u8],
    count: usize,
    points: Range<usize>,
    decoder: &mut Decoder,
    out: &mut Columns,
) -> Option<()> {
    let mut reader = Reader(body);
    Statistics::decode(&mut reader)?;
    let out = (&mut out.kinds, &mut out.bits);
    values::decode_range(&mut reader, count, points, &mut decoder.numbers, out)?;
    reader.0.is_empty().then_some(())
}
