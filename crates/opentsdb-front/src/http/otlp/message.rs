//! The response to an export.
//!
//! Source: `opentelemetry/proto/collector/metrics/v1/metrics_service.proto`.

use crate::http::json::{write_integer, write_string};

/// A response: empty if all points are stored.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportMetricsServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<ExportMetricsPartialSuccess>,
}

/// Points that were not stored, and why.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExportMetricsPartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_data_points: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl ExportMetricsServiceResponse {
    /// The response in JSON, where a number of 64 bits is a text.
    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut out = b"{".to_vec();
        if let Some(partial) = &self.partial_success {
            out.extend_from_slice(b"\"partialSuccess\":{\"rejectedDataPoints\":\"");
            write_integer(&mut out, partial.rejected_data_points);
            out.extend_from_slice(b"\",\"errorMessage\":");
            write_string(&mut out, &partial.error_message);
            out.push(b'}');
        }
        out.push(b'}');
        out
    }
}
