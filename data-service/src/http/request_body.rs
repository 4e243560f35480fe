//! Bodies of requests: read to the end, decompressed, never larger than allowed.
//!
//! A body is charged to a pool of the memory account as it arrives and as it unfolds, and to nothing before:
//! a client that sends slowly takes what it has sent. The limit of a body is on the decompressed size, and is
//! checked while decompressing: a small body that unfolds to gigabytes costs the limit and no more.
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

/// So many bytes of a body must arrive in each window, if it has not ended.
const WINDOW_BYTES: usize = 64 << 10;
const WINDOW: Duration = Duration::from_secs(30);

/// How long all of a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a body waits for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(1);

/// The first piece of memory for a body that comes in several.
const FIRST_BYTES: usize = 8 << 10;

/// What bodies may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits<'a> {
    /// Bytes of a body, decompressed.
    pub(crate) max_bytes: usize,
    /// What it is charged to.
    pub(crate) pool: &'a MemoryPool,
    /// Where a large one is decompressed.
    pub(crate) compute: &'a ComputePool,
}

/// The body of a request, with its memory.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// Decompressed.
    pub(crate) bytes: Bytes,
    memory: Reservation,
}

impl RequestBody {
    /// No body.
    pub(crate) fn empty(pool: &MemoryPool) -> Self {
        Self {
            bytes: Bytes::new(),
            memory: pool.empty_reservation(),
        }
    }

    /// Charges so many bytes more, for what is made of the body.
    ///
    /// # Errors
    ///
    /// 503 when the pool is exhausted, 413 when it is smaller than what the request needs in all.
    pub(crate) async fn charge(&mut self, bytes: usize) -> Result<(), HttpError> {
        charge(&mut self.memory, bytes).await
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
    /// zlib's format as the standard wants it, or the bare stream that some clients send.
    Deflate,
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
        rate.came(data.len());
        let length = joined.len() + first.len() + data.len();
        if length > max_bytes {
            return Err(too_large(max_bytes));
        }
        if joined.is_empty() && first.is_empty() {
            charge(&mut memory, data.len()).await?;
            first = data;
            continue;
        }
        if length > joined.capacity() {
            // Never more than the body has, if it says how much that is.
            let capacity = (2 * length).max(FIRST_BYTES).min(most.max(length));
            let charged = usize::try_from(memory.bytes()).unwrap_or(usize::MAX);
            charge(&mut memory, capacity.saturating_sub(charged)).await?;
            joined.reserve_exact(capacity - joined.len());
        }
        joined.extend_from_slice(&std::mem::take(&mut first));
        joined.extend_from_slice(&data);
    }
    // A body of one piece is not copied.
    let bytes = if joined.is_empty() { first } else { joined.into() };
    Ok(RequestBody { bytes, memory })
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

    fn came(&mut self, bytes: usize) {
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

/// Unfolds a body: the beginning inline, what is more in the computation pool.
async fn decompressed(
    body: RequestBody,
    format: Format,
    limits: BodyLimits<'_>,
) -> Result<RequestBody, HttpError> {
    let RequestBody { bytes, memory } = body;
    let mut decompression = Decompression::new(bytes, memory, format, limits.max_bytes);
    let mut progress = decompression.begin();
    loop {
        match progress {
            Progress::Done => {
                let (bytes, memory) = decompression.finish();
                return Ok(RequestBody { bytes, memory });
            }
            Progress::TooLarge => return Err(too_large(limits.max_bytes)),
            Progress::Invalid(details) => {
                let message = format!("request body is no valid {} data", format.name());
                return Err(HttpError::bad_request(message).with_details(details));
            }
            Progress::NeedsMemory(bytes) => charge(decompression.memory(), bytes).await?,
            Progress::Large => {}
        }
        let job = move || {
            let progress = decompression.resume();
            (decompression, progress)
        };
        let resumed = limits.compute.run(job).await;
        (decompression, progress) = resumed
            .map_err(|panicked| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, panicked.to_string()))?;
    }
}

/// Charges so many bytes more; waits a short time for them.
async fn charge(memory: &mut Reservation, bytes: usize) -> Result<(), HttpError> {
    memory
        .grow(bytes as u64, MEMORY_WAIT)
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
        _ => Err(HttpError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("content encoding `{name}` is not known, expected gzip, deflate or identity"),
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
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http_body_util::Full;

    use super::*;

    async fn read_as(encoding: Option<&str>, body: Vec<u8>, max: usize) -> Result<Bytes, HttpError> {
        let mut request = Request::new(Full::new(Bytes::from(body)));
        if let Some(encoding) = encoding {
            request
                .headers_mut()
                .insert(CONTENT_ENCODING, encoding.parse().unwrap());
        }
        let (pool, compute) = (MemoryPool::unlimited("ingest"), ComputePool::new(1).unwrap());
        let limits = BodyLimits {
            max_bytes: max,
            pool: &pool,
            compute: &compute,
        };
        read(request, limits).await.map(|body| body.bytes)
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn decompresses_bodies() {
        let plain = b"[1,2,3]".repeat(100);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&plain).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&plain).unwrap();
        let two_members = [gzip(&plain[..300]), gzip(&plain[300..])].concat();
        for (encoding, body) in [
            (None, plain.clone()),
            (Some("identity"), plain.clone()),
            (Some("GZIP"), gzip(&plain)),
            (Some("gzip"), two_members),
            (Some("deflate"), zlib.finish().unwrap()),
            (Some("deflate"), bare.finish().unwrap()),
        ] {
            assert_eq!(read_as(encoding, body, 700).await.unwrap(), plain, "{encoding:?}");
        }
    }

    #[tokio::test]
    async fn stops_decompression_at_the_limit() {
        let bomb = gzip(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 64 << 10, "{}", bomb.len());
        let error = read_as(Some("gzip"), bomb, 1 << 20).await.unwrap_err();
        assert_eq!(error.status.as_u16(), 413);
        assert_eq!(
            error.message,
            "request body is too large, at most 1048576 bytes are allowed (--http-max-body-mib)"
        );
        assert_eq!(
            read_as(None, vec![0; 11], 10).await.unwrap_err().status.as_u16(),
            413
        );
        assert_eq!(read_as(None, vec![0; 10], 10).await.unwrap().len(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_larger_than_the_pool_gets_413() {
        let (pool, compute) = (MemoryPool::new("ingest", 1 << 20), ComputePool::new(1).unwrap());
        let began = Instant::now();
        let request = |bytes: usize| Request::new(Full::new(Bytes::from(vec![b'x'; bytes])));
        let too_large = read(request(2 << 20), limits(&pool, &compute)).await.unwrap_err();
        let mut body = read(request(300_000), limits(&pool, &compute)).await.unwrap();
        // Four times its size is free, with the body itself it is not.
        let parsed = body.charge(3 * 300_000).await.unwrap_err();
        for error in [too_large, parsed] {
            assert_eq!(error.status.as_u16(), 413, "{error:?}");
            assert_eq!(error.retry_after, None);
            for part in ["ingest", "of 1 MiB", "--memory-limit-mib"] {
                assert!(error.message.contains(part), "{error:?}");
            }
        }
        assert!(began.elapsed().is_zero(), "nothing waits: {:?}", began.elapsed());
        let _others = pool.try_reserve(600_000).unwrap();
        let later = body.charge(300_000).await.unwrap_err();
        assert_eq!((later.status.as_u16(), later.retry_after), (503, Some(1)));
    }

    #[tokio::test]
    async fn rejects_invalid_compressed_data() {
        let whole = gzip(b"some text that is compressed");
        let mut flipped = whole.clone();
        let last = flipped.len() - 6;
        flipped[last] ^= 1;
        for body in [
            b"no gzip at all".to_vec(),
            whole[..whole.len() - 3].to_vec(),
            flipped,
        ] {
            let error = read_as(Some("gzip"), body, 1000).await.unwrap_err();
            assert_eq!(error.status.as_u16(), 400);
            assert_eq!(error.message, "request body is no valid gzip data");
            assert!(error.details.is_some());
        }
        let error = read_as(Some("deflate"), vec![0xff; 9], 1000).await.unwrap_err();
        assert_eq!(error.message, "request body is no valid deflate data");
        let error = read_as(Some("br"), vec![], 1000).await.unwrap_err();
        assert_eq!(error.status.as_u16(), 415);
    }

    fn limits<'a>(pool: &'a MemoryPool, compute: &'a ComputePool) -> BodyLimits<'a> {
        BodyLimits {
            max_bytes: 16 << 20,
            pool,
            compute,
        }
    }

    /// A body of pieces with a pause before each.
    fn pieces(
        count: usize,
        bytes: usize,
        pause: Duration,
    ) -> Request<impl Body<Data = Bytes, Error = std::io::Error> + Unpin> {
        use futures::stream::{self, StreamExt as _};
        use http_body_util::StreamBody;
        use hyper::body::Frame;

        let pieces = stream::repeat(()).take(count).then(move |()| async move {
            tokio::time::sleep(pause).await;
            Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))
        });
        Request::new(StreamBody::new(Box::pin(pieces)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_gets_408() {
        let (pool, compute) = (MemoryPool::unlimited("ingest"), ComputePool::new(1).unwrap());
        let read = async |request| read(request, limits(&pool, &compute)).await;
        let error = read(pieces(1000, 100, Duration::from_secs(9))).await.unwrap_err();
        assert_eq!(
            (error.status.as_u16(), error.message.as_str()),
            (
                408,
                "request body is too slow: 300 bytes in 30 seconds, at least 65536 are expected"
            )
        );
        // At the least rate, but without an end.
        let error = read(pieces(1000, 64 << 10, Duration::from_secs(20)))
            .await
            .unwrap_err();
        assert_eq!(error.message, "request body took more than 120 seconds");
        let body = read(pieces(2, 100, Duration::from_secs(14))).await.unwrap();
        assert_eq!(body.bytes.len(), 200, "a short body may take its time");
        assert_eq!(
            pool.usage().used_bytes,
            (8 << 10),
            "it is charged while it is held"
        );
        drop(body);
        assert_eq!(pool.usage().used_bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_hold_only_the_memory_of_received_bytes() {
        let (pool, compute) = (MemoryPool::new("ingest", 16 << 20), ComputePool::new(1).unwrap());
        let slow: Vec<_> = (0..100)
            .map(|_| pieces(3, 1, Duration::from_secs(9)))
            .map(|request| read(request, limits(&pool, &compute)))
            .collect();
        let slow = futures::future::join_all(slow);
        let began = Instant::now();
        let quick = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let body = read(pieces(2, 2 << 20, Duration::ZERO), limits(&pool, &compute)).await;
            (body.unwrap().bytes.len(), began.elapsed())
        };
        let (slow, (bytes, took)) = futures::future::join(slow, quick).await;
        assert_eq!(bytes, 4 << 20);
        assert!(took < Duration::from_secs(11), "{took:?}");
        assert!(slow.iter().all(Result::is_ok));
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_gets_503_while_the_pool_is_exhausted() {
        let (pool, compute) = (MemoryPool::new("ingest", 1 << 20), ComputePool::new(1).unwrap());
        let taken = pool.try_reserve(1 << 20).unwrap();
        let began = Instant::now();
        let error = read(pieces(2, 1000, Duration::ZERO), limits(&pool, &compute))
            .await
            .unwrap_err();
        assert_eq!(began.elapsed(), MEMORY_WAIT);
        assert_eq!(error.status.as_u16(), 503);
        assert!(
            error.message.contains("1 of 1 MiB") && error.message.contains("--memory-limit-mib"),
            "{error:?}"
        );
        // Memory that is released meanwhile is used.
        let (body, ()) = futures::future::join(
            read(pieces(2, 1000, Duration::ZERO), limits(&pool, &compute)),
            async {
                tokio::time::sleep(MEMORY_WAIT / 2).await;
                drop(taken);
            },
        )
        .await;
        assert_eq!(body.unwrap().bytes.len(), 2000);
    }

    #[tokio::test]
    async fn charges_a_body_during_decompression() {
        let compute = ComputePool::new(1).unwrap();
        let plain = b"0123456789abcdef".repeat(1 << 16);
        let request = || {
            let mut request = Request::new(Full::new(Bytes::from(gzip(&plain))));
            request
                .headers_mut()
                .insert(CONTENT_ENCODING, "gzip".parse().unwrap());
            request
        };
        let pool = MemoryPool::new("ingest", 4 << 20);
        let body = read(request(), limits(&pool, &compute)).await.unwrap();
        assert_eq!(body.bytes, plain);
        let used = pool.usage().used_bytes;
        assert!((1 << 20..=2 << 20).contains(&used), "{used}");
        let error = read(request(), limits(&MemoryPool::new("ingest", 1 << 19), &compute)).await;
        assert_eq!(
            error.unwrap_err().status.as_u16(),
            413,
            "it unfolds to twice the pool"
        );
    }
}
