//! Serving calls over encoded messages.
//!
//! tonic reads a request and writes a response by generic code that is compiled for each type of message. A [`Server`]
//! gives it one type for requests and responses, [`Bytes`]; a method then decodes its request, calls its handler and encodes
//! the response ([`Call`]). `build/server.rs` generates the [`Methods`] of each service.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use prost::{Message, Name};
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding};
use tonic::codegen::tokio_stream::{Stream, StreamExt as _};
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};

use crate::bounded_codec::{BoundedCodec, EncodedCodec, decode_request};

/// The messages of a streamed response.
pub type MessageStream<R> = Pin<Box<dyn Stream<Item = Result<R, Status>> + Send>>;

/// The response to a call.
pub type Answer = Pin<Box<dyn Future<Output = http::Response<Body>> + Send>>;

/// The methods of a service, by their names.
pub trait Methods: Send + Sync + 'static {
    /// The handler of the calls.
    type Handler;

    /// The full name of the service, for example `oxtsdb.uid.v1.UidService`.
    const SERVICE: &'static str;

    /// The methods of this handler.
    fn new(handler: Self::Handler) -> Self;

    /// Answers a call of the method.
    fn call(&self, method: &str, call: Call) -> Answer;
}

/// A service as tonic serves it. Requests may be compressed by gzip. Responses are not: clients that announce gzip by default
/// would get every small response compressed, and tonic cannot exempt single messages.
pub struct Server<M> {
    methods: Arc<M>,
    max_request_bytes: usize,
}

impl<M: Methods> Server<M> {
    /// Serves the methods of a handler; the message of a request has at most `max_request_bytes`, decompressed.
    pub fn new(handler: M::Handler, max_request_bytes: usize) -> Self {
        Self {
            methods: Arc::new(M::new(handler)),
            max_request_bytes,
        }
    }

    /// The most bytes of a request's message.
    pub const fn max_request_bytes(&self) -> usize {
        self.max_request_bytes
    }
}

impl<M> Clone for Server<M> {
    fn clone(&self) -> Self {
        Self {
            methods: Arc::clone(&self.methods),
            max_request_bytes: self.max_request_bytes,
        }
    }
}

impl<M: Methods> fmt::Debug for Server<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut server = f.debug_struct("Server");
        server
            .field("service", &M::SERVICE)
            .field("max_request_bytes", &self.max_request_bytes);
        server.finish_non_exhaustive()
    }
}

impl<M: Methods> NamedService for Server<M> {
    const NAME: &'static str = M::SERVICE;
}

impl<M: Methods> Service<http::Request<Body>> for Server<M> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Infallibly;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Infallibly {
        let uri = request.uri().clone();
        let (service, method) = uri
            .path()
            .trim_start_matches('/')
            .split_once('/')
            .unwrap_or_default();
        let call = Call {
            request,
            max_request_bytes: self.max_request_bytes,
        };
        Infallibly(if service == M::SERVICE {
            self.methods.call(method, call)
        } else {
            call.unimplemented()
        })
    }
}

/// An [`Answer`] as a service of tower gives it.
pub struct Infallibly(Answer);

impl fmt::Debug for Infallibly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Infallibly")
    }
}

impl Future for Infallibly {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

/// A call before its request is read.
#[derive(Debug)]
pub struct Call {
    request: http::Request<Body>,
    max_request_bytes: usize,
}

impl Call {
    /// Answers with one message to one message.
    pub fn unary<Q, R, F>(self, handler: impl Fn(Request<Q>) -> F + Send + 'static) -> Answer
    where
        Q: Message + Name + Default,
        R: Message + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        self.answer_one(Box::new(move |request| {
            let response = decoded(request).map(&handler);
            Box::pin(async move { Ok(response?.await?.map(encoded)) })
        }))
    }

    /// As [`Call::unary`], for a handler that decodes the request.
    pub fn unary_encoded<R, F>(self, handler: impl Fn(Request<Bytes>) -> F + Send + 'static) -> Answer
    where
        R: Message + 'static,
        F: Future<Output = Result<Response<R>, Status>> + Send + 'static,
    {
        self.answer_one(Box::new(move |request| {
            let response = handler(request);
            Box::pin(async move { Ok(response.await?.map(encoded)) })
        }))
    }

    /// Answers with a stream of messages to one message.
    pub fn stream<Q, R, F>(self, handler: impl Fn(Request<Q>) -> F + Send + 'static) -> Answer
    where
        Q: Message + Name + Default,
        R: Message + 'static,
        F: Future<Output = Result<Response<MessageStream<R>>, Status>> + Send + 'static,
    {
        self.answer_many(Box::new(move |request| {
            let response = decoded(request).map(&handler);
            Box::pin(async move { Ok(response?.await?.map(all_encoded)) })
        }))
    }

    /// Answers with a stream of messages to a stream of messages.
    pub fn stream_both<Q, R, F>(self, handler: impl Fn(Request<Streaming<Q>>) -> F + Send + 'static) -> Answer
    where
        Q: Message + Name + Default + 'static,
        R: Message + 'static,
        F: Future<Output = Result<Response<MessageStream<R>>, Status>> + Send + 'static,
    {
        let mut grpc = self.grpc(BoundedCodec::<R, Q>::default());
        Box::pin(async move { grpc.streaming(Both(handler), self.request).await })
    }

    /// Answers that the service has no such method.
    pub fn unimplemented(self) -> Answer {
        Box::pin(ready(Status::unimplemented("").into_http()))
    }

    fn grpc<C: Codec>(&self, codec: C) -> Grpc<C> {
        Grpc::new(codec)
            .max_decoding_message_size(self.max_request_bytes)
            .accept_compressed(CompressionEncoding::Gzip)
    }

    fn answer_one(self, handler: BoxHandler<Bytes>) -> Answer {
        let mut grpc = self.grpc(EncodedCodec);
        Box::pin(async move { grpc.unary(One(handler), self.request).await })
    }

    fn answer_many(self, handler: BoxHandler<MessageStream<Bytes>>) -> Answer {
        let mut grpc = self.grpc(EncodedCodec);
        Box::pin(async move { grpc.server_streaming(Many(handler), self.request).await })
    }
}

type BoxHandler<R> = Box<dyn Fn(Request<Bytes>) -> BoxFuture<Response<R>> + Send>;
type BoxFuture<R> = Pin<Box<dyn Future<Output = Result<R, Status>> + Send>>;

/// A handler of a unary call, as tonic calls it.
struct One(BoxHandler<Bytes>);

impl UnaryService<Bytes> for One {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0(request)
    }
}

/// A handler of a call with streamed responses, as tonic calls it.
struct Many(BoxHandler<MessageStream<Bytes>>);

impl ServerStreamingService<Bytes> for Many {
    type Response = Bytes;
    type ResponseStream = MessageStream<Bytes>;
    type Future = BoxFuture<Response<MessageStream<Bytes>>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        self.0(request)
    }
}

/// A handler of a call with streamed requests and responses, as tonic calls it.
struct Both<H>(H);

impl<Q, R, F, H> StreamingService<Q> for Both<H>
where
    F: Future<Output = Result<Response<MessageStream<R>>, Status>>,
    H: Fn(Request<Streaming<Q>>) -> F,
{
    type Response = R;
    type ResponseStream = MessageStream<R>;
    type Future = F;

    fn call(&mut self, request: Request<Streaming<Q>>) -> F {
        self.0(request)
    }
}

fn decoded<Q: Message + Name + Default>(request: Request<Bytes>) -> Result<Request<Q>, Status> {
    let (metadata, extensions, message) = request.into_parts();
    Ok(Request::from_parts(
        metadata,
        extensions,
        decode_request(message)?,
    ))
}

fn all_encoded<R: Message + 'static>(messages: MessageStream<R>) -> MessageStream<Bytes> {
    Box::pin(messages.map(|message| message.map(encoded)))
}

/// Encodes a message of a response, into a vector: the methods of tonic's buffer are not inlined, so that each number of a column
/// would be a function call.
fn encoded(message: impl Message) -> Bytes {
    message.encode_to_vec().into()
}
