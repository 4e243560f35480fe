//! A codec for requests that are encoded already.

use std::marker::PhantomData;

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Sends bytes as they are; responses are messages of type `A`.
#[derive(Debug)]
pub(crate) struct RawCodec<A>(PhantomData<fn() -> A>);

impl<A> Default for RawCodec<A> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<A: Message + Default + 'static> Codec for RawCodec<A> {
    type Encode = Bytes;
    type Decode = A;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<A> Encoder for RawCodec<A> {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message);
        Ok(())
    }
}

impl<A: Message + Default> Decoder for RawCodec<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        A::decode(bytes)
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
