//! Responses: JSON, wrapped for `jsonp`, compressed if the client accepts it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName,
    HeaderValue, LOCATION, RETRY_AFTER, VARY,
};
use http::{Response, StatusCode};
use oxtsdb_resources::ComputePool;

use crate::http::body::{BodyError, ReplyBody, Rest, transformed};
use crate::http::error::HttpError;
use crate::http::error_form::ErrorForm;

/// Size from which bodies are compressed on the compute pool.
const LARGE_BODY_BYTES: u64 = 64 << 10;

const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=UTF-8");
/// For other protocols, and OpenTSDB's pages outside of `/api`.
const PAGE_JSON: HeaderValue = HeaderValue::from_static("application/json");
const PAGE_TEXT: HeaderValue = HeaderValue::from_static("text/plain");
/// Browsers execute nothing else as a script, as long as they do not guess types.
const SCRIPT: HeaderValue = HeaderValue::from_static("application/javascript; charset=UTF-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=UTF-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=UTF-8");
/// Pages load what this server sends, execute no script in them, and are shown in no other page.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' blob: data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// A picture that is opened as a page loads and executes nothing.
const PICTURE_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; sandbox");
const ARROW: HeaderValue = HeaderValue::from_static(oxtsdb_arrow_stream::MEDIA_TYPE);
const PNG: HeaderValue = HeaderValue::from_static("image/png");
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
const SVG: HeaderValue = HeaderValue::from_static("image/svg+xml");

/// A response before compression.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) body: ReplyBody,
    content_type: HeaderValue,
    /// `Retry-After`, in seconds.
    retry_after: Option<u32>,
    /// Other headers.
    headers: HeaderMap,
}

impl Reply {
    /// 200 with JSON.
    pub(crate) fn json(body: impl Into<ReplyBody>) -> Reply {
        Reply::json_with(StatusCode::OK, body)
    }

    /// JSON with any status.
    pub(crate) fn json_with(status: StatusCode, body: impl Into<ReplyBody>) -> Reply {
        Reply::new(status, body, JSON)
    }

    /// An error, in OpenTSDB's envelope.
    pub(crate) fn error(error: &HttpError, show_trace: bool) -> Reply {
        Reply {
            retry_after: error.retry_after,
            ..Reply::json_with(error.status, error.to_json(show_trace))
        }
    }

    /// An error, in the form of another protocol.
    pub(crate) fn error_in(form: ErrorForm, error: &HttpError) -> Reply {
        let text = match &error.details {
            Some(details) => format!("{}: {details}", error.message),
            None => error.message.clone(),
        };
        Reply {
            retry_after: error.retry_after,
            ..Reply::text_in(form, error.status, &text)
        }
    }

    /// The text of an error, in the form of another protocol.
    pub(crate) fn text_in(form: ErrorForm, status: StatusCode, text: &str) -> Reply {
        let content_type = match form {
            ErrorForm::Influx | ErrorForm::Influx2 => JSON,
            ErrorForm::Text => TEXT,
            ErrorForm::Protobuf => PROTOBUF,
            ErrorForm::ProtobufJson => PAGE_JSON,
        };
        Reply::new(status, form.body(status, text), content_type)
    }

    fn new(status: StatusCode, body: impl Into<ReplyBody>, content_type: HeaderValue) -> Reply {
        Reply {
            status,
            body: body.into(),
            content_type,
            retry_after: None,
            headers: HeaderMap::new(),
        }
    }

    /// 200 with a message of protobuf.
    pub(crate) fn protobuf(body: impl Into<ReplyBody>) -> Reply {
        Reply::new(StatusCode::OK, body, PROTOBUF)
    }

    /// 200 with a body of another type.
    pub(crate) fn binary(body: impl Into<ReplyBody>, content_type: HeaderValue) -> Reply {
        Reply::new(StatusCode::OK, body, content_type)
    }

    /// 200 with a stream in Arrow's IPC format.
    pub(crate) fn arrow(body: impl Into<ReplyBody>) -> Reply {
        Reply::binary(body, ARROW)
    }

    /// 204.
    pub(crate) fn empty() -> Reply {
        Reply::new(StatusCode::NO_CONTENT, Vec::new(), JSON)
    }

    /// 304: an edit that changes nothing.
    pub(crate) fn not_modified() -> Reply {
        Reply::new(StatusCode::NOT_MODIFIED, Vec::new(), JSON)
    }

    /// 200 with text.
    pub(crate) fn text(body: impl Into<ReplyBody>) -> Reply {
        Reply::new(StatusCode::OK, body, TEXT)
    }

    /// 200 with text, as OpenTSDB's pages outside of `/api` send it.
    pub(crate) fn page_text(body: impl Into<ReplyBody>) -> Reply {
        Reply::new(StatusCode::OK, body, PAGE_TEXT)
    }

    /// JSON, as OpenTSDB's pages outside of `/api` send it.
    pub(crate) fn page_json(status: StatusCode, body: impl Into<ReplyBody>) -> Reply {
        Reply::new(status, body, PAGE_JSON)
    }

    /// The same as a response outside of `/api`.
    #[must_use]
    pub(crate) fn into_page_json(self) -> Reply {
        Reply {
            content_type: PAGE_JSON,
            ..self
        }
    }

    /// An HTML page.
    pub(crate) fn page(status: StatusCode, title: &str, text: &str) -> Reply {
        let page = format!(
            "<!DOCTYPE html>\n<html><head><title>{title}</title></head>\
             <body><h1>{title}</h1><p>{text}</p></body></html>\n"
        );
        Reply::new(status, page.into_bytes(), HTML)
    }

    /// A picture as PNG.
    pub(crate) fn png(status: StatusCode, body: impl Into<ReplyBody>) -> Reply {
        Reply::new(status, body, PNG)
    }

    /// A picture as SVG.
    pub(crate) fn svg(status: StatusCode, body: impl Into<ReplyBody>) -> Reply {
        Reply::new(status, body, SVG)
    }

    /// A file of the user interface, of this type.
    pub(crate) fn file(body: &'static [u8], content_type: HeaderValue) -> Reply {
        Reply::new(StatusCode::OK, Bytes::from_static(body), content_type)
    }

    /// A page that leads to another one of this server. OpenTSDB sends it with 200 and a page that reloads itself.
    pub(crate) fn redirect(location: HeaderValue) -> Reply {
        Reply::new(StatusCode::FOUND, Vec::new(), HTML).with_header(LOCATION, location)
    }

    /// Adds a header.
    #[must_use]
    pub(crate) fn with_header(mut self, name: HeaderName, value: impl Into<HeaderValue>) -> Reply {
        self.headers.insert(name, value.into());
        self
    }

    /// Wraps JSON into a call of the function that `jsonp=` names, see [`check_jsonp`].
    #[must_use]
    pub(crate) fn wrapped(mut self, function: Option<&str>) -> Reply {
        let Some(function) = function.filter(|name| !name.is_empty() && check_jsonp(Some(name)).is_ok())
        else {
            return self;
        };
        if self.content_type == JSON && !self.body.is_empty() {
            self.body.prepend([function.as_bytes(), b"("].concat());
            self.body.append(b")".to_vec());
            self.content_type = SCRIPT;
        }
        self
    }

    /// The response, compressed as the client's headers allow.
    pub(crate) async fn into_response(
        self,
        compression: Option<Coding>,
        compute: &ComputePool,
    ) -> Response<ReplyBody> {
        let mut response = Response::new(ReplyBody::default());
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
            return response;
        }
        let policy = match &self.content_type {
            html if *html == HTML => Some(PAGE_POLICY),
            svg if *svg == SVG => Some(PICTURE_POLICY),
            _ => None,
        };
        if let Some(policy) = policy {
            response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
        }
        response.headers_mut().insert(CONTENT_TYPE, self.content_type);
        let is_compressed = response.headers().contains_key(CONTENT_ENCODING);
        let Some(coding) = compression.filter(|_| !is_compressed) else {
            *response.body_mut() = self.body;
            return response;
        };
        let mut body = self.body;
        let rest = body.take_rest();
        if let Some(rest) = rest {
            let compressed = coding.compress_stream(body, rest, compute.clone());
            let headers = response.headers_mut();
            coding.set_headers(headers);
            *response.body_mut() = ReplyBody::default().followed_by(compressed);
            return response;
        }
        let compressed = if body.len() < LARGE_BODY_BYTES {
            coding.compress(body)
        } else {
            let compressed = compute.run(move || coding.compress(body)).await;
            compressed.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked)))
        };
        match compressed {
            Ok(body) => {
                coding.set_headers(response.headers_mut());
                *response.body_mut() = body;
            }
            // The plain body is gone by now.
            Err(error) => {
                let error = HttpError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("the response could not be compressed: {error}"),
                );
                *response.status_mut() = error.status;
                *response.body_mut() = error.to_json(false).into();
            }
        }
        response
    }
}

/// Checks the function that `jsonp=` names: a path of names and indices, such as `app.callbacks[7]`. The response begins
/// with it: with other characters, the caller could choose content of another kind, a script or a page.
///
/// # Errors
///
/// 400.
pub(crate) fn check_jsonp(function: Option<&str>) -> Result<(), HttpError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$' | '[' | ']');
    let Some(wrong) = function.and_then(|name| name.chars().find(|c| !is_allowed(*c))) else {
        return Ok(());
    };
    let details = format!("it has the character {wrong:?}, allowed are letters, digits and `_.$[]`");
    Err(HttpError::bad_request("`jsonp` is not the name of a function").with_details(details))
}

/// Whether the client requests Arrow; JSON is the default.
pub(crate) fn accepts_arrow(headers: &HeaderMap) -> bool {
    accepted(headers, &ACCEPT).any(|name| name == oxtsdb_arrow_stream::MEDIA_TYPE)
}

/// The names that a header like `Accept` offers, in lower case; names of weight 0 are left out.
fn accepted(headers: &HeaderMap, header: &HeaderName) -> impl Iterator<Item = String> {
    let values = headers.get_all(header).iter();
    let offers = values.flat_map(|value| value.to_str().unwrap_or_default().split(','));
    offers.filter_map(|offer| {
        let (name, weight) = offer.split_once(';').unwrap_or((offer, ""));
        let weight = weight.trim().strip_prefix("q=").unwrap_or("1");
        let is_refused = weight.trim().parse::<f32>().is_ok_and(|weight| weight <= 0.0);
        (!is_refused).then(|| name.trim().to_ascii_lowercase())
    })
}

/// The coding of a compressed response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
}

impl Coding {
    /// The coding that the client accepts, gzip first.
    pub(crate) fn accepted(headers: &HeaderMap) -> Option<Coding> {
        let mut deflate = false;
        for name in accepted(headers, &ACCEPT_ENCODING) {
            match name.as_str() {
                "gzip" | "x-gzip" => return Some(Coding::Gzip),
                "deflate" => deflate = true,
                _ => {}
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

    fn set_headers(self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.name()));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }

    /// Compresses a body and what follows it, piece by piece.
    fn compress_stream(self, first: ReplyBody, rest: Rest, compute: ComputePool) -> Rest {
        let plain = stream::iter([Ok(first)]).chain(rest).boxed();
        stream::try_unfold(Some((plain, Compressor::new(self))), move |state| {
            let compute = compute.clone();
            async move {
                let Some((mut plain, mut compressor)) = state else {
                    return Ok(None);
                };
                let piece = plain.try_next().await?;
                let is_last = piece.is_none();
                let compressed = move || {
                    let body = match piece {
                        Some(body) => compressor.compress(body)?,
                        None => compressor.end()?,
                    };
                    Ok::<_, std::io::Error>((body, compressor))
                };
                let (body, compressor) = compute.run(compressed).await.map_err(BodyError::from)??;
                Ok(Some((body, (!is_last).then_some((plain, compressor)))))
            }
        })
        .boxed()
    }

    fn compress(self, plain: ReplyBody) -> std::io::Result<ReplyBody> {
        let level = Compression::fast();
        match self {
            Coding::Gzip => transformed(plain, |out| GzEncoder::new(out, level), GzEncoder::finish),
            Coding::Deflate => transformed(plain, |out| ZlibEncoder::new(out, level), ZlibEncoder::finish),
        }
    }
}

/// Compresses the pieces of a body.
enum Compressor {
    Gzip(GzEncoder<Vec<u8>>),
    Deflate(ZlibEncoder<Vec<u8>>),
}

impl Compressor {
    fn new(coding: Coding) -> Self {
        let level = Compression::fast();
        match coding {
            Coding::Gzip => Self::Gzip(GzEncoder::new(Vec::new(), level)),
            Coding::Deflate => Self::Deflate(ZlibEncoder::new(Vec::new(), level)),
        }
    }

    /// Compresses a piece; the output may still be empty. It takes less memory than the piece did.
    fn compress(&mut self, mut plain: ReplyBody) -> std::io::Result<ReplyBody> {
        while let Some(part) = plain.next_part() {
            match self {
                Self::Gzip(encoder) => encoder.write_all(&part)?,
                Self::Deflate(encoder) => encoder.write_all(&part)?,
            }
        }
        Ok(std::mem::take(match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Deflate(encoder) => encoder.get_mut(),
        })
        .into())
    }

    fn end(&mut self) -> std::io::Result<ReplyBody> {
        match self {
            Self::Gzip(encoder) => encoder.try_finish()?,
            Self::Deflate(encoder) => encoder.try_finish()?,
        }
        self.compress(ReplyBody::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_gzip_and_honours_weights_of_zero() {
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
    fn arrow_has_to_be_named() {
        for (offers, expected) in [
            ("application/vnd.apache.arrow.stream", true),
            (
                "application/json, Application/Vnd.Apache.Arrow.Stream;q=0.5",
                true,
            ),
            ("application/vnd.apache.arrow.stream; q=0, */*", false),
            ("application/vnd.apache.arrow.file", false),
            ("*/*", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, offers.parse().unwrap());
            assert_eq!(accepts_arrow(&headers), expected, "{offers}");
        }
        assert!(!accepts_arrow(&HeaderMap::new()));
    }

    #[test]
    fn jsonp_wraps_only_json() {
        let body = |reply: Reply| String::from_utf8(reply.body.into_bytes()).unwrap();
        assert_eq!(body(Reply::json(b"[1]".to_vec()).wrapped(Some("f"))), "f([1])");
        assert_eq!(body(Reply::json(b"[1]".to_vec()).wrapped(None)), "[1]");
        assert_eq!(body(Reply::empty().wrapped(Some("f"))), "");
        assert_eq!(
            Reply::json(b"[1]".to_vec()).wrapped(Some("f")).content_type,
            SCRIPT
        );
        for name in ["f", "app.callbacks[7]", "$_0", ""] {
            assert_eq!(check_jsonp(Some(name)), Ok(()), "{name}");
        }
        for name in [
            "alert(1)//",
            "<script>",
            "a b",
            "f;",
            "caf\u{e9}",
            "a\u{2028}",
            "f%0a",
            "'",
        ] {
            assert_eq!(
                check_jsonp(Some(name)).unwrap_err().status.as_u16(),
                400,
                "{name}"
            );
            assert_eq!(body(Reply::json(b"[1]".to_vec()).wrapped(Some(name))), "[1]");
        }
    }
}
