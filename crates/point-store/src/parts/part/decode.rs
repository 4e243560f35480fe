//! Decodes blocks.

use super::Statistics;
use super::blocks::RawBlock;
use super::columns::Columns;
use super::page::Form;
use super::reader::Part;
use crate::parts::codec::{numbers, values};
use crate::parts::varint::Reader;
use crate::{PointStoreError, TimeRange};

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
    /// [`PointStoreError::Damaged`], or those of the disk; then no points are appended.
    pub fn decode(
        &self,
        block: &RawBlock,
        range: TimeRange,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<(), PointStoreError> {
        debug_assert_eq!(block.part, self.id, "the block is of this part");
        let start = out.len();
        let decoded = self.append_times(block, decoder, out).and_then(|()| {
            let decoded = decode_values(block.body(), block.head.count, decoder, out);
            decoded.ok_or_else(|| self.damaged("values of a block are invalid"))
        });
        if let Err(error) = decoded {
            out.truncate(start);
            return Err(error);
        }
        if range.last_ms < block.head.range.last_ms {
            let end = out.times_ms[start..].partition_point(|time| *time <= range.last_ms);
            out.truncate(start + end);
        }
        if range.first_ms > block.head.range.first_ms {
            let first = out.times_ms[start..].partition_point(|time| *time < range.first_ms);
            out.remove(start..start + first);
        }
        Ok(())
    }

    fn append_times(
        &self,
        block: &RawBlock,
        decoder: &mut Decoder,
        out: &mut Columns,
    ) -> Result<(), PointStoreError> {
        let times = block.times();
        let first = times.first_ms;
        let Decoder {
            numbers,
            distances,
            column,
        } = decoder;
        let distances = match times.form {
            Form::Regular => {
                let step = times.step();
                out.times_ms
                    .extend((0..i64::from(times.count)).map(|index| first + index * step));
                return Ok(());
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
        out.times_ms
            .extend(distances.iter().map(|distance| first.wrapping_add(*distance)));
        Ok(())
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

/// Appends kinds and values of a block.
fn decode_values(body: &[u8], count: usize, decoder: &mut Decoder, out: &mut Columns) -> Option<()> {
    let mut reader = Reader(body);
    Statistics::decode(&mut reader)?;
    values::decode(
        &mut reader,
        count,
        &mut decoder.numbers,
        &mut out.kinds,
        &mut out.bits,
    )?;
    reader.0.is_empty().then_some(())
}
