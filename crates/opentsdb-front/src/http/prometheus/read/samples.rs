//! The response `SAMPLES`: one message.
//!
//! ```text
//!   ReadResponse  1 results: QueryResult*
//!   QueryResult   1 timeseries: TimeSeries*
//!   TimeSeries    1 labels: Label* (1 name, 2 value), ascending by name, 2 samples: Sample*
//!   Sample        1 value: double, 2 timestamp: int64, milliseconds
//! ```

use std::sync::Arc;

use bytes::{BufMut as _, Bytes};
use oxtsdb_query::{Budget, Group, GroupEncoder, Held, QueryError};
use oxtsdb_resources::yield_to_others;
use oxtsdb_schema::Annotation;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::labels::{FIRST_MESSAGE, Labels, SECOND_MESSAGE, begin, bytes_of};
use super::matcher::SeriesTests;
use crate::http::body::{BodyWriter, ReplyBody};

/// Points that are written at a time; then a part of the body may end.
const RUN_POINTS: usize = 4096;

/// The keys of fields: number, and type.
const VALUE: u8 = 1 << 3 | 1;
const TIMESTAMP: u8 = 2 << 3;

/// Bytes of a sample without its timestamp: the value and both keys.
const SAMPLE_BYTES: usize = 1 + size_of::<f64>() + 1;

/// Encodes the series that pass all tests.
#[derive(Debug)]
pub(super) struct SampleEncoder(pub(super) SeriesTests);

impl GroupEncoder for SampleEncoder {
    fn encode(
        &self,
        groups: &mut dyn Iterator<Item = (Group, Option<Held>)>,
        _global: Option<&[Arc<Annotation>]>,
        budget: &Budget,
    ) -> Result<(Vec<Bytes>, Held), QueryError> {
        let mut body = BodyWriter::with_budget(budget)?;
        for (group, _held) in groups {
            if self.0.pass(&group) {
                write(&group, &mut body)?;
            }
        }
        let (parts, held) = body.finish()?.into_parts();
        Ok((parts, held.map_or_else(|| budget.hold(0), Ok)?))
    }
}

/// Writes a series.
fn write(group: &Group, body: &mut BodyWriter) -> Result<(), QueryError> {
    let labels = Labels::new(group);
    let of_samples = group
        .points
        .times_ms()
        .iter()
        .map(|ms| bytes_of(sample_bytes(*ms)));
    let length = labels.len() + of_samples.sum::<usize>();
    let out = body.out();
    begin(out, FIRST_MESSAGE, length);
    labels.write(out);
    let mut points = group.points.iter();
    while points.len() > 0 {
        yield_to_others();
        let out = body.out();
        for (time_ms, value) in points.by_ref().take(RUN_POINTS) {
            begin(out, SECOND_MESSAGE, sample_bytes(time_ms));
            out.push(VALUE);
            out.put_f64_le(value.as_f64());
            out.push(TIMESTAMP);
            encode_varint(time_ms.cast_unsigned(), out);
        }
        body.roll()?;
    }
    Ok(())
}

/// Bytes of a sample's message.
fn sample_bytes(time_ms: i64) -> usize {
    SAMPLE_BYTES + encoded_len_varint(time_ms.cast_unsigned())
}

/// The `ReadResponse` with these results, in Snappy's block format.
///
/// # Errors
///
/// If it exceeds the memory of a query.
pub(super) fn response(results: Vec<ReplyBody>) -> Result<ReplyBody, QueryError> {
    let mut response = Response::default();
    for result in results {
        response.add(result)?;
    }
    response.compressed()
}

/// A `ReadResponse`, with its memory.
#[derive(Default)]
struct Response {
    message: Vec<u8>,
    held: Option<Held>,
}

impl Response {
    /// Adds a result.
    fn add(&mut self, result: ReplyBody) -> Result<(), QueryError> {
        let (parts, held) = result.into_parts();
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        // Each query has a budget of its own: its memory is released when the copy is made.
        let (mut own, other) = match self.held.take() {
            Some(own) => (Some(own), held),
            None => (held, None),
        };
        if let Some(own) = &mut own {
            own.grow(bytes as u64)?;
        }
        begin(&mut self.message, FIRST_MESSAGE, bytes);
        self.message.reserve_exact(bytes);
        for part in parts {
            self.message.extend_from_slice(&part);
        }
        drop(other);
        if let Some(own) = &mut own {
            own.shrink_to(self.message.len() as u64);
        }
        self.held = own;
        Ok(())
    }

    /// The whole message in Snappy's block format.
    fn compressed(mut self) -> Result<ReplyBody, QueryError> {
        if let Some(held) = &mut self.held {
            held.grow(snap::raw::max_compress_len(self.message.len()) as u64)?;
        }
        let compressed = snap::raw::Encoder::new().compress_vec(&self.message);
        let compressed = compressed.map_err(|error| QueryError::Internal {
            detail: format!("the response cannot be compressed: {error}"),
        })?;
        let Some(mut held) = self.held else {
            return Ok(compressed.into());
        };
        held.shrink_to(compressed.len() as u64);
        Ok(ReplyBody::from_parts(vec![compressed.into()], held))
    }
}
