//! The response to an export.
//!
//! Source: `opentelemetry/proto/collector/metrics/v1/metrics_service.proto`.

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
