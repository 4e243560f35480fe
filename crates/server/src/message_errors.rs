//! Rich errors for messages and calls that tonic rejects.
//!
//! tonic rejects a message above the size limit with OUT_OF_RANGE and a text, and one with a malformed frame
//! with INTERNAL, as if the server had failed. [`MessageErrors`] replaces both by errors with a reason, for
//! calls that never reached their handler. Handlers of streams receive tonic's error from the stream and
//! convert it with [`message_error`]. A call that no service of the listener has is UNIMPLEMENTED without a message;
//! [`MessageErrors`] says which listener serves it.

use std::sync::Arc;

use http::Request;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::middleware::{CallService, Middleware, ResponseFuture};

/// The prefix of tonic's text for a large message; sizes in bytes follow: `found 20 bytes, the limit is:
/// 10 bytes`.
const TOO_LARGE: &str = "Error, decoded message length too large: ";

/// The prefix of tonic's text for a compressed message that is too large: `size limit, of 10 bytes,
/// exceeded`.
const INFLATES: &str = "Error decompressing: size limit, ";

/// The prefixes of tonic's texts for malformed frames. Other INTERNAL errors are not tonic's.
const BROKEN: [&str; 4] = [
    "protocol error: received message with ",
    "Unexpected EOF decoding stream",
    "Missing request message",
    "Error decompressing: ",
];

/// Converts tonic's errors about messages to their code and reason; returns other errors unchanged.
pub fn message_error(status: Status) -> Status {
    if !status.details().is_empty() {
        return status;
    }
    let text = status.message();
    let is_broken = || BROKEN.iter().any(|broken| text.starts_with(broken));
    match status.code() {
        Code::OutOfRange if text.starts_with(TOO_LARGE) => match numbers(text).as_slice() {
            [size, limit, ..] => {
                let message = format!("message has {size} bytes, at most {limit} are allowed");
                too_large(message, &[("limit", limit)])
            }
            _ => too_large("message is larger than the server accepts".to_owned(), &[]),
        },
        Code::ResourceExhausted if text.starts_with(INFLATES) => match numbers(text).as_slice() {
            [limit, ..] => {
                let message = format!("message has more than {limit} bytes when it is decompressed");
                too_large(message, &[("limit", limit)])
            }
            [] => {
                let message = "message is larger than the server accepts when it is decompressed";
                too_large(message.to_owned(), &[])
            }
        },
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

fn too_large(message: String, metadata: &[(&str, &str)]) -> Status {
    let reason = ErrorReason::MessageTooLarge;
    error::status(Code::ResourceExhausted, reason, message, metadata)
}

/// The error of a call that the listener does not serve. `path` is the path of the request.
fn unserved(path: &str, services: &[&str]) -> Status {
    let call = path.strip_prefix('/').unwrap_or(path);
    let (service, method) = call.split_once('/').unwrap_or((call, ""));
    let flag = [("oxtsdb.data.", "--data-listen"), ("oxtsdb.uid.", "--uid-listen")];
    let flag = flag.iter().find(|(package, _)| service.starts_with(package));
    let message = match flag {
        _ if services.contains(&service) => format!("service `{service}` has no method `{method}`"),
        Some((_, flag)) => {
            format!("this listener does not serve `{service}`, which is served at the address of {flag}")
        }
        None => format!("this listener serves no `{service}`"),
    };
    Status::unimplemented(message)
}

/// Applies [`message_error`] to calls with a message that never reached a handler, and describes calls that no service
/// of the listener has.
#[derive(Clone, Debug)]
pub(crate) struct MessageErrors {
    /// The services of the listener.
    pub(crate) services: Arc<[&'static str]>,
}

impl Middleware for MessageErrors {
    fn call<S>(&self, inner: &mut S, request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let (path, services) = (request.uri().path().to_owned(), Arc::clone(&self.services));
        let response = inner.call(request);
        Box::pin(async move {
            let response = response.await?;
            // A response that is only an error has its status in the headers.
            if !response.headers().contains_key(Status::GRPC_STATUS) {
                return Ok(response);
            }
            Ok(match Status::from_header_map(response.headers()) {
                Some(status) if status.code() == Code::Unimplemented && status.message().is_empty() => {
                    unserved(&path, &services).into_http()
                }
                Some(status) if status.code() != Code::Ok && status.details().is_empty() => {
                    message_error(status).into_http()
                }
                Some(_) | None => response,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use oxtsdb_proto::data::v1::WriteRequest;
    use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
    use oxtsdb_proto::error::reason_of;
    use tokio::net::TcpListener;
    use tonic::transport::Endpoint;
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;

    use super::*;
    use crate::{GrpcOptions, GrpcServer, Shutdown};

    #[test]
    fn keeps_other_errors() {
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
    fn malformed_frames_are_invalid_arguments() {
        for text in BROKEN {
            let after = message_error(Status::internal(format!("{text}and so on")));
            assert_eq!(after.code(), Code::InvalidArgument);
            assert_eq!(reason_of(&after), Some(ErrorReason::MalformedMessage));
        }
        let bomb = format!("{INFLATES}of 10 bytes, exceeded while decompressing message");
        let after = message_error(Status::resource_exhausted(bomb));
        assert_eq!(after.code(), Code::ResourceExhausted);
        assert_eq!(reason_of(&after), Some(ErrorReason::MessageTooLarge));
        assert_eq!(
            after.message(),
            "message has more than 10 bytes when it is decompressed"
        );
    }

    #[test]
    fn unserved_calls_name_the_listener_that_serves_them() {
        let data = "oxtsdb.data.v1.DataService";
        for (path, expected) in [
            (
                "/oxtsdb.uid.v1.UidService/LookupUids",
                "this listener does not serve `oxtsdb.uid.v1.UidService`, which is served at the address of --uid-listen",
            ),
            (
                "/oxtsdb.data.v1.DataAdminService/Fsck",
                "this listener does not serve `oxtsdb.data.v1.DataAdminService`, which is served at the address of \
                 --data-listen",
            ),
            (
                "/oxtsdb.data.v1.DataService/Wrote",
                "service `oxtsdb.data.v1.DataService` has no method `Wrote`",
            ),
            ("/x.Y/Z", "this listener serves no `x.Y`"),
            ("/", "this listener serves no ``"),
        ] {
            assert_eq!(unserved(path, &[data]).message(), expected);
        }
    }

    #[tokio::test]
    async fn oversized_messages_report_size_and_limit() {
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
        // A unary response, and a stream that never begins.
        let unary = client.check(request.clone()).await.unwrap_err();
        let stream = client.watch(request).await.unwrap_err();
        for status in [unary, stream] {
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert_eq!(
                reason_of(&status),
                Some(ErrorReason::MessageTooLarge),
                "{status:?}"
            );
            assert_eq!(
                status.message(),
                "message has 5242885 bytes, at most 4096 are allowed"
            );
        }
        let known = client.check(HealthCheckRequest::default()).await;
        assert!(known.is_ok(), "other calls are unaffected: {known:?}");
        let elsewhere = DataServiceClient::new(endpoint.connect().await.unwrap());
        let status = { elsewhere }.write(WriteRequest::default()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("--data-listen"), "{status:?}");
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
