//! A gRPC transport without client-side behaviour.
//!
//! tonic's own channel enforces `grpc-timeout` too and cancels first, so that a test would never see the
//! response of the server.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use oxtsdb_proto::EncodedCodec;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Request as Call, Status};
use tower::Service;

use crate::raw_http::socket_from;

/// HTTP/2's own size of windows: the server may send this many unread bytes of a stream.
const WINDOW: u32 = 65_535;

/// A connection; generated clients take it in place of a channel, by `with_origin`.
#[derive(Clone, Debug)]
pub struct RawChannel {
    sender: SendRequest<Body>,
}

impl RawChannel {
    /// Connects.
    ///
    /// # Errors
    ///
    /// If the server does not accept or does not speak HTTP/2.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(address).await?, None).await
    }

    /// Connects from another loopback address, so that the server sees another client.
    ///
    /// # Errors
    ///
    /// As [`RawChannel::connect`].
    pub async fn connect_from(client: Ipv4Addr, address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(socket_from(client)?.connect(address).await?, None).await
    }

    /// Connects with the smallest windows, so that the server soon waits for a reader.
    ///
    /// # Errors
    ///
    /// As [`RawChannel::connect`].
    pub async fn connect_slow_reader(address: SocketAddr) -> anyhow::Result<Self> {
        Self::over(TcpStream::connect(address).await?, Some(WINDOW)).await
    }

    async fn over(stream: TcpStream, window: Option<u32>) -> anyhow::Result<Self> {
        // The second frame of a call would wait 40 ms for the acknowledgement of the first.
        stream.set_nodelay(true)?;
        let mut builder = http2::Builder::new(TokioExecutor::new());
        if let Some(window) = window {
            builder
                .initial_stream_window_size(window)
                // Streams wait for their own readers, not for each other's.
                .initial_connection_window_size(window * 1024);
        }
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// The origin that generated clients need beside the connection.
    ///
    /// # Errors
    ///
    /// Never for an address.
    pub fn origin(address: SocketAddr) -> anyhow::Result<Uri> {
        Ok(format!("http://{address}").parse()?)
    }
}

impl Service<Request<Body>> for RawChannel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, hyper::Result<Response<Incoming>>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}

/// Calls a method with an encoded message; returns the encoded response.
///
/// # Errors
///
/// The status of the call.
pub async fn call(
    channel: RawChannel,
    origin: Uri,
    path: &'static str,
    message: Bytes,
) -> Result<Bytes, Status> {
    let mut client = Grpc::with_origin(channel, origin);
    client
        .ready()
        .await
        .map_err(|error| Status::unknown(format!("not ready: {error}")))?;
    let path = http::uri::PathAndQuery::from_static(path);
    let response = client.unary(Call::new(message), path, EncodedCodec).await?;
    Ok(response.into_inner())
}
