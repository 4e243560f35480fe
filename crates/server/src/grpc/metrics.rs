//! Counts calls by method and code.
//!
//! The code of a call is in the trailers, behind the last message of its response, or in the head if there is no
//! message. If the response is dropped before, the call was cancelled.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::Either;
use http::{HeaderMap, Request};
use hyper::body::{Frame, SizeHint};
use oxtsdb_access::operation;
use oxtsdb_proto::error;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::metrics::{Protocol, RequestTimer, Requests};
use crate::middleware::{CallService, Middleware, ResponseFuture};

/// Methods that no service has, which clients can make up.
const OTHER: &str = "other";

/// `SERVICE/METHOD` of all methods with rights, and of health, which needs none.
static METHODS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let mut methods: HashSet<String> = operation::GRPC
        .iter()
        .map(|method| method.name.to_owned())
        .collect();
    let health = FileDescriptorSet::decode(tonic_health::pb::FILE_DESCRIPTOR_SET).unwrap_or_default();
    for file in health.file {
        for service in &file.service {
            let names = service.method.iter();
            methods.extend(
                names.map(|method| format!("{}.{}/{}", file.package(), service.name(), method.name())),
            );
        }
    }
    methods
});

/// The label of a method, by the path of its calls.
fn method(path: &str) -> &'static str {
    let name = path.strip_prefix('/').unwrap_or(path);
    METHODS.get(name).map_or(OTHER, String::as_str)
}

/// Counts calls.
#[derive(Clone, Debug)]
pub(super) struct CallMetrics {
    pub(super) requests: Requests,
}

impl Middleware for CallMetrics {
    fn call<S>(&self, inner: &mut S, request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let mut timer = self.requests.begin(Protocol::Grpc, method(request.uri().path()));
        let requests = self.requests.clone();
        let info = request.extensions().get::<TcpConnectInfo>();
        let peer = info.and_then(TcpConnectInfo::remote_addr);
        let record = timer.record(Some(request.headers()), peer);
        let response = match &record {
            None => Either::Left(inner.call(request)),
            Some(record) => {
                let request = request.map(|body| Body::new(record.received(body)));
                Either::Right(record.scope(record.enter(|| inner.call(request))))
            }
        };
        Box::pin(async move {
            let mut response = response.await?;
            if let Some(record) = &record {
                record.add_id(response.headers_mut());
                response = response.map(|body| Body::new(record.sent(body)));
            }
            let code = code_of(response.headers());
            if let Some(code) = code {
                count_reason(&requests, code, response.headers());
                timer.set_code(code);
            }
            Ok(response.map(|body| {
                Body::new(CountedBody {
                    body,
                    timer: Some(timer),
                    has_code: code.is_some(),
                    requests,
                })
            }))
        })
    }
}

/// The code in a head or in trailers.
fn code_of(headers: &HeaderMap) -> Option<&'static str> {
    let status = headers.get("grpc-status")?;
    Some(name_of(Code::from_bytes(status.as_bytes())))
}

/// Counts the reason of an error of the contract, and the setting that has the limit.
fn count_reason(requests: &Requests, code: &'static str, headers: &HeaderMap) {
    if code == name_of(Code::Ok) {
        return;
    }
    let Some(status) = Status::from_header_map(headers) else {
        return;
    };
    let Some(reason) = error::reason_of(&status) else {
        return;
    };
    let info = status.get_details_error_info();
    let setting = info.and_then(|mut info| info.metadata.remove("setting"));
    requests.count_error(error::reason_name(reason), setting.unwrap_or_default());
}

/// The name of a code in the specification.
const fn name_of(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// A response body that ends its call when it ends.
struct CountedBody {
    body: Body,
    timer: Option<RequestTimer>,
    /// Whether the head had the code.
    has_code: bool,
    requests: Requests,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Poll::Ready(ready) = &polled else {
            return polled;
        };
        let code = match ready {
            Some(Ok(frame)) => frame.trailers_ref().and_then(|trailers| {
                let code = code_of(trailers)?;
                count_reason(&self.requests, code, trailers);
                Some(code)
            }),
            Some(Err(status)) => Some(name_of(status.code())),
            // gRPC has no response without a code.
            None if !self.has_code => Some(name_of(Code::Unknown)),
            None => None,
        };
        let ends = code.is_some() || ready.is_none();
        if ends && let Some(mut timer) = self.timer.take() {
            if let Some(code) = code {
                timer.set_code(code);
            }
            drop(timer);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use http_body_util::BodyExt as _;
    use tower::{Layer as _, Service as _};

    use super::*;
    use crate::metrics::Metrics;
    use crate::middleware::MiddlewareLayer;

    /// The lines of counters after a call that gets a response.
    async fn counted(path: &str, response: Response<Body>, reads: bool) -> Vec<String> {
        let metrics = Metrics::default();
        let response = std::sync::Arc::new(std::sync::Mutex::new(Some(response)));
        let service = tower::service_fn(move |_request: Request<Body>| {
            let response = response.lock().unwrap().take().unwrap();
            async move { Ok::<_, std::convert::Infallible>(response) }
        });
        let layer = MiddlewareLayer(CallMetrics {
            requests: metrics.requests().clone(),
        });
        let request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let response = layer.layer(service).call(request).await.unwrap();
        let running = "oxtsdb_requests_in_flight{protocol=\"grpc\"";
        let text = metrics.encode().unwrap();
        let is_running = |line: &str| line.starts_with(running) && line.ends_with(" 1");
        // A response without a message has ended.
        let ended = hyper::body::Body::is_end_stream(response.body());
        assert_ne!(text.lines().any(is_running), ended, "{text}");
        if reads {
            let _ = response.into_body().collect().await;
        } else {
            drop(response);
        }
        let text = metrics.encode().unwrap();
        let lines = text.lines();
        lines
            .filter(|line| line.starts_with("oxtsdb_requests_total") || line.starts_with(running))
            .map(str::to_owned)
            .collect()
    }

    fn with_trailers(status: &'static str) -> Response<Body> {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        let frames: [Result<Frame<Bytes>, Status>; 2] = [
            Ok(Frame::data(Bytes::from_static(b"message"))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
        Response::new(Body::new(body))
    }

    #[tokio::test]
    async fn codes_are_those_of_trailers_of_the_head_or_of_errors() {
        let write = "oxtsdb.data.v1.DataService/Write";
        let lines = |method: &str, code: &str| {
            vec![
                format!("oxtsdb_requests_total{{protocol=\"grpc\",method=\"{method}\",code=\"{code}\"}} 1"),
                format!("oxtsdb_requests_in_flight{{protocol=\"grpc\",method=\"{method}\"}} 0"),
            ]
        };
        let path = format!("/{write}");
        assert_eq!(counted(&path, with_trailers("0"), true).await, lines(write, "OK"));
        assert_eq!(
            counted(&path, with_trailers("14"), true).await,
            lines(write, "UNAVAILABLE")
        );
        let in_head = Status::invalid_argument("no").into_http();
        assert_eq!(
            counted(&path, in_head, false).await,
            lines(write, "INVALID_ARGUMENT")
        );
        assert_eq!(
            counted(&path, with_trailers("0"), false).await,
            lines(write, "CANCELLED"),
            "the client did not read the response"
        );
        assert_eq!(
            counted("/made.up/Name", with_trailers("12"), true).await,
            lines("other", "UNIMPLEMENTED")
        );
    }

    #[test]
    fn methods_are_those_of_the_contract_and_of_health_and_reflection() {
        for known in [
            "/oxtsdb.uid.v1.UidService/GetUidUsage",
            "/grpc.health.v1.Health/Check",
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ] {
            assert_eq!(method(known), &known[1..]);
        }
        assert_eq!(method("/oxtsdb.uid.v1.UidService/GetUidUsage/"), OTHER);
        assert_eq!(method(""), OTHER);
        assert!((50..500).contains(&METHODS.len()), "{}", METHODS.len());
    }
}
