//! The response `STREAMED_XOR_CHUNKS`: frames with a message each.
//!
//! ```text
//!   frame                length: varint │ CRC-32C of the message, big endian │ message
//!   ChunkedReadResponse  1 chunked_series: ChunkedSeries, 2 query_index: int64
//!   ChunkedSeries        1 labels: Label*, ascending by name, 2 chunks: Chunk*, ascending by time
//!   Chunk                1 min_time_ms, 2 max_time_ms: int64, 3 type: XOR 1, 4 data: bytes
//! ```
//!
//! Series ascend by their labels, for each query: a Prometheus merges them with its own, one by one. It takes each frame for a
//! series and does not join frames, so a frame has all chunks of its series. Only a series with more than [`FRAME_BYTES`] has
//! several frames, because a reader allocates a frame as a whole, and Prometheus' `chunked_read_limit` is 50 MB.
//!
//! Source: Prometheus 3, `storage/remote/chunked.go`, and `codec.go`, `chunkedSeriesSet`.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use oxtsdb_query::{Budget, Group, GroupEncoder, Held, QueryError};
use oxtsdb_resources::yield_to_others;
use oxtsdb_schema::Annotation;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::labels::{FIRST_MESSAGE, Labels, SECOND_MESSAGE, begin, bytes_of};
use super::matcher::SeriesTests;
use super::xor::{self, CHUNK_SAMPLES};
use crate::http::body::ReplyBody;

pub(super) const CONTENT_TYPE: HeaderValue =
    HeaderValue::from_static("application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse");

/// Bytes of chunks from which on a frame ends.
const FRAME_BYTES: usize = 32 << 20;

/// Bytes of a part of the body, about.
const PART_BYTES: usize = 256 << 10;

/// Memory of the places of a key and its frame, also while they are sorted.
const FRAME_OVERHEAD: usize = 6 * size_of::<Bytes>();

/// The keys of fields: number, and type.
const QUERY_INDEX: u8 = 2 << 3;
const MIN_TIME: u8 = 1 << 3;
const MAX_TIME: u8 = 2 << 3;
const TYPE: u8 = 3 << 3;
const DATA: u8 = 4 << 3 | 2;

/// `Chunk.Encoding.XOR`.
const XOR: u8 = 1;

/// Encodes the series that pass all tests: a part with the key that they are sorted by, and a part with the frame, in turn.
#[derive(Debug)]
pub(super) struct ChunkEncoder {
    tests: SeriesTests,
    /// The number of the query in its request, from 0.
    query_index: u64,
}

impl ChunkEncoder {
    pub(super) const fn new(tests: SeriesTests, query_index: usize) -> Self {
        Self {
            tests,
            query_index: query_index as u64,
        }
    }
}

impl GroupEncoder for ChunkEncoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        _global: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError> {
        let mut frames = FrameWriter {
            query_index: self.query_index,
            chunks: Vec::new(),
            data: Vec::new(),
            chunks_held: budget.hold(0)?,
            parts: Vec::new(),
            held: budget.hold(0)?,
        };
        for (group, _held) in groups {
            if self.tests.pass(&group) {
                frames.add(&group)?;
            }
        }
        Ok((frames.parts, frames.held))
    }
}

/// Writes frames, with their memory.
struct FrameWriter {
    query_index: u64,
    /// The chunks of the next frame.
    chunks: Vec<u8>,
    /// The data of the next chunk.
    data: Vec<u8>,
    /// Memory of `chunks`.
    chunks_held: Held,
    /// Keys and frames in turn, and their memory.
    parts: Vec<Bytes>,
    held: Held,
}

impl FrameWriter {
    /// Adds a series.
    fn add(&mut self, group: &Group) -> Result<(), QueryError> {
        let labels = Labels::new(group);
        let times_ms = group.points.times_ms().chunks(CHUNK_SAMPLES);
        let mut points = group.points.iter();
        for times_ms in times_ms {
            yield_to_others();
            let samples = points.by_ref().take(CHUNK_SAMPLES);
            let samples = samples.map(|(time_ms, value)| (time_ms, value.as_f64()));
            self.data.clear();
            xor::write(samples, &mut self.data);
            self.chunk(times_ms)?;
            if self.chunks.len() >= FRAME_BYTES {
                self.frame(&labels)?;
            }
        }
        if !self.chunks.is_empty() {
            self.frame(&labels)?;
        }
        Ok(())
    }

    /// Adds a chunk with these times to the next frame.
    fn chunk(&mut self, times_ms: &[i64]) -> Result<(), QueryError> {
        let first = times_ms.first().copied().unwrap_or_default().cast_unsigned();
        let last = times_ms.last().copied().unwrap_or_default().cast_unsigned();
        let times = 2 + encoded_len_varint(first) + encoded_len_varint(last);
        let out = &mut self.chunks;
        begin(out, SECOND_MESSAGE, times + 2 + bytes_of(self.data.len()));
        out.push(MIN_TIME);
        encode_varint(first, out);
        out.push(MAX_TIME);
        encode_varint(last, out);
        out.extend_from_slice(&[TYPE, XOR]);
        begin(out, DATA, self.data.len());
        out.extend_from_slice(&self.data);
        let more = (self.chunks.capacity() as u64).saturating_sub(self.chunks_held.bytes());
        self.chunks_held.grow(more)
    }

    /// Ends a frame.
    fn frame(&mut self, labels: &Labels<'_>) -> Result<(), QueryError> {
        let series = labels.len() + self.chunks.len();
        let index = 1 + encoded_len_varint(self.query_index);
        let message = index + bytes_of(series);
        let head = encoded_len_varint(message as u64) + size_of::<u32>();
        let key = labels.sort_key();
        let bytes = FRAME_OVERHEAD + key.len() + head + message;
        self.held.grow(bytes as u64)?;
        let mut frame = Vec::with_capacity(head + message);
        encode_varint(message as u64, &mut frame);
        frame.extend_from_slice(&[0; size_of::<u32>()]);
        frame.push(QUERY_INDEX);
        encode_varint(self.query_index, &mut frame);
        begin(&mut frame, FIRST_MESSAGE, series);
        labels.write(&mut frame);
        frame.extend_from_slice(&self.chunks);
        let (length_and_sum, message) = frame.split_at_mut(head);
        if let Some(sum) = length_and_sum.last_chunk_mut() {
            *sum = crc32c(message).to_be_bytes();
        }
        self.parts.extend([key.into(), frame.into()]);
        self.chunks.clear();
        Ok(())
    }
}

/// The frames of results, each result in the order of its series.
///
/// # Errors
///
/// If they exceed the memory of a query.
pub(super) fn response(results: Vec<ReplyBody>) -> Result<ReplyBody, QueryError> {
    let mut body = Vec::new();
    let mut part = Vec::new();
    let mut body_held: Option<Held> = None;
    for result in results {
        let (parts, Some(mut held)) = result.into_parts() else {
            continue;
        };
        let mut frames = Vec::with_capacity(parts.len() / 2);
        let mut parts = parts.into_iter();
        while let (Some(key), Some(frame)) = (parts.next(), parts.next()) {
            frames.push((key, frame));
        }
        // The frames of a series stay in their order.
        frames.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut bytes = 0;
        for (_, frame) in frames {
            yield_to_others();
            bytes += frame.len() as u64;
            part.extend_from_slice(&frame);
            if part.len() >= PART_BYTES {
                body.push(std::mem::take(&mut part).into());
            }
        }
        held.shrink_to(bytes);
        // Each query has a budget of its own.
        match &mut body_held {
            None => body_held = Some(held),
            Some(body_held) => body_held.grow(bytes)?,
        }
    }
    if !part.is_empty() {
        body.push(part.into());
    }
    Ok(match body_held {
        Some(held) => ReplyBody::from_parts(body, held),
        None => ReplyBody::default(),
    })
}

/// The checksum CRC-32C (Castagnoli) of a message.
fn crc32c(message: &[u8]) -> u32 {
    let sum = message.iter().fold(u32::MAX, |sum, byte| {
        let [.., lowest] = sum.to_be_bytes();
        TABLE[usize::from(lowest ^ byte)] ^ (sum >> 8)
    });
    !sum
}

/// The checksum of each byte.
static TABLE: [u32; 256] = {
    /// The polynomial, the lowest bit first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte: u32 = 0;
    while byte < 256 {
        let mut sum = byte;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 0 {
                sum >> 1
            } else {
                (sum >> 1) ^ POLYNOMIAL
            };
            bit += 1;
        }
        table[byte as usize] = sum;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_castagnolis() {
        // RFC 3720, B.4.
        for (message, sum) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(message), sum, "{message:?}");
        }
    }
}
