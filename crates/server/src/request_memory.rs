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
//! The codec reserves the decoded form of a single request, decompressed and element by element. Messages of
//! a stream are decoded where its handler pulls them: their decoded form is estimated, and handlers
//! reserve what they derive from it. Small requests are not charged, so that health checks and the list of
//! queries work when memory is exhausted.

use std::collections::HashSet;
use std::future;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::decode_memory::{self, Meter};
use oxtsdb_proto::error;
use oxtsdb_resources::memory::LIMIT_SETTING;
use oxtsdb_resources::{MemoryAccount, MemoryError, MemoryPool, Reservation};
use parking_lot::Mutex;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Service;

use crate::middleware::{Middleware, ResponseFuture};

/// How long a request waits for memory.
const WAIT_LIMIT: Duration = Duration::from_secs(1);

/// The charge of a byte of a stream: itself, and four for the decoded form, which suits columns; the codec
/// bounds messages that need more.
const STREAM_FACTOR: u64 = 5;

/// The charge of a compressed byte. Points compress to an eighth.
const COMPRESSED_FACTOR: u64 = 8 * STREAM_FACTOR;

/// Bytes of a single request that are not charged, on the wire and decoded.
const FREE_BYTES: u64 = 1024;
const FREE_DECODED_BYTES: u64 = 8 << 10;

/// Bytes before each message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

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

/// The pool of a call.
fn pool_of<'a>(account: &'a MemoryAccount, path: &str) -> &'a MemoryPool {
    let method = path.rsplit('/').next().unwrap_or_default();
    if INGEST_METHODS.iter().any(|start| method.starts_with(start)) {
        account.ingest()
    } else {
        account.query()
    }
}

/// Reserves the memory of requests; see the module.
#[derive(Clone, Debug)]
pub(crate) struct RequestMemory {
    /// `None`: requests are not counted.
    pub(crate) account: Option<MemoryAccount>,
}

impl Middleware for RequestMemory {
    fn call<S>(&self, inner: &mut S, request: Request<Body>) -> ResponseFuture<S::Error>
    where
        S: Service<Request<Body>, Response = Response<Body>>,
        S::Future: Send + 'static,
        S::Error: Send,
    {
        let Some(account) = &self.account else {
            return Box::pin(inner.call(request));
        };
        let pool = pool_of(account, request.uri().path());
        let is_single = SINGLE_REQUESTS.contains(request.uri().path());
        let charge = Arc::new(Mutex::new(pool.empty_reservation()));
        let held = is_single.then(|| Arc::clone(&charge));
        let pool = pool.clone();
        let request = request.map(|body| Body::new(Charged::new(body, pool, charge, is_single)));
        let response = inner.call(request);
        let Some(held) = held else {
            return Box::pin(response);
        };
        Box::pin(async move {
            let meter: Arc<dyn Meter> = Arc::new(Decoded(held));
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

type Waiting = Pin<Box<dyn Future<Output = Result<Reservation, MemoryError>> + Send>>;

/// The body of a request, which reserves memory as it arrives.
struct Charged {
    body: Body,
    pool: MemoryPool,
    charge: Arc<Mutex<Reservation>>,
    is_single: bool,
    /// What is left of the bytes that are not charged.
    free_bytes: u64,
    framing: Framing,
    /// A frame that has arrived and waits for memory.
    waiting: Option<(Frame<Bytes>, Waiting)>,
}

impl Charged {
    fn new(body: Body, pool: MemoryPool, charge: Arc<Mutex<Reservation>>, is_single: bool) -> Self {
        Self {
            body,
            pool,
            charge,
            is_single,
            free_bytes: FREE_BYTES,
            framing: Framing::new(is_single),
            waiting: None,
        }
    }

    /// Reserves memory for bytes that have arrived, or starts to wait for it.
    fn charge(&mut self, frame: Frame<Bytes>) -> Result<Option<Frame<Bytes>>, MemoryError> {
        let Some(data) = frame.data_ref() else {
            return Ok(Some(frame));
        };
        let mut charge = self.framing.advance(data);
        let free_bytes = if self.is_single { FREE_BYTES } else { 0 };
        // A message that exceeds the pool can never be admitted: neither waiting nor a retry helps.
        self.pool
            .check_fits(self.framing.message_charge().saturating_sub(free_bytes))?;
        if self.is_single {
            let free = charge.min(self.free_bytes);
            self.free_bytes -= free;
            charge -= free;
        }
        if charge == 0 || self.charge.lock().try_grow(charge).is_ok() {
            return Ok(Some(frame));
        }
        let pool = self.pool.clone();
        let waiting = async move { pool.reserve(charge, WAIT_LIMIT).await };
        self.waiting = Some((frame, Box::pin(waiting)));
        Ok(None)
    }
}

impl HttpBody for Charged {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some((_, waiting)) = &mut this.waiting {
            let reserved = ready!(waiting.as_mut().poll(cx));
            let frame = this.waiting.take().map(|(frame, _)| frame);
            return Poll::Ready(match reserved {
                Ok(reserved) => {
                    this.charge.lock().merge(reserved);
                    frame.map(Ok)
                }
                Err(error) => Some(Err(no_memory(&error))),
            });
        }
        if !this.is_single {
            // The handler has pulled all messages that are whole.
            this.charge.lock().shrink_to(this.framing.unfinished_charge);
        }
        match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
            Some(Ok(frame)) => match this.charge(frame) {
                Ok(Some(frame)) => Poll::Ready(Some(Ok(frame))),
                Ok(None) => self.poll_frame(cx),
                Err(error) => Poll::Ready(Some(Err(no_memory(&error)))),
            },
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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

/// The position in gRPC's framing of messages.
#[derive(Debug)]
struct Framing {
    /// The charge of a byte, plain and compressed.
    factors: [u64; 2],
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have arrived.
    header_bytes: usize,
    /// Bytes of the message that have not arrived.
    missing: u64,
    /// The charge of the incomplete message so far.
    unfinished_charge: u64,
}

impl Framing {
    fn new(is_single: bool) -> Self {
        Self {
            factors: if is_single {
                [1, 1]
            } else {
                [STREAM_FACTOR, COMPRESSED_FACTOR]
            },
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            missing: 0,
            unfinished_charge: 0,
        }
    }

    /// The charge of a byte of the message.
    const fn factor(&self) -> u64 {
        let ([plain, compressed], [is_compressed, ..]) = (self.factors, self.header);
        if is_compressed == 0 { plain } else { compressed }
    }

    /// The charge of the incomplete message once it is complete.
    const fn message_charge(&self) -> u64 {
        self.unfinished_charge + self.missing * self.factor()
    }

    /// The charge of these bytes.
    fn advance(&mut self, mut bytes: &[u8]) -> u64 {
        let mut charge = 0;
        while !bytes.is_empty() {
            if self.header_bytes < HEADER_BYTES {
                let (header, rest) = bytes.split_at(bytes.len().min(HEADER_BYTES - self.header_bytes));
                for byte in header {
                    if let Some(place) = self.header.get_mut(self.header_bytes) {
                        *place = *byte;
                    }
                    self.header_bytes += 1;
                }
                bytes = rest;
                let [_, length @ ..] = self.header;
                self.missing = u32::from_be_bytes(length).into();
            } else {
                let arrived = u64::try_from(bytes.len()).unwrap_or(u64::MAX).min(self.missing);
                let (_, rest) = bytes.split_at(usize::try_from(arrived).unwrap_or(bytes.len()));
                bytes = rest;
                self.missing -= arrived;
                let factor = self.factor();
                charge += arrived * factor;
                self.unfinished_charge += arrived * factor;
            }
            if self.header_bytes == HEADER_BYTES && self.missing == 0 {
                self.header_bytes = 0;
                self.unfinished_charge = 0;
            }
        }
        charge
    }
}

#[cfg(test)]
mod tests;
