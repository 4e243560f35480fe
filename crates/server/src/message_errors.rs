//! Messages that tonic cannot read, refused with a reason.
//!
//! tonic answers a message that is larger than a service reads with OUT_OF_RANGE and a text, and one whose
//! frame is broken with INTERNAL, as if it were the server's fault. [`MessageErrorLayer`] makes our rich
//! errors of these where the call never reached its handler. A handler of a stream gets tonic's error from
//! its stream, and passes it through [`message_error`].

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

/// What tonic's text of a large message begins with; sizes in bytes follow: `found 20 bytes, the limit is:
/// 10 bytes`.
const TOO_LARGE: &str = "Error, decoded message length too large: ";

/// What tonic's text begins with of a compressed message that would be too large: `size limit, of 10 bytes,
/// exceeded`.
const INFLATES: &str = "Error decompressing: size limit, ";

/// What tonic's texts of broken frames begin with. The others of INTERNAL are ours.
const BROKEN: [&str; 4] = [
    "protocol error: received message with ",
    "Unexpected EOF decoding stream",
    "Missing request message",
    "Error decompressing: ",
];

/// Gives an error of tonic about a message its code and reason; other errors stay as they are.
pub fn message_error(status: Status) -> Status {
    if !status.details().is_empty() {
        return status;
    }
    let text = status.message();
    let is_broken = || BROKEN.iter().any(|broken| text.starts_with(broken));
    match status.code() {
        Code::OutOfRange if text.starts_with(TOO_LARGE) => {
            let message = match numbers(text).as_slice() {
                [found, limit, ..] => format!("message has {found} bytes, at most {limit} are allowed"),
                _ => "message is larger than the server reads".to_owned(),
            };
            too_large(message)
        }
        Code::ResourceExhausted if text.starts_with(INFLATES) => too_large(match numbers(text).as_slice() {
            [limit, ..] => format!("message has more than {limit} bytes when it is decompressed"),
            [] => "message is larger than the server reads when it is decompressed".to_owned(),
        }),
        Code::Internal if is_broken() => {
            error::status(Code::InvalidArgument, ErrorReason::MalformedMessage, text, &[])
        }
        _ => status,
    }
}

fn numbers(text: &str) -> Vec<&str> {
    text.split(|character: char| !character.is_ascii_digit())
        .filter(|digits| !digits.is_empty())
        .collect()
}

fn too_large(message: String) -> Status {
    error::status(Code::OutOfRange, ErrorReason::MessageTooLarge, message, &[])
}

/// Answers a call whose message cannot be read with [`message_error`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageErrorLayer;

impl<S> Layer<S> for MessageErrorLayer {
    type Service = MessageErrorService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        MessageErrorService { inner }
    }
}

/// See [`MessageErrorLayer`].
#[derive(Clone, Debug)]
pub(crate) struct MessageErrorService<S> {
    inner: S,
}

impl<S> Service<Request<Body>> for MessageErrorService<S>
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
            // A response that is an error alone has its status among its headers.
            if !answer.headers().contains_key(Status::GRPC_STATUS) {
                return Ok(answer);
            }
            Ok(match Status::from_header_map(answer.headers()) {
                Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
                    message_error(status).into_http()
                }
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
            Status::internal(format!("{TOO_LARGE}found 2 bytes, the limit is: 1 bytes")),
        ] {
            let after = message_error(status.clone());
            assert_eq!((after.code(), after.message()), (status.code(), status.message()));
            assert_eq!(reason_of(&after), None);
        }
    }

    #[test]
    fn broken_frames_are_the_callers_fault() {
        for text in BROKEN {
            let after = message_error(Status::internal(format!("{text}and so on")));
            assert_eq!(after.code(), Code::InvalidArgument);
            assert_eq!(reason_of(&after), Some(ErrorReason::MalformedMessage));
        }
        let bomb = format!("{INFLATES}of 10 bytes, exceeded while decompressing message");
        let after = message_error(Status::resource_exhausted(bomb));
        assert_eq!(after.code(), Code::OutOfRange);
        assert_eq!(
            after.message(),
            "message has more than 10 bytes when it is decompressed"
        );
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
