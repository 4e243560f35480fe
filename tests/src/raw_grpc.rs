//! A gRPC transport that does nothing by itself.
//!
//! tonic's own channel looks at `grpc-timeout` too and gives up first, so that the answer of the
//! server is never seen.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tower::Service;

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
    /// If nobody listens or HTTP/2 is not spoken.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender })
    }

    /// What generated clients want to know beside the connection.
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
