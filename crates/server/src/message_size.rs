//! Messages over the limit, refused with a reason.
//!
//! tonic answers a message that is larger than a service reads with OUT_OF_RANGE and a text.
//! [`MessageSizeLayer`] makes our rich error of it where the call never reached its handler. A
//! handler of a stream gets tonic's error from its stream, and has it made good by
//! [`message_too_large`].

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// What tonic's text begins with; sizes in bytes follow: `found 20 bytes, the limit is: 10 bytes`.
const TONIC_TEXT: &str = "Error, decoded message length too large: ";

/// Gives the error of tonic for a message over the limit its reason; other errors stay as they are.
pub fn message_too_large(status: Status) -> Status {
    if status.code() != Code::OutOfRange {
        return status;
    }
    let Some(sizes) = status.message().strip_prefix(TONIC_TEXT) else {
        return status;
    };
    let mut numbers = sizes
        .split(|character: char| !character.is_ascii_digit())
        .filter(|digits| !digits.is_empty());
    let message = match (numbers.next(), numbers.next()) {
        (Some(found), Some(limit)) => format!("message has {found} bytes, at most {limit} are allowed"),
        _ => "message is larger than the server reads".to_owned(),
    };
    error::status(Code::OutOfRange, ErrorReason::MessageTooLarge, message, &[])
}

/// Answers a call whose message is over the limit with [`message_too_large`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageSizeLayer;

impl<S> Layer<S> for MessageSizeLayer {
    type Service = MessageSizeService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MessageSizeService { inner }
    }
}

/// See [`MessageSizeLayer`].
#[derive(Clone, Debug)]
pub(crate) struct MessageSizeService<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for MessageSizeService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            // An answer that is an error alone has its status among its headers.
            if answer
                .headers()
                .get(Status::GRPC_STATUS)
                .is_none_or(|code| code != "11")
            {
                return Ok(answer);
            }
            Ok(match Status::from_header_map(answer.headers()) {
                Some(status) if status.details().is_empty() => message_too_large(status).into_http(),
                Some(_) | None => answer,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oxtsdb_proto::error::reason_of;
    use tokio::net::TcpListener;
    use tonic::transport::Endpoint;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    use super::*;
    use crate::{GrpcOptions, GrpcServer, Shutdown};

    #[test]
    fn other_errors_stay_as_they_are() {
        for status in [
            Status::out_of_range("of something else"),
            Status::internal(format!("{TONIC_TEXT}found 2 bytes, the limit is: 1 bytes")),
        ] {
            let after = message_too_large(status.clone());
            assert_eq!((after.code(), after.message()), (status.code(), status.message()));
            assert_eq!(reason_of(&after), None);
        }
    }

    #[tokio::test]
    async fn a_message_over_the_limit_is_told_its_size_and_the_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        let server = GrpcServer::new().serve(listener, GrpcOptions::default(), shutdown);
        let server = tokio::spawn(server);

        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = HealthClient::new(endpoint.connect().await.unwrap());
        let request = HealthCheckRequest {
            service: "x".repeat(5 << 20),
        };
        // Both kinds of answers: of one message, and a stream that never begins.
        let unary = client.check(request.clone()).await.unwrap_err();
        let stream = client.watch(request).await.unwrap_err();
        for status in [unary, stream] {
            assert_eq!(status.code(), Code::OutOfRange);
            assert_eq!(
                reason_of(&status),
                Some(ErrorReason::MessageTooLarge),
                "{status:?}"
            );
            assert_eq!(
                status.message(),
                "message has 5242885 bytes, at most 4194304 are allowed"
            );
        }
        let known = client.check(HealthCheckRequest::default()).await;
        assert!(known.is_ok(), "other calls are as before: {known:?}");
        let unknown = client
            .check(HealthCheckRequest {
                service: "unknown".to_owned(),
            })
            .await;
        assert_eq!(unknown.unwrap_err().code(), Code::NotFound);

        drop(client);
        trigger.shut_down().await;
        server.await.unwrap().unwrap();
    }
}
