//! Bodies of requests: read to the end, decompressed, never larger than allowed.
//!
//! The limit is on the decompressed size, and is looked at while decompressing: a small body that
//! unfolds to gigabytes costs the limit and no more. Each piece of a body must come within
//! [`PIECE_TIMEOUT`] and the whole within [`BODY_TIMEOUT`], so that a client that stalls, or sends
//! byte by byte, does not hold memory for ever.

use std::io::Read as _;
use std::time::Duration;

use bytes::{Buf, Bytes};
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;

use crate::http::error::HttpError;

/// How long the next piece of a body may take.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long all of a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Identity,
    Gzip,
    /// zlib's format as the standard wants it, or the bare stream that some clients send.
    Deflate,
}

/// Bytes that the body of a request may need while it is handled, as far as its headers tell.
pub(crate) fn announced_bytes<B: Body>(request: &Request<B>, max_bytes: usize) -> usize {
    let plain = matches!(encoding(request.headers()), Ok(Encoding::Identity));
    match request.body().size_hint().exact() {
        Some(length) if plain => usize::try_from(length).unwrap_or(max_bytes).min(max_bytes),
        _ => max_bytes,
    }
}

/// Reads and decompresses a body.
///
/// # Errors
///
/// 413 above `max_bytes`, 415 for an unknown compression, 400 for data that do not decompress or
/// a body that breaks off, 408 for one that stalls.
pub(crate) async fn read<B>(request: Request<B>, max_bytes: usize) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let encoding = encoding(request.headers())?;
    let body = tokio::time::timeout(BODY_TIMEOUT, read_plain(request.into_body(), max_bytes))
        .await
        .map_err(|_| {
            too_slow(format!(
                "request body took more than {} seconds",
                BODY_TIMEOUT.as_secs()
            ))
        })??;
    match encoding {
        Encoding::Identity => Ok(body),
        Encoding::Gzip => decompress(MultiGzDecoder::new(body.reader()), "gzip", max_bytes),
        Encoding::Deflate if has_zlib_header(&body) => {
            decompress(ZlibDecoder::new(body.reader()), "deflate", max_bytes)
        }
        Encoding::Deflate => decompress(DeflateDecoder::new(body.reader()), "deflate", max_bytes),
    }
}

async fn read_plain<B>(mut body: B, max_bytes: usize) -> Result<Bytes, HttpError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let announced = body.size_hint().lower();
    if announced > max_bytes as u64 {
        return Err(too_large(max_bytes));
    }
    // What is announced is not allocated before it comes.
    let mut bytes: Option<Bytes> = None;
    let mut joined = Vec::new();
    loop {
        let piece = tokio::time::timeout(PIECE_TIMEOUT, body.frame()).await;
        let piece = piece.map_err(|_| {
            too_slow(format!(
                "request body stalled for {} seconds",
                PIECE_TIMEOUT.as_secs()
            ))
        })?;
        let Some(frame) = piece else { break };
        let frame = frame.map_err(|error| {
            HttpError::bad_request("request body broke off").with_details(error.to_string())
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if joined.len() + bytes.as_ref().map_or(0, Bytes::len) + data.len() > max_bytes {
            return Err(too_large(max_bytes));
        }
        match bytes.take() {
            None if joined.is_empty() => bytes = Some(data),
            first => {
                joined.extend_from_slice(&first.unwrap_or_default());
                joined.extend_from_slice(&data);
            }
        }
    }
    // A body of one piece is not copied.
    Ok(bytes.unwrap_or_else(|| joined.into()))
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

fn decompress(decoder: impl std::io::Read, name: &str, max_bytes: usize) -> Result<Bytes, HttpError> {
    let mut plain = Vec::new();
    // One more byte than allowed tells that there are too many.
    decoder
        .take(max_bytes as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|error| {
            HttpError::bad_request(format!("request body is no valid {name} data"))
                .with_details(error.to_string())
        })?;
    if plain.len() > max_bytes {
        return Err(too_large(max_bytes));
    }
    Ok(plain.into())
}

fn too_slow(message: String) -> HttpError {
    HttpError::new(StatusCode::REQUEST_TIMEOUT, message)
}

fn too_large(max_bytes: usize) -> HttpError {
    let message = format!("request body is too large, at most {max_bytes} bytes are allowed");
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        .with_details("the limit is on the decompressed size; send fewer points in a request")
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
        read(request, max).await
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn compressed_bodies_unfold() {
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
    async fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![b' '; 8 << 20]);
        assert!(bomb.len() < 64 << 10, "{}", bomb.len());
        let error = read_as(Some("gzip"), bomb, 1 << 20).await.unwrap_err();
        assert_eq!(error.status.as_u16(), 413);
        assert_eq!(
            error.message,
            "request body is too large, at most 1048576 bytes are allowed"
        );
        assert_eq!(
            read_as(None, vec![0; 11], 10).await.unwrap_err().status.as_u16(),
            413
        );
        assert_eq!(read_as(None, vec![0; 10], 10).await.unwrap().len(), 10);
    }

    #[tokio::test]
    async fn broken_compression_is_told() {
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

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_or_drips_is_given_up() {
        use futures::stream::{self, StreamExt as _};
        use http_body_util::StreamBody;
        use hyper::body::Frame;

        let byte = || Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"x")));
        let stalls = stream::iter([byte()]).chain(stream::pending());
        let request = Request::new(StreamBody::new(stalls));
        let error = read(request, 1000).await.unwrap_err();
        assert_eq!(
            (error.status.as_u16(), error.message.as_str()),
            (408, "request body stalled for 30 seconds")
        );

        let drips = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            byte()
        });
        let request = Request::new(StreamBody::new(Box::pin(drips)));
        let error = read(request, 1000).await.unwrap_err();
        assert_eq!(error.message, "request body took more than 120 seconds");
    }
}
