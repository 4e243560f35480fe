//! Deadlines of calls: `grpc-timeout` as an instant in the request's extensions, and DEADLINE_EXCEEDED when
//! it passes.
//!
//! tonic's own time-out responds with CANCELLED. The middleware bounds the time until a response begins;
//! handlers of streams observe [`deadline_of`] themselves.

use std::time::{Duration, Instant};

use http::{Extensions, HeaderMap, Request};
use oxtsdb_proto::deadline;
use tonic::body::Body;

use crate::middleware::{CallService, Middleware, ResponseFuture};

/// The instant until which the client waits for a call; in the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// The client's deadline, from `grpc-timeout`. The server's default is not included: it bounds the time until
/// a response begins, and a stream without a deadline has no total limit.
pub fn deadline_of(extensions: &Extensions) -> Option<Instant> {
    extensions.get::<Deadline>().map(|deadline| deadline.0)
}

/// Sets the [`Deadline`] of each call and responds with DEADLINE_EXCEEDED when it passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeadlineMiddleware {
    /// The time until a response begins, for calls without a deadline; `None`: no limit.
    pub(crate) default: Option<Duration>,
}

impl Middleware for DeadlineMiddleware {
    fn call<S>(&self, inner: &mut S, mut request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let requested = grpc_timeout(request.headers());
        let Some(timeout) = requested.or(self.default) else {
            return Box::pin(inner.call(request));
        };
        let deadline = Instant::now() + timeout;
        if requested.is_some() {
            request.extensions_mut().insert(Deadline(deadline));
        }
        let response = inner.call(request);
        Box::pin(async move {
            // `timeout_at` polls the call first: a call without time left would be done if it needs no wait.
            if deadline <= Instant::now() {
                return Ok(deadline::exceeded().into_http());
            }
            match tokio::time::timeout_at(deadline.into(), response).await {
                Ok(response) => response,
                Err(_elapsed) => Ok(deadline::exceeded().into_http()),
            }
        })
    }
}

/// The header `grpc-timeout`: up to eight digits and a unit. A malformed header counts as absent.
///
/// Source: gRPC over HTTP/2, "Timeout".
fn grpc_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower::{Layer as _, Service as _};

    use super::*;
    use crate::middleware::MiddlewareLayer;

    fn timeout_of(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", text.parse().unwrap());
        grpc_timeout(&headers)
    }

    #[test]
    fn reads_all_units() {
        assert_eq!(timeout_of("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(timeout_of("3M"), Some(Duration::from_secs(180)));
        assert_eq!(timeout_of("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(timeout_of("250m"), Some(Duration::from_millis(250)));
        assert_eq!(timeout_of("1u"), Some(Duration::from_micros(1)));
        assert_eq!(timeout_of("1n"), Some(Duration::from_nanos(1)));
        for malformed in ["", "S", "1", "1x", "123456789S", "-1S"] {
            assert_eq!(timeout_of(malformed), None, "{malformed}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn slow_calls_end_with_deadline_exceeded() {
        let slow = tower::service_fn(|_request: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let mut request = Request::new(Body::empty());
        request
            .headers_mut()
            .insert("grpc-timeout", "100m".parse().unwrap());
        let layer = MiddlewareLayer(DeadlineMiddleware::default());
        let response = layer.layer(slow).call(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    }

    #[tokio::test]
    async fn calls_without_time_left_are_not_begun() {
        let prompt = tower::service_fn(|_request: Request<Body>| async {
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let mut request = Request::new(Body::empty());
        request
            .headers_mut()
            .insert("grpc-timeout", "1n".parse().unwrap());
        let layer = MiddlewareLayer(DeadlineMiddleware::default());
        let response = layer.layer(prompt).call(request).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    }
}
