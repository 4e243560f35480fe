//! Answers on their way out: JSON, wrapped for `jsonp`, compressed if the client asked for it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, VARY};
use http::{Response, StatusCode};
use http_body_util::Full;

/// Bodies from which on compressing is left to a thread that may block.
const LARGE_BODY_BYTES: usize = 64 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=UTF-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=UTF-8");

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: Vec<u8>,
    content_type: HeaderValue,
}

impl Reply {
    /// 200 with JSON.
    pub(crate) fn json(body: Vec<u8>) -> Reply {
        Reply::json_with(StatusCode::OK, body)
    }

    /// JSON with any status.
    pub(crate) fn json_with(status: StatusCode, body: Vec<u8>) -> Reply {
        Reply {
            status,
            body,
            content_type: JSON,
        }
    }

    /// 204.
    pub(crate) fn empty() -> Reply {
        Reply {
            status: StatusCode::NO_CONTENT,
            body: Vec::new(),
            content_type: JSON,
        }
    }

    /// 200 with text.
    pub(crate) fn text(body: Vec<u8>) -> Reply {
        Reply {
            status: StatusCode::OK,
            body,
            content_type: TEXT,
        }
    }

    /// A page for people.
    pub(crate) fn page(status: StatusCode, title: &str, text: &str) -> Reply {
        let page = format!(
            "<!DOCTYPE html>\n<html><head><title>{title}</title></head>\
             <body><h1>{title}</h1><p>{text}</p></body></html>\n"
        );
        Reply {
            status,
            body: page.into_bytes(),
            content_type: HTML,
        }
    }

    /// Wraps JSON into a call of the function that `jsonp=` names.
    #[must_use]
    pub(crate) fn wrapped(mut self, function: Option<&str>) -> Reply {
        let Some(function) = function.filter(|name| !name.is_empty()) else {
            return self;
        };
        if self.content_type == JSON && !self.body.is_empty() {
            self.body = [function.as_bytes(), b"(", &self.body, b")"].concat();
        }
        self
    }

    /// The response, compressed as the client's headers allow.
    pub(crate) async fn into_response(self, compression: Option<Coding>) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::default());
        *response.status_mut() = self.status;
        if self.status == StatusCode::NO_CONTENT {
            return response;
        }
        response.headers_mut().insert(CONTENT_TYPE, self.content_type);
        let Some(coding) = compression else {
            *response.body_mut() = Full::new(self.body.into());
            return response;
        };
        let body = if self.body.len() < LARGE_BODY_BYTES {
            coding.compress(&self.body)
        } else {
            let body = self.body;
            // Compressing does not panic; if it did, the client would get an empty body with
            // status 200, so the panic is handed on.
            match tokio::task::spawn_blocking(move || coding.compress(&body)).await {
                Ok(body) => body,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Vec::new(),
                },
            }
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        *response.body_mut() = Full::new(body.into());
        response
    }
}

/// How an answer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// The coding that the client accepts, gzip first.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Coding> {
        let mut deflate = false;
        for value in headers.get_all(ACCEPT_ENCODING) {
            for offer in value.to_str().unwrap_or_default().split(',') {
                let (name, weight) = offer.split_once(';').unwrap_or((offer, ""));
                let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
                if weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0) {
                    continue;
                }
                match name.trim().to_ascii_lowercase().as_str() {
                    "gzip" | "x-gzip" => return Some(Coding::Gzip),
                    "deflate" => deflate = true,
                    _ => {}
                }
            }
        }
        deflate.then_some(Coding::Deflate)
    }

    fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Deflate => "deflate",
        }
    }

    fn compress(self, plain: &[u8]) -> Vec<u8> {
        let out = Vec::with_capacity(plain.len() / 4 + 64);
        let compressed = match self {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(out, Compression::fast());
                encoder.write_all(plain).and_then(|()| encoder.finish())
            }
            Coding::Deflate => {
                let mut encoder = ZlibEncoder::new(out, Compression::fast());
                encoder.write_all(plain).and_then(|()| encoder.finish())
            }
        };
        compressed.expect("writing to memory does not fail")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_preferred_and_refusals_are_heard() {
        for (offers, expected) in [
            ("gzip", Some(Coding::Gzip)),
            ("deflate, gzip;q=0.5", Some(Coding::Gzip)),
            ("gzip;q=0, deflate", Some(Coding::Deflate)),
            ("br, identity", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, offers.parse().unwrap());
            assert_eq!(Coding::accepted(&headers), expected, "{offers}");
        }
        assert_eq!(Coding::accepted(&HeaderMap::new()), None);
    }

    #[test]
    fn jsonp_wraps_json_only() {
        let body = |reply: Reply| String::from_utf8(reply.body).unwrap();
        assert_eq!(body(Reply::json(b"[1]".to_vec()).wrapped(Some("f"))), "f([1])");
        assert_eq!(body(Reply::json(b"[1]".to_vec()).wrapped(None)), "[1]");
        assert_eq!(body(Reply::empty().wrapped(Some("f"))), "");
    }
}
