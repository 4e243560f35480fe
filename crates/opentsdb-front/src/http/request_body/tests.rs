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
        wait: WRITE_MEMORY_WAIT,
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
        (
            Some("snappy"),
            snap::raw::Encoder::new().compress_vec(&plain).unwrap(),
        ),
    ] {
        assert_eq!(read_as(encoding, body, 700).await.unwrap(), plain, "{encoding:?}");
    }
    for encoding in ["gzip", "deflate", "snappy"] {
        assert_eq!(
            read_as(Some(encoding), Vec::new(), 700).await.unwrap(),
            b""[..],
            "{encoding}"
        );
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
        for part in ["ingest", "the 1 MiB", "--memory-limit-mib"] {
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
        wait: WRITE_MEMORY_WAIT,
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
    assert_eq!(began.elapsed(), WRITE_MEMORY_WAIT);
    assert_eq!(error.status.as_u16(), 503);
    assert!(
        error.message.contains("1 of 1 MiB") && error.message.contains("--memory-limit-mib"),
        "{error:?}"
    );
    // Memory that is released meanwhile is used.
    let (body, ()) = futures::future::join(
        read(pieces(2, 1000, Duration::ZERO), limits(&pool, &compute)),
        async {
            tokio::time::sleep(WRITE_MEMORY_WAIT / 2).await;
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
