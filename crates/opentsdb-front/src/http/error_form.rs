//! How errors of other protocols are rendered.

use http::StatusCode;

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
}

impl ErrorForm {
    /// The body of a response.
    pub(crate) fn body(self, status: StatusCode, text: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + text.len());
        match self {
            Self::Text => {
                out.extend_from_slice(text.as_bytes());
                return out;
            }
            Self::Protobuf => {
                prost::encoding::int32::encode(1, &grpc_code(status), &mut out);
                prost::encoding::string::encode(2, &text.to_owned(), &mut out);
                return out;
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

/// The code of gRPC for a status.
///
/// Source: `google/rpc/code.proto`.
const fn grpc_code(status: StatusCode) -> i32 {
    match status.as_u16() {
        // UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, RESOURCE_EXHAUSTED, UNAVAILABLE, INVALID_ARGUMENT, INTERNAL
        401 => 16,
        403 => 7,
        404 | 405 => 12,
        413 | 429 => 8,
        503 => 14,
        400..=499 => 3,
        _ => 13,
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
