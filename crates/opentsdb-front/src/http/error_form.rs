//! How errors of other protocols are rendered.

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use tonic::Code;

use crate::http::json;

/// The form of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// InfluxDB 1: `{"error":"…"}`.
    Influx,
    /// InfluxDB 2: `{"code":"invalid","message":"…"}`.
    Influx2,
    /// Prometheus: plain text.
    Text,
    /// OpenTelemetry: the message `google.rpc.Status`.
    Protobuf,
    /// The same in JSON, for requests in JSON.
    ProtobufJson,
}

impl ErrorForm {
    /// The form for a request with these headers.
    pub(crate) fn for_request(self, headers: &HeaderMap) -> Self {
        match self {
            Self::Protobuf if headers.get(CONTENT_TYPE).is_some_and(is_json) => Self::ProtobufJson,
            form => form,
        }
    }

    /// The body of a response.
    pub(crate) fn body(self, status: StatusCode, text: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + text.len());
        match self {
            Self::Text => {
                out.extend_from_slice(text.as_bytes());
                return out;
            }
            Self::Protobuf => {
                prost::encoding::int32::encode(1, &i32::from(grpc_code(status)), &mut out);
                prost::encoding::string::encode(2, &text.to_owned(), &mut out);
                return out;
            }
            Self::ProtobufJson => {
                out.extend_from_slice(b"{\"code\":");
                json::write_integer(&mut out, i32::from(grpc_code(status)));
                out.extend_from_slice(b",\"message\":");
            }
            Self::Influx => out.extend_from_slice(b"{\"error\":"),
            Self::Influx2 => {
                out.extend_from_slice(b"{\"code\":");
                json::write_string(&mut out, code(status));
                out.extend_from_slice(b",\"message\":");
            }
        }
        json::write_string(&mut out, text);
        out.push(b'}');
        out
    }
}

/// Whether a body of this type is JSON.
pub(crate) fn is_json(content_type: &HeaderValue) -> bool {
    media_type(content_type).eq_ignore_ascii_case("application/json")
}

/// A content type without its parameters.
pub(crate) fn media_type(content_type: &HeaderValue) -> &str {
    let text = content_type.to_str().unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim()
}

/// The code of gRPC for a status.
///
/// Source: `google/rpc/code.proto`.
pub(crate) fn grpc_code(status: StatusCode) -> Code {
    match status.as_u16() {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 | 405 => Code::Unimplemented,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        400..=499 => Code::InvalidArgument,
        _ => Code::Internal,
    }
}

/// The name of a status in InfluxDB 2.
fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not found",
        405 => "method not allowed",
        413 => "request too large",
        429 => "too many requests",
        503 => "unavailable",
        400..=499 => "invalid",
        _ => "internal error",
    }
}
