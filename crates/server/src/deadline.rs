//! Deadlines of calls, with the code that gRPC says.
//!
//! tonic's own server would answer CANCELLED. The layer bounds the time until a response begins; handlers
//! of streams watch [`deadline_of`] themselves.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Extensions, HeaderMap, Request, Response};
use oxtsdb_proto::deadline;
use tonic::body::Body;
use tower::{Layer, Service};

/// The instant by which the caller wants a call to be done; in the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(pub Instant);

/// The deadline that the caller gave, from `grpc-timeout`. The server's default is not one: it bounds
/// the time until an answer begins, and a stream without a deadline has no total limit.
pub fn deadline_of(extensions: &Extensions) -> Option<Instant> {
    extensions.get::<Deadline>().map(|deadline| deadline.0)
}

/// Gives each call its [`Deadline`] and answers DEADLINE_EXCEEDED when it passes.
#[derive(Clone, Debug, Default)]
pub struct DeadlineLayer {
    default: Option<Duration>,
}

impl DeadlineLayer {
    /// `default` is how long the answer to a call that brings no deadline may take to begin; `None`:
    /// for ever.
    pub fn new(default: Option<Duration>) -> Self {
        Self { default }
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService {
            inner,
            default: self.default,
        }
    }
}

/// See [`DeadlineLayer`].
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    inner: S,
    default: Option<Duration>,
}

impl<S> Service<Request<Body>> for DeadlineService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let asked = grpc_timeout(request.headers());
        let Some(timeout) = asked.or(self.default) else {
            return Box::pin(self.inner.call(request));
        };
        let deadline = Instant::now() + timeout;
        if asked.is_some() {
            request.extensions_mut().insert(Deadline(deadline));
        }
        let answer = self.inner.call(request);
        Box::pin(async move {
            match tokio::time::timeout_at(deadline.into(), answer).await {
                Ok(answer) => answer,
                Err(_elapsed) => Ok(deadline::exceeded().into_http()),
            }
        })
    }
}

/// The header `grpc-timeout`: up to eight digits and a unit. What is malformed counts as absent.
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
    use super::*;

    fn timeout_of(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert("grpc-timeout", text.parse().unwrap());
        grpc_timeout(&headers)
    }

    #[test]
    fn all_units_are_read() {
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
    async fn a_slow_call_is_answered_with_deadline_exceeded() {
        let slow = tower::service_fn(|_request: Request<Body>| async {
            std::future::pending::<()>().await;
            Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
        });
        let mut request = Request::new(Body::empty());
        request
            .headers_mut()
            .insert("grpc-timeout", "100m".parse().unwrap());
        let answer = DeadlineLayer::default().layer(slow).call(request).await.unwrap();
        assert_eq!(answer.headers()["grpc-status"], "4", "DEADLINE_EXCEEDED");
    }
}
