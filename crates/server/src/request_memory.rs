//! Memory of gRPC requests, from their first byte on.
//!
//! A thousand streams with 15.9 of 16 MiB each hold 16 GiB before a handler sees any of it.
//! [`RequestMemoryLayer`] takes what has arrived from the pool of writes or of queries: a request that finds
//! the pool full waits for a moment, which holds its client up through HTTP/2's windows, and is then
//! rejected.
//!
//! ```text
//!   one request    |==message==| decoded form |      held until the response is made
//!   a stream       |==message 1==|==message 2==|...  message 1 is released when the handler
//!                                                    pulls message 2
//! ```
//!
//! The decoded form of a single request is counted by the codec, decompressed and element by element. The
//! messages of a stream are decoded wherever its handler pulls them; for these the decoded form is
//! estimated, and what the handler makes of them is for the handler to count. Small requests are free: the
//! health of a server without memory, and its queries, have to be known.

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
use tower::{Layer, Service};

/// How long a request waits for memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a byte of a stream is charged with: itself, and four for the decoded form. Columns take about so
/// much; the codec bounds what takes more.
const STREAM_FACTOR: u64 = 5;

/// The same of a compressed message. Points compress to an eighth.
const COMPRESSED_FACTOR: u64 = 8 * STREAM_FACTOR;

/// Bytes of a single request that are not charged, on the wire and decoded.
const FREE_BYTES: u64 = 1024;
const FREE_DECODED_BYTES: u64 = 8 << 10;

/// Bytes before each message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// The paths of calls that take one message. Others may take many.
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

/// Methods that write, and those that writing waits for, by the beginnings of their names. They share no
/// memory with the others, which cannot starve them.
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

/// Takes the memory of requests from an account; see the module.
#[derive(Clone, Debug)]
pub(crate) struct RequestMemoryLayer {
    account: Option<MemoryAccount>,
}

impl RequestMemoryLayer {
    /// `None`: requests are not counted.
    pub(crate) fn new(account: Option<MemoryAccount>) -> Self {
        Self { account }
    }
}

impl<S> Layer<S> for RequestMemoryLayer {
    type Service = RequestMemoryService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RequestMemoryService {
            inner,
            account: self.account.clone(),
        }
    }
}

/// See [`RequestMemoryLayer`].
#[derive(Clone, Debug)]
pub(crate) struct RequestMemoryService<S> {
    inner: S,
    account: Option<MemoryAccount>,
}

impl<S> Service<Request<Body>> for RequestMemoryService<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(account) = &self.account else {
            return Box::pin(self.inner.call(request));
        };
        let pool = pool_of(account, request.uri().path());
        let is_single = SINGLE_REQUESTS.contains(request.uri().path());
        let charge = Arc::new(Mutex::new(pool.empty_reservation()));
        let held = is_single.then(|| Arc::clone(&charge));
        let pool = pool.clone();
        let request = request.map(|body| Body::new(Charged::new(body, pool, charge, is_single)));
        let response = self.inner.call(request);
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

/// Takes the decoded form of a request.
struct Decoded(Arc<Mutex<Reservation>>);

impl Meter for Decoded {
    fn take(&self, bytes: u64) -> Result<(), Status> {
        let bytes = bytes.saturating_sub(FREE_DECODED_BYTES);
        let grown = self.0.lock().try_grow(bytes);
        grown.map_err(|error| no_memory(&error))
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<Reservation, MemoryError>> + Send>>;

/// The body of a request, which takes memory as it arrives.
struct Charged {
    body: Body,
    pool: MemoryPool,
    charge: Arc<Mutex<Reservation>>,
    is_single: bool,
    /// What was received but for small requests.
    free_bytes: u64,
    framing: Framing,
    /// What has arrived and waits for memory.
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

    /// Takes memory for bytes that have arrived, or begins to wait for it.
    fn charge(&mut self, frame: Frame<Bytes>) -> Result<Option<Frame<Bytes>>, MemoryError> {
        let Some(data) = frame.data_ref() else {
            return Ok(Some(frame));
        };
        let mut wanted = self.framing.advance(data);
        let free_bytes = if self.is_single { FREE_BYTES } else { 0 };
        // Waiting for what never fits would be in vain, and so would be its retry.
        self.pool
            .check_fits(self.framing.message_charge().saturating_sub(free_bytes))?;
        if self.is_single {
            let free = wanted.min(self.free_bytes);
            self.free_bytes -= free;
            wanted -= free;
        }
        if wanted == 0 || self.charge.lock().try_grow(wanted).is_ok() {
            return Ok(Some(frame));
        }
        let pool = self.pool.clone();
        let waiting = async move { pool.reserve(wanted, PATIENCE).await };
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

/// The status of a request that gets no memory: one that never fits is too large, others may come again.
fn no_memory(error: &MemoryError) -> Status {
    let limit = format!("{} MiB", error.limit >> 20);
    let (code, reason, message) = if error.is_final() {
        let message = format!("message is too large: {error}");
        (Code::OutOfRange, ErrorReason::MessageTooLarge, message)
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

/// Where messages begin and end in the bytes of a request, as gRPC frames them.
#[derive(Debug)]
struct Framing {
    /// What a byte is charged with, plain and compressed.
    factors: [u64; 2],
    header: [u8; HEADER_BYTES],
    /// Bytes of the header that have arrived.
    header_bytes: usize,
    /// Bytes of the message that have not.
    missing: u64,
    /// What the message that has not arrived as a whole is charged with.
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

    /// What a byte of the message is charged with.
    const fn factor(&self) -> u64 {
        let ([plain, compressed], [is_compressed, ..]) = (self.factors, self.header);
        if is_compressed == 0 { plain } else { compressed }
    }

    /// What the message that has not arrived as a whole will be charged with when it has.
    const fn message_charge(&self) -> u64 {
        self.unfinished_charge + self.missing * self.factor()
    }

    /// What these bytes are charged with.
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
