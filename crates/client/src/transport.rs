//! How requests reach a service: over one or several connections, or in the same process.

mod authorized;
mod balance;
mod endpoint;

use std::path::PathBuf;

use tonic::body::Body;
use tonic::codegen::StdError;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt as _};

use balance::Balanced;
pub(crate) use endpoint::EndpointOptions;
use endpoint::Replicas;

/// A connected service. Cloning is cheap; clones share the connections.
pub(crate) type Transport = BoxCloneSyncService<http::Request<Body>, http::Response<Body>, TransportError>;

/// The error of a transport. tonic finds the cause, and the code for it, in its source.
#[derive(Debug, thiserror::Error)]
#[error("transport")]
pub(crate) struct TransportError(#[source] StdError);

/// A transport over one connection for each replica, established by the first request and again when it is
/// lost.
pub(crate) fn over(urls: Vec<Replicas>) -> Transport {
    BoxCloneSyncService::new(Balanced::new(urls).map_err(|error: StdError| TransportError(error)))
}

/// The same transport with the token of a file in each request.
pub(crate) fn with_token_file(transport: Transport, path: PathBuf) -> Transport {
    BoxCloneSyncService::new(authorized::Authorized::new(transport, path))
}

/// The same transport with the headers that `add` adds to each request.
pub(crate) fn with_headers(transport: Transport, add: fn(&mut http::HeaderMap)) -> Transport {
    BoxCloneSyncService::new(transport.map_request(move |mut request: http::Request<Body>| {
        add(request.headers_mut());
        request
    }))
}

/// A transport to services of this process, without a socket.
pub(crate) fn in_process<S>(service: S) -> Transport
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + Sync + 'static,
    S::Error: Into<StdError>,
    S::Future: Send + 'static,
{
    BoxCloneSyncService::new(service.map_err(|error| TransportError(error.into())))
}
