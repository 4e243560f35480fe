//! One tower layer for all middleware of the gRPC server.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tower::{Layer, Service};

/// The response to a call.
pub(crate) type ResponseFuture<E> = Pin<Box<dyn Future<Output = Result<Response<Body>, E>> + Send>>;

/// The services behind a [`Middleware`].
pub(crate) trait CallService:
    Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static
{
}

impl<S> CallService for S where S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static {}

/// Takes a service that is ready, for a call that begins later, and leaves a clone in its place.
pub(crate) fn replace_by_clone<S: Clone>(service: &mut S) -> S {
    let clone = service.clone();
    std::mem::replace(service, clone)
}

/// A step before and after the services behind it, for each call.
pub(crate) trait Middleware: Clone {
    /// Passes a call on to `inner`.
    fn call<S>(&self, inner: &mut S, request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send;
}

/// Applies a [`Middleware`].
#[derive(Clone, Debug)]
pub(crate) struct MiddlewareLayer<M>(pub(crate) M);

impl<M: Middleware, S> Layer<S> for MiddlewareLayer<M> {
    type Service = MiddlewareService<M, S>;

    fn layer(&self, inner: S) -> Self::Service {
        MiddlewareService {
            middleware: self.0.clone(),
            inner,
        }
    }
}

/// See [`MiddlewareLayer`].
#[derive(Clone, Debug)]
pub(crate) struct MiddlewareService<M, S> {
    middleware: M,
    inner: S,
}

impl<M, S> Service<Request<Body>> for MiddlewareService<M, S>
where
    M: Middleware,
    S: CallService,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.middleware.call(&mut self.inner, request)
    }
}
