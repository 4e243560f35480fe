//! The codec of our calls: protobuf, with bounds on what a message may unfold to.
//!
//! An empty element of a repeated field has two bytes on the wire and hundreds in memory, so a message
//! within the size limit could take gigabytes before a handler sees how many points it has. The
//! elements of the fields that requests repeat are therefore counted in the encoded message, which
//! costs a few instructions for each, and the message is refused before it is decoded. The bounds
//! here are far above what the calls allow, whose handlers tell a caller the exact rule.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use bytes::Buf as _;
use prost::Message;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::common::v1::ErrorReason;
use crate::error;

/// How many elements a message may have at the end of a path of field numbers.
type Bound = (&'static [u32], usize);

/// Elements of a call that allows some thousands.
const SOME: usize = 65_536;
/// Elements of a call that allows a million.
const MANY: usize = 1_048_576;

/// The bounds of a message, by the name of its type.
fn bounds_of(type_name: &str) -> &'static [Bound] {
    match type_name.rsplit("::").next().unwrap_or_default() {
        // names or uids
        "GetOrCreateUidsRequest" | "LookupUidsRequest" | "LookupNamesRequest" => &[(&[1], SOME)],
        // points, and the tags of all of them
        "WriteRequest" => &[(&[1], SOME), (&[1, 1, 1, 2], MANY)],
        // columns: new_symbols, new_series, blocks
        "WriteColumnsRequest" => &[(&[1, 1], MANY), (&[1, 2], MANY), (&[1, 3], MANY)],
        // frame.columns
        "WriteStreamRequest" => &[(&[2, 2, 1], MANY), (&[2, 2, 2], MANY), (&[2, 2, 3], MANY)],
        // queries; filters, their values, tsuids
        "QueryRequest" => &[
            (&[2], SOME),
            (&[2, 1, 2], SOME),
            (&[2, 1, 2, 4], MANY),
            (&[2, 2, 1], MANY),
        ],
        // targets; tags of a series, filters, their values
        "QueryLastRequest" => &[
            (&[1], SOME),
            (&[1, 1, 1, 2], SOME),
            (&[1, 2, 2], SOME),
            (&[1, 2, 2, 4], MANY),
        ],
        // source: filters, their values, tsuids
        "ScanRowsRequest" => &[(&[1, 1, 2], SOME), (&[1, 1, 2, 4], MANY), (&[1, 2, 1], MANY)],
        _ => &[],
    }
}

/// Encodes messages of type `T`, decodes those of type `U` that keep to their bounds.
pub(crate) struct BoundedCodec<T, U>(PhantomData<fn(T) -> U>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> fmt::Debug for BoundedCodec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoundedCodec")
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        BoundedDecoder {
            inner: ProstCodec::<T, U>::default().decoder(),
            bounds: bounds_of(type_name::<U>()),
        }
    }
}

/// See [`BoundedCodec`].
#[derive(Debug)]
pub(crate) struct BoundedDecoder<U> {
    inner: ProstDecoder<U>,
    bounds: &'static [Bound],
}

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if !self.bounds.is_empty() {
            // tonic collects a message in one piece.
            debug_assert_eq!(buffer.chunk().len(), buffer.remaining());
            let mut counts = vec![0; self.bounds.len()];
            count(buffer.chunk(), self.bounds, &mut Vec::new(), &mut counts)?;
        }
        self.inner.decode(buffer)
    }
}

/// Adds the elements of `message`, which lies at `path`, to the counts of the bounds. Bytes that are no
/// protobuf end it: the decoder refuses them at the same place.
fn count(message: &[u8], bounds: &[Bound], path: &mut Vec<u32>, counts: &mut [usize]) -> Result<(), Status> {
    let mut rest = message;
    while let Some((field, element)) = next_field(&mut rest) {
        let Some(element) = element else { continue };
        path.push(field);
        let mut goes_deeper = false;
        for ((bound_path, limit), count) in bounds.iter().zip(counts.iter_mut()) {
            if *bound_path == path.as_slice() {
                *count += 1;
                if *count > *limit {
                    return Err(too_many(bound_path, *limit));
                }
            }
            goes_deeper |= bound_path.len() > path.len() && bound_path.starts_with(path);
        }
        if goes_deeper {
            self::count(element, bounds, path, counts)?;
        }
        path.pop();
    }
    Ok(())
}

/// The number of the next field, and its bytes if they have a length. `None` at the end, and where the
/// bytes are no protobuf.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    let key = varint(rest)?;
    let field = u32::try_from(key >> 3).ok()?;
    let skipped = match key & 7 {
        0 => {
            varint(rest)?;
            return Some((field, None));
        }
        1 => 8,
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            let (element, behind) = rest.split_at_checked(length)?;
            *rest = behind;
            return Some((field, Some(element)));
        }
        5 => 4,
        // Groups are not in our messages.
        _ => return None,
    };
    *rest = rest.get(skipped..)?;
    Some((field, None))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn too_many(path: &[u32], limit: usize) -> Status {
    let path: Vec<String> = path.iter().map(u32::to_string).collect();
    let path = path.join(".");
    let message = format!("the message has more than {limit} elements in the repeated field at path {path}");
    error::status(
        Code::InvalidArgument,
        ErrorReason::BatchTooLarge,
        message,
        &[("field", &path)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::v1::{SeriesKey, SeriesName, Tag, series_key};
    use crate::data::v1::columns::Block;
    use crate::data::v1::write_stream_request::{self, Frame};
    use crate::data::v1::{
        Columns, Point, QueryLastRequest, QueryRequest, SubQuery, WriteRequest, WriteStreamRequest,
    };
    use crate::data::v1::{TagFilter, sub_query};

    fn check<M: Message>(message: &M) -> Result<(), Status> {
        let bounds = bounds_of(type_name::<M>());
        assert!(!bounds.is_empty(), "{} has bounds", type_name::<M>());
        count(
            &message.encode_to_vec(),
            bounds,
            &mut Vec::new(),
            &mut vec![0; bounds.len()],
        )
    }

    #[test]
    fn elements_are_counted_up_to_the_bound() {
        let request = |points| WriteRequest {
            points: vec![Point::default(); points],
            ..WriteRequest::default()
        };
        check(&request(SOME)).unwrap();
        let refused = check(&request(SOME + 1)).unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert_eq!(error::reason_of(&refused), Some(ErrorReason::BatchTooLarge));
    }

    #[test]
    fn elements_of_all_parents_count_together() {
        let filters = vec![TagFilter::default(); SOME / 2];
        let source = sub_query::MetricSource {
            filters,
            ..sub_query::MetricSource::default()
        };
        let query = SubQuery {
            source: Some(sub_query::Source::Metric(source)),
            ..SubQuery::default()
        };
        let request = |queries| QueryRequest {
            queries: vec![query.clone(); queries],
            ..QueryRequest::default()
        };
        check(&request(2)).unwrap();
        check(&request(3)).unwrap_err();
    }

    #[test]
    fn columns_in_a_frame_are_found() {
        let columns = Columns {
            blocks: vec![Block::default(); MANY + 1],
            ..Columns::default()
        };
        let frame = Frame {
            sequence: 1,
            columns: Some(columns),
        };
        let message = Some(write_stream_request::Message::Frame(frame));
        check(&WriteStreamRequest { message }).unwrap_err();
    }

    #[test]
    fn paths_lead_to_the_fields_that_are_meant() {
        let tags = vec![Tag::default(); MANY + 1];
        let name = SeriesName {
            metric: String::new(),
            tags,
        };
        let series = Some(SeriesKey {
            key: Some(series_key::Key::Name(name)),
        });
        let point = Point {
            series,
            ..Point::default()
        };
        check(&WriteRequest {
            points: vec![point],
            ..WriteRequest::default()
        })
        .unwrap_err();
        check(&QueryLastRequest {
            targets: vec![Default::default(); SOME + 1],
            ..Default::default()
        })
        .unwrap_err();
    }

    #[test]
    fn bytes_that_are_no_protobuf_are_left_to_the_decoder() {
        let bounds = bounds_of("WriteRequest");
        for bytes in [&[0x0a, 0x05, 0x01][..], &[0xff; 12], &[0x0b], &[0x09, 1], &[]] {
            count(bytes, bounds, &mut Vec::new(), &mut vec![0; bounds.len()]).unwrap();
        }
    }
}
