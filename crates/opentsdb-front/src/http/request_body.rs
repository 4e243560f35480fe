//! Bodies of requests: read to the end, decompressed, never larger than allowed.
//!
//! A body is charged to a pool of the memory account as it arrives and as it unfolds, and to nothing before:
//! a client that sends slowly takes the memory of the bytes sent. The limit of a body is on the decompressed size, and
//! is checked while decompressing: a small body that unfolds to gigabytes costs the limit and no more.
//!
//! A body must arrive at [`WINDOW_BYTES`] in each [`WINDOW`], and the whole within [`BODY_TIMEOUT`].

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderMap};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use oxtsdb_resources::{ComputePool, MemoryError, MemoryPool, Reservation};
use tokio::time::{Instant, timeout_at};

use self::decompress::{Decompression, Format, Progress};
use crate::http::error::HttpError;

mod decompress;

/// Bytes of a body that must arrive in each window, unless the body ends.
const WINDOW_BYTES: usize = 64 << 10;
const WINDOW: Duration = Duration::from_secs(30);

/// How long all of a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the body of a write waits for memory: its sender has more points, and sends the request again.
pub(crate) const WRITE_MEMORY_WAIT: Duration = Duration::from_secs(1);

/// The first allocation for a body that arrives in several frames.
const FIRST_BYTES: usize = 8 << 10;

/// The limits of bodies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits<'a> {
    /// Bytes of a body, decompressed.
    pub(crate) max_bytes: usize,
    /// The pool that it is charged to.
    pub(crate) pool: &'a MemoryPool,
    /// How long it waits for memory of the pool.
    pub(crate) wait: Duration,
    /// Where a large one is decompressed.
    pub(crate) compute: &'a ComputePool,
}

/// The body of a request, with its memory.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// Decompressed.
    pub(crate) bytes: Bytes,
    memory: Reservation,
    /// How long it waits for more memory.
    wait: Duration,
}

impl RequestBody {
    /// No body.
    pub(crate) fn empty(pool: &MemoryPool) -> Self {
        Self::charged_before(Bytes::new(), pool)
    }

    /// The message of a gRPC call; the gRPC server has charged the bytes of the message.
    pub(crate) fn charged_before(bytes: Bytes, pool: &MemoryPool) -> Self {
        Self {
            bytes,
            memory: pool.empty_reservation(),
            wait: WRITE_MEMORY_WAIT,
        }
    }

    /// The threads of a pool, for jobs of the client that sent the body.
    pub(crate) fn compute(&self, pool: &ComputePool) -> ComputePool {
        pool.for_client(self.memory.pool().client())
    }

    /// The body in another form of at most `most` bytes, in which it is charged afterwards: a small one is converted inline, others
    /// in the computation pool.
    ///
    /// # Errors
    ///
    /// Errors of [`Self::charge`] for `most`, and of `convert`.
    pub(crate) async fn converted(
        self,
        most: usize,
        pool: &ComputePool,
        convert: impl FnOnce(&Bytes) -> Result<Vec<u8>, HttpError> + Send + 'static,
    ) -> Result<Self, HttpError> {
        const INLINE_BYTES: usize = 256 << 10;
        let compute = self.compute(pool);
        let Self {
            bytes,
            mut memory,
            wait,
        } = self;
        charge(&mut memory, most, wait).await?;
        let converted = if most <= INLINE_BYTES {
            convert(&bytes)
        } else {
            compute.run(move || convert(&bytes)).await?
        };
        let converted = converted?;
        memory.shrink_to(converted.capacity() as u64);
        Ok(Self {
            bytes: converted.into(),
            memory,
            wait,
        })
    }

    /// Charges further `bytes`, for the form that the body is converted to.
    ///
    /// # Errors
    ///
    /// 503 when the pool is exhausted, 413 when the request needs more in all than the pool has.
    pub(crate) async fn charge(&mut self, bytes: usize) -> Result<(), HttpError> {
        charge(&mut self.memory, bytes, self.wait).await
    }
}

/// Reads and decompresses a body.
///
/// # Errors
///
/// 413 above the limit, 415 for an unknown compression, 400 for data that do not decompress or
/// a body that breaks off, 408 for one that is too slow, 503 when the memory pool is exhausted, 413 when it
/// is smaller than the body.
pub(crate) async fn read<B>(request: Request<B>, limits: BodyLimits<'_>) -> Result<RequestBody, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let encoding = encoding(request.headers())?;
    let body = read_plain(request.into_body(), limits).await?;
    let format = match encoding {
        Encoding::Identity => return Ok(body),
        // Some clients name the encoding of requests that have no body.
        _ if body.bytes.is_empty() => return Ok(body),
        Encoding::Snappy => return unpacked(body, limits).await,
        Encoding::Gzip => Format::Gzip,
        Encoding::Deflate if has_zlib_header(&body.bytes) => Format::Zlib,
        Encoding::Deflate => Format::Deflate,
    };
    decompressed(body, format, limits).await
}

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    /// zlib's format as in the standard, or the raw stream that some clients send.
    Deflate,
    /// The block format, as remote write has it.
    Snappy,
}

async fn read_plain<B>(mut body: B, limits: BodyLimits<'_>) -> Result<RequestBody, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let max_bytes = limits.max_bytes;
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    limits
        .pool
        .check_fits(body.size_hint().lower())
        .map_err(|error| no_memory(&error))?;
    let pool_bytes = usize::try_from(limits.pool.limit_bytes()).unwrap_or(usize::MAX);
    let announced = body
        .size_hint()
        .upper()
        .and_then(|bytes| usize::try_from(bytes).ok());
    let most = announced.unwrap_or(max_bytes).min(max_bytes).min(pool_bytes);
    let mut memory = limits.pool.empty_reservation();
    let mut rate = Rate::start();
    let mut first = Bytes::new();
    let mut joined = Vec::new();
    while let Some(frame) = rate.next_frame(&mut body).await? {
        let frame = frame.map_err(|error| {
            HttpError::bad_request("request body broke off").with_details(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if data.is_empty() {
            continue;
        }
        rate.received(data.len());
        let length = joined.len() + first.len() + data.len();
        if length > max_bytes {
            return Err(too_large(max_bytes));
        }
        if joined.is_empty() && first.is_empty() {
            charge(&mut memory, data.len(), limits.wait).await?;
            first = data;
            continue;
        }
        if length > joined.capacity() {
            // Never more than the declared length.
            let capacity = (2 * length).max(FIRST_BYTES).min(most.max(length));
            let charged = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
            charge(&mut memory, capacity.saturating_sub(charged), limits.wait).await?;
            joined.reserve_exact(capacity - joined.len());
        }
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    // A body of one piece is not copied.
    let bytes = if joined.is_empty() { first } else { joined.into() };
    Ok(RequestBody {
        bytes,
        memory,
        wait: limits.wait,
    })
}

/// Bytes of a body that are read although nothing uses them, so that the connection can be kept; and the time for them.
const SPARE_BYTES: u64 = 64 << 10;
const SPARE_TIME: Duration = Duration::from_secs(1);

/// Whether a body has been read to its end. Reads the rest if it is small, unless the client sends the body only after
/// a `100 Continue` (`Expect: 100-continue`).
pub(crate) async fn is_read<B>(mut body: B, expects_continue: bool) -> bool
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return true;
    }
    if expects_continue || body.size_hint().lower() > SPARE_BYTES {
        return false;
    }
    let read = async {
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame.map_or(u64::MAX, |frame| {
                frame.data_ref().map_or(0, |data| data.len() as u64)
            });
            if bytes > SPARE_BYTES {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(SPARE_TIME, read).await.unwrap_or(false)
}

/// How fast a body has to arrive.
struct Rate {
    ends: Instant,
    window_ends: Instant,
    window_bytes: usize,
}

impl Rate {
    fn start() -> Self {
        let now = Instant::now();
        Self {
            ends: now + BODY_TIMEOUT,
            window_ends: now + WINDOW,
            window_bytes: 0,
        }
    }

    fn received(&mut self, bytes: usize) {
        self.window_bytes += bytes;
    }

    /// The next frame, unless the body is too slow.
    async fn next_frame<B>(
        &mut self,
        body: &mut B,
    ) -> Result<Option<Result<hyper::body::Frame<Bytes>, B::Error>>, HttpError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        loop {
            let until = self.ends.min(self.window_ends);
            if let Ok(frame) = timeout_at(until, body.frame()).await {
                return Ok(frame);
            }
            if until == self.ends {
                let seconds = BODY_TIMEOUT.as_secs();
                return Err(too_slow(format!("request body took more than {seconds} seconds")));
            }
            if self.window_bytes < WINDOW_BYTES {
                return Err(too_slow(format!(
                    "request body is too slow: {} bytes in {} seconds, at least {WINDOW_BYTES} are expected",
                    self.window_bytes,
                    WINDOW.as_secs()
                )));
            }
            self.window_bytes = 0;
            self.window_ends = Instant::now() + WINDOW;
        }
    }
}

/// Unfolds a body: the beginning inline, the rest in the computation pool.
async fn decompressed(
    body: RequestBody,
    format: Format,
    limits: BodyLimits<'_>,
) -> Result<RequestBody, HttpError> {
    let RequestBody { bytes, memory, wait } = body;
    let mut decompression = Decompression::new(bytes, memory, format, limits.max_bytes);
    let mut progress = decompression.begin();
    loop {
        match progress {
            Progress::Done => {
                let (bytes, memory) = decompression.finish();
                return Ok(RequestBody { bytes, memory, wait });
            }
            Progress::TooLarge => return Err(too_large(limits.max_bytes)),
            Progress::Invalid(details) => {
                let message = format!("request body is no valid {} data", format.name());
                return Err(HttpError::bad_request(message).with_details(details));
            }
            Progress::NeedsMemory(bytes) => charge(decompression.memory(), bytes, wait).await?,
            Progress::Large => {}
        }
        let job = move || {
            let progress = decompression.resume();
            (decompression, progress)
        };
        (decompression, progress) = limits.compute.run(job).await?;
    }
}

/// Unfolds a body in Snappy's block format, which begins with its length.
async fn unpacked(body: RequestBody, limits: BodyLimits<'_>) -> Result<RequestBody, HttpError> {
    let invalid = |error: snap::Error| {
        HttpError::bad_request("request body is no valid snappy data").with_details(error.to_string())
    };
    let length = snap::raw::decompress_len(&body.bytes).map_err(invalid)?;
    if length > limits.max_bytes {
        return Err(too_large(limits.max_bytes));
    }
    let unpack = move |bytes: &Bytes| snap::raw::Decoder::new().decompress_vec(bytes).map_err(invalid);
    body.converted(length, limits.compute, unpack).await
}

/// Charges further `bytes`; waits for them.
async fn charge(memory: &mut Reservation, bytes: usize, wait: Duration) -> Result<(), HttpError> {
    memory
        .grow(bytes as u64, wait)
        .await
        .map_err(|error| no_memory(&error))
}

/// A request that the memory pool has no space for; it may be sent again, unless it never fits.
fn no_memory(error: &MemoryError) -> HttpError {
    if error.is_final() {
        let message = format!("request body is too large: {error}");
        return HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message);
    }
    HttpError::overloaded(error.to_string())
}

fn encoding(headers: &HeaderMap) -> Result<Encoding, HttpError> {
    let Some(value) = headers.get(CONTENT_ENCODING) else {
        return Ok(Encoding::Identity);
    };
    let name = value.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    match name.as_str() {
        "" | "identity" => Ok(Encoding::Identity),
        "gzip" | "x-gzip" => Ok(Encoding::Gzip),
        "deflate" | "x-deflate" => Ok(Encoding::Deflate),
        "snappy" => Ok(Encoding::Snappy),
        _ => Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content encoding `{name}` is not known, expected gzip, deflate, snappy or identity"),
        )),
    }
}

fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [method, flags, ..] => method & 0x0f == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31),
        _ => false,
    }
}

fn too_slow(message: String) -> HttpError {
    HttpError::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn too_large(max_bytes: usize) -> HttpError {
    let message =
        format!("request body is too large, at most {max_bytes} bytes are allowed (--http-max-body-mib)");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
}

#[cfg(test)]
mod tests;
