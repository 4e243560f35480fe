//! The service as it is served: `Write` receives the bytes of its requests, all other calls decoded messages.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::{Request, Response};
use oxtsdb_proto::EncodedRequests;
use oxtsdb_proto::data::v1::WriteResponse;
use oxtsdb_proto::data::v1::data_service_server::{DataServiceServer, SERVICE_NAME};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::{Grpc, NamedService};
use tower::{Service, service_fn};

use super::write_encoded;
use crate::grpc::DataServiceHandler;

const WRITE_PATH: &str = "/oxtsdb.data.v1.DataService/Write";

/// Serves `oxtsdb.data.v1.DataService`, with the configured limit of messages. Accepts gzip; responses are not
/// compressed, because clients that announce gzip by default would get every small ack compressed, and tonic cannot
/// exempt single messages.
#[derive(Clone, Debug)]
pub struct DataServer {
    handler: DataServiceHandler,
    /// Of all calls but `Write`.
    others: DataServiceServer<DataServiceHandler>,
}

impl DataServer {
    pub(crate) fn new(handler: DataServiceHandler) -> Self {
        let others = DataServiceServer::new(handler.clone())
            .max_decoding_message_size(handler.max_message_bytes())
            .accept_compressed(CompressionEncoding::Gzip);
        Self { handler, others }
    }
}

impl NamedService for DataServer {
    const NAME: &'static str = SERVICE_NAME;
}

impl Service<Request<Body>> for DataServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != WRITE_PATH {
            return self.others.call(request);
        }
        let handler = self.handler.clone();
        async move {
            let mut grpc = Grpc::new(EncodedRequests::<WriteResponse>::default())
                .max_decoding_message_size(handler.max_message_bytes())
                .accept_compressed(CompressionEncoding::Gzip);
            let write = service_fn(|request: tonic::Request<Bytes>| {
                let handler = handler.clone();
                async move {
                    let handler = handler.of_caller(request.extensions());
                    write_encoded(&handler, request).await
                }
            });
            Ok(grpc.unary(write, request).await)
        }
        .boxed()
    }
}
