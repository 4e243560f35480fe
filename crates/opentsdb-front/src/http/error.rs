//! Errors of HTTP requests, and their JSON envelope.
//!
//! ```text
//!   {"error":{"code":400,"message":"m","details":"d","trace":"t"}}
//! ```
//!
//! `details` is omitted if there are none. `trace` is included only with `--http-show-stack-trace`; OpenTSDB puts a
//! Java stack there (by default), this server the chain of causes.
//!
//! Source: OpenTSDB 2.4, `BadRequestException`, `HttpJsonSerializer.formatErrorV1`.

use std::fmt;

use http::StatusCode;
use oxtsdb_access::Refusal;
use oxtsdb_resources::Panicked;

use crate::http::json;

/// `Retry-After` of requests that exceed a limit, in seconds.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpError {
    /// Status of the response, and `code`.
    pub(crate) status: StatusCode,
    /// OpenTSDB's message where it has one.
    pub(crate) message: String,
    /// Further details.
    pub(crate) details: Option<String>,
    /// Causes, outermost first; shown only with `--http-show-stack-trace`.
    pub(crate) causes: Option<String>,
    /// When the same request may succeed, seconds; the header `Retry-After`.
    pub(crate) retry_after: Option<u32>,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Panicked> for HttpError {
    fn from(panicked: Panicked) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, panicked.to_string())
    }
}

impl HttpError {
    /// An error with any status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> HttpError {
        HttpError {
            status,
            message: message.into(),
            details: None,
            causes: None,
            retry_after: None,
        }
    }

    /// A limit of the server is reached: 503 with `Retry-After`.
    pub(crate) fn overloaded(message: impl Into<String>) -> HttpError {
        HttpError {
            retry_after: Some(RETRY_AFTER_SECONDS),
            ..HttpError::new(StatusCode::SERVICE_UNAVAILABLE, message)
        }
    }

    /// An error of the caller: 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> HttpError {
        HttpError::new(StatusCode::BAD_REQUEST, message)
    }

    /// Adds details.
    #[must_use]
    pub(crate) fn with_details(mut self, details: impl Into<String>) -> HttpError {
        self.details = Some(details.into());
        self
    }

    /// Adds what led to the error.
    #[must_use]
    pub(crate) fn with_causes(mut self, error: &dyn std::error::Error) -> HttpError {
        let mut causes = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push_str("\ncaused by: ");
            causes.push_str(&cause.to_string());
            source = cause.source();
        }
        self.causes = Some(causes);
        self
    }

    /// A body that is no JSON, or not the JSON that the endpoint takes.
    pub(crate) fn unreadable_json(details: impl Into<String>) -> HttpError {
        HttpError::bad_request("Unable to parse the given JSON").with_details(details)
    }

    /// An empty body where JSON is needed.
    pub(crate) fn missing_content() -> HttpError {
        HttpError::bad_request("Missing message content")
            .with_details("Supply valid JSON formatted data in the body of your request")
    }

    /// A method that the endpoint does not have.
    pub(crate) fn method_not_allowed(method: &http::Method) -> HttpError {
        HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed").with_details(format!(
            "The HTTP method [{method}] is not permitted for this endpoint"
        ))
    }

    /// A request that the mode of the server or the rights of its caller exclude. In OpenTSDB, a mode has no such
    /// endpoint.
    pub(crate) fn refused(refusal: &Refusal) -> HttpError {
        let status = match refusal {
            Refusal::InvalidCredentials(_) | Refusal::NoCredentials { .. } => StatusCode::UNAUTHORIZED,
            Refusal::NotGranted { .. }
            | Refusal::Metric { .. }
            | Refusal::MetricUid { .. }
            | Refusal::GlobalAnnotations { .. }
            | Refusal::Telnet(_) => StatusCode::FORBIDDEN,
            Refusal::Mode { .. } => {
                return HttpError::new(StatusCode::NOT_FOUND, "Endpoint not found")
                    .with_details(refusal.to_string());
            }
        };
        HttpError::new(status, refusal.to_string())
    }

    /// OPTIONS, which is for preflight requests of allowed origins only.
    pub(crate) fn options_not_allowed() -> HttpError {
        HttpError::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed")
            .with_details("The HTTP method [OPTIONS] is not permitted")
    }

    /// The envelope.
    pub(crate) fn to_json(&self, show_trace: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + self.message.len());
        out.extend_from_slice(b"{\"error\":{\"code\":");
        out.extend_from_slice(self.status.as_str().as_bytes());
        out.extend_from_slice(b",\"message\":");
        json::write_string(&mut out, &self.message);
        if let Some(details) = self.details.as_deref().filter(|details| !details.is_empty()) {
            out.extend_from_slice(b",\"details\":");
            json::write_string(&mut out, details);
        }
        if let Some(causes) = self.causes.as_deref().filter(|_| show_trace) {
            out.extend_from_slice(b",\"trace\":");
            json::write_string(&mut out, causes);
        }
        out.extend_from_slice(b"}}");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &HttpError, show_trace: bool) -> String {
        String::from_utf8(error.to_json(show_trace)).unwrap()
    }

    #[test]
    fn the_envelope_omits_empty_fields() {
        let error = HttpError::bad_request("a \"b\"");
        assert_eq!(
            text(&error, true),
            r#"{"error":{"code":400,"message":"a \"b\""}}"#
        );
        let error = error.with_details("");
        assert_eq!(
            text(&error, true),
            r#"{"error":{"code":400,"message":"a \"b\""}}"#
        );
        let error = error.with_details("d");
        assert_eq!(
            text(&error, true),
            r#"{"error":{"code":400,"message":"a \"b\"","details":"d"}}"#
        );
    }

    #[test]
    fn causes_are_shown_only_if_enabled() {
        let cause = std::io::Error::other("disk");
        let error = HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "m").with_causes(&cause);
        assert_eq!(text(&error, false), r#"{"error":{"code":503,"message":"m"}}"#);
        assert_eq!(
            text(&error, true),
            r#"{"error":{"code":503,"message":"m","trace":"disk"}}"#
        );
    }
}
