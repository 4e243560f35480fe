//! The codec of our calls: protobuf, with bounds on what a request may unfold to.
//!
//! [`RequestBounds`] checks an encoded request; a request that keeps to its bounds is decoded. A request
//! that is no protobuf is the caller's fault, which tonic's own codec reports as INTERNAL. Responses are
//! decoded as they are.
//!
//! [`EncodedCodec`] leaves the encoding and decoding to the client and to `serve.rs`, which decodes single requests by
//! [`decode_request`].

use std::fmt;
use std::marker::PhantomData;

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::{Message, Name};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::bounds::RequestBounds;
use crate::{decode_memory, error};

/// Encodes messages of type `T`, decodes messages of type `U` that keep to their bounds.
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
    U: Message + Name + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        let name = U::full_name();
        BoundedDecoder {
            bounds: RequestBounds::for_message(&name),
            name,
            message: PhantomData,
        }
    }
}

/// See [`BoundedCodec`].
pub(crate) struct BoundedDecoder<U> {
    /// The full name of the message.
    name: String,
    /// `None` for a response.
    bounds: Option<RequestBounds>,
    message: PhantomData<fn() -> U>,
}

impl<U: Message + Default> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let Some(bounds) = self.bounds else {
            let response = U::decode(buffer);
            return response
                .map(Some)
                .map_err(|error| Status::new(Code::Internal, format!("{}: {error}", self.name)));
        };
        // tonic collects a message in one piece.
        debug_assert_eq!(buffer.chunk().len(), buffer.remaining());
        bounded(bounds, &self.name, buffer).map(Some)
    }
}

/// Decodes a message that is in one piece, if it keeps to its bounds.
fn bounded<U: Message + Default>(
    bounds: RequestBounds,
    name: &str,
    message: &mut impl bytes::Buf,
) -> Result<U, Status> {
    let unfolded = bounds.check(name, message.chunk())?;
    let texts = u64::try_from(message.remaining()).unwrap_or(u64::MAX);
    decode_memory::take(unfolded.saturating_add(texts))?;
    U::decode(message).map_err(|error| error::malformed_message(name, error))
}

/// Decodes a request as the server of a call does: checks its bounds, takes the memory of its decoded form.
///
/// # Errors
///
/// INVALID_ARGUMENT, if it has too many elements or is malformed; the errors of [`decode_memory::take`].
pub fn decode_request<U: Message + Name + Default>(mut message: Bytes) -> Result<U, Status> {
    let name = U::full_name();
    match RequestBounds::for_message(&name) {
        Some(bounds) => bounded(bounds, &name, &mut message),
        None => U::decode(message).map_err(|error| error::malformed_message(&name, error)),
    }
}

/// See [`EncodedCodec`].
#[derive(Debug)]
pub struct EncodedDecoder(());

impl Decoder for EncodedDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        // Not a copy: tonic's buffer is split.
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// A codec of messages that are encoded and decoded elsewhere: clients and servers have one form of each kind of call in place
/// of one for each method.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodedCodec;

impl Codec for EncodedCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = EncodedEncoder;
    type Decoder = EncodedDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        EncodedEncoder(())
    }

    fn decoder(&mut self) -> Self::Decoder {
        EncodedDecoder(())
    }
}

/// See [`EncodedCodec`].
#[derive(Debug)]
pub struct EncodedEncoder(());

impl Encoder for EncodedEncoder {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::Context;

    use bytes::BytesMut;
    use http_body_util::Full;
    use tonic::codec::Streaming;

    use super::*;
    use crate::common::v1::ErrorReason;
    use crate::data::v1::{ExplainRequest, ExplainResponse, TimeSeries, WriteRequest};
    use crate::decode_memory::Meter;

    async fn decoded<U: Message + Name + Default + Send + 'static>(message: &[u8]) -> Result<U, Status> {
        let mut frame = BytesMut::new();
        frame.put_u8(0);
        frame.put_u32(u32::try_from(message.len()).unwrap());
        frame.put_slice(message);
        let decoder = BoundedCodec::<(), U>::default().decoder();
        let mut stream = Streaming::new_request(decoder, Full::new(frame.freeze()), None, None);
        stream.message().await.map(Option::unwrap)
    }

    #[tokio::test]
    async fn malformed_requests_are_invalid_arguments_that_name_the_message() {
        // Cut short where elements are counted, a group, and a wrong type where they are not.
        for message in [&[0x0a, 0x05, 0x01][..], &[0x0b, 0x0c], &[0x12, 0x01, 0x01]] {
            let status = decoded::<WriteRequest>(message).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert_eq!(error::reason_of(&status), Some(ErrorReason::MalformedMessage));
            assert!(
                status.message().contains("oxtsdb.data.v1.WriteRequest"),
                "{status:?}"
            );
        }
    }

    #[tokio::test]
    async fn requests_over_a_bound_are_not_decoded() {
        let request = ExplainRequest {
            query: Some(crate::data::v1::QueryRequest {
                queries: vec![Default::default(); 1001],
                ..Default::default()
            }),
        };
        let status = decoded::<ExplainRequest>(&request.encode_to_vec())
            .await
            .unwrap_err();
        assert_eq!(error::reason_of(&status), Some(ErrorReason::BatchTooLarge));
    }

    struct Sum(AtomicU64);

    impl Meter for Sum {
        fn take(&self, bytes: u64) -> Result<(), Status> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }
    }

    #[tokio::test]
    async fn requests_take_the_memory_of_their_decoded_form() {
        let sum = Arc::new(Sum(AtomicU64::new(0)));
        let meter: Arc<dyn Meter> = Arc::<Sum>::clone(&sum);
        let request = WriteRequest {
            series: vec![TimeSeries::default(); 1000],
            ..WriteRequest::default()
        };
        let message = request.encode_to_vec();
        let mut decoding = std::pin::pin!(decoded::<WriteRequest>(&message));
        let poll = |cx: &mut Context<'_>| decode_memory::metered(&meter, || decoding.as_mut().poll(cx));
        std::future::poll_fn(poll).await.unwrap();
        let taken = sum.0.load(Ordering::Relaxed);
        assert!(
            taken >= (1000 * size_of::<TimeSeries>() + message.len()) as u64,
            "{taken} bytes"
        );
    }

    #[tokio::test]
    async fn a_malformed_response_is_an_internal_error() {
        let status = decoded::<ExplainResponse>(&[0x0b]).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
    }
}
