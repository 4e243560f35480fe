//! Memory of gRPC requests, reserved as their bytes arrive.
//!
//! A thousand streams that have received 15.9 of 16 MiB each hold 16 GiB before a handler sees any message.
//! [`RequestMemory`] reserves received bytes in the pool of writes or of queries. If the pool is full, the
//! request waits for a second, with back-pressure on its client through HTTP/2's windows, and is then rejected.
//!
//! ```text
//!   one request    |==message==| decoded form |      held until the response is complete
//!   a stream       |==message 1==|==message 2==|...  message 1 is released when the handler
//!                                                    pulls message 2
//! ```
//!
//! tonic's decoder reserves the announced length of a message when it sees the message's header. It therefore gets
//! the header together with the complete message, and a message that is announced with more bytes than its service
//! takes is rejected at once. The handler of a single request begins when the request is complete.
//!
//! The codec reserves the decoded form of a single request, decompressed and element by element. Messages of
//! a stream are decoded where its handler pulls them: their decoded form is estimated, and handlers
//! reserve the memory that they derive from it. Small requests are not charged, so that health checks and the list of
//! queries work when memory is exhausted; the limit of calls bounds them ([`calls`](crate::grpc)).

mod framing;
mod messages;

use std::collections::{HashMap, HashSet};
use std::future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};

use http::Request;
use oxtsdb_access::Identity;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::decode_memory::{self, Meter};
use oxtsdb_proto::error;
use oxtsdb_resources::memory::LIMIT_SETTING;
use oxtsdb_resources::{ClientId, MemoryAccount, MemoryError, MemoryPool, Reservation};
use parking_lot::Mutex;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::transport::server::TcpConnectInfo;
use tonic::{Code, Status};

use self::messages::Messages;
use crate::middleware::{CallService, Middleware, ResponseFuture, replace_by_clone};

/// Bytes of the decoded form of a single request that are not charged.
const FREE_DECODED_BYTES: u64 = 8 << 10;

/// The paths of calls with a single request message.
static SINGLE_REQUESTS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let sets = [
        oxtsdb_proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
    ];
    let mut paths = HashSet::new();
    for set in sets
        .into_iter()
        .filter_map(|set| FileDescriptorSet::decode(set).ok())
    {
        for file in &set.file {
            for service in &file.service {
                let methods = service.method.iter().filter(|method| !method.client_streaming());
                paths.extend(
                    methods.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())),
                );
            }
        }
    }
    paths
});

/// Prefixes of methods that write, or that writes wait for. They reserve in the ingest pool, so that other
/// methods cannot starve them.
const INGEST_METHODS: [&str; 2] = ["Write", "GetOrCreate"];

/// OpenTelemetry's method that writes. Methods of other services with this beginning read.
const EXPORT: &str = "Export";

/// The pool of a call.
fn pool_of<'a>(account: &'a MemoryAccount, path: &str) -> &'a MemoryPool {
    let method = path.rsplit('/').next().unwrap_or_default();
    if method == EXPORT || INGEST_METHODS.iter().any(|start| method.starts_with(start)) {
        account.ingest()
    } else {
        account.query()
    }
}

fn client_of(request: &Request<Body>) -> ClientId {
    let info = request.extensions().get::<TcpConnectInfo>();
    let peer = info.and_then(TcpConnectInfo::remote_addr);
    let address = peer.map_or(ClientId::Local, ClientId::from_peer);
    let identity = request.extensions().get::<Identity>();
    identity.map_or(address, |identity| identity.client(address))
}

/// The most bytes of a message, by service.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageLimits(Arc<HashMap<&'static str, usize>>);

/// The limit of services without their own: health, reflection, and unknown services. They take names, and callers need
/// no rights for some of them.
const OTHER_MESSAGE_BYTES: usize = 4 << 10;

impl MessageLimits {
    pub(crate) fn new(limits: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        Self(Arc::new(limits.into_iter().collect()))
    }

    /// Of a call's path, `/service/method`.
    fn for_path(&self, path: &str) -> u64 {
        let service = path.strip_prefix('/').and_then(|path| path.rsplit_once('/'));
        let limit = service.and_then(|(service, _)| self.0.get(service));
        u64::try_from(*limit.unwrap_or(&OTHER_MESSAGE_BYTES)).unwrap_or(u64::MAX)
    }
}

/// Reserves the memory of requests; see the module.
#[derive(Clone, Debug)]
pub(crate) struct RequestMemory {
    pub(crate) account: MemoryAccount,
    pub(crate) limits: MessageLimits,
}

impl Middleware for RequestMemory {
    fn call<S>(&self, inner: &mut S, request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: CallService,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let path = request.uri().path();
        let pool = pool_of(&self.account, path).for_client(client_of(&request));
        let is_single = SINGLE_REQUESTS.contains(path);
        let limit = self.limits.for_path(path);
        let charge = Arc::new(Mutex::new(pool.empty_reservation()));
        let (head, body) = request.into_parts();
        let mut messages = Messages::new(body, pool, Arc::clone(&charge), is_single, limit);
        if !is_single {
            return Box::pin(inner.call(Request::from_parts(head, Body::new(messages))));
        }
        // The service that is ready.
        let mut inner = replace_by_clone(inner);
        Box::pin(async move {
            future::poll_fn(|cx| messages.poll_message(cx)).await;
            let response = inner.call(Request::from_parts(head, Body::new(messages)));
            let meter: Arc<dyn Meter> = Arc::new(Decoded(charge));
            let mut response = pin!(response);
            future::poll_fn(|cx| decode_memory::metered(&meter, || response.as_mut().poll(cx))).await
        })
    }
}

/// Reserves the decoded form of a request.
struct Decoded(Arc<Mutex<Reservation>>);

impl Meter for Decoded {
    fn take(&self, bytes: u64) -> Result<(), Status> {
        let bytes = bytes.saturating_sub(FREE_DECODED_BYTES);
        let grown = self.0.lock().try_grow(bytes);
        grown.map_err(|error| no_memory(&error))
    }
}

/// The status of a rejected request: too large if it exceeds the pool, else overloaded, which is transient.
fn no_memory(error: &MemoryError) -> Status {
    let limit = format!("{} MiB", error.limit >> 20);
    let (code, reason, message) = if error.is_final() {
        let message = format!("message is too large: {error}");
        (Code::ResourceExhausted, ErrorReason::MessageTooLarge, message)
    } else {
        (Code::Unavailable, ErrorReason::Overloaded, error.to_string())
    };
    let metadata = [
        ("pool", error.pool),
        ("limit", limit.as_str()),
        ("setting", LIMIT_SETTING),
    ];
    error::status(code, reason, message, &metadata)
}

#[cfg(test)]
mod tests;
