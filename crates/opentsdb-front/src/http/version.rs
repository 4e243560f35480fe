//! `/api/version`: the versions of OpenTSDB's API and of this program.
//!
//! The keys are OpenTSDB's, and two of our own: `version` is OpenTSDB's, because clients derive from it which features
//! they may use; `implementation` and `implementation_version` are this program and its version.
//!
//! Source: OpenTSDB 2.4, `BuildData`, `HttpJsonSerializer.formatVersionV1`.

use crate::front::build_info::{OPENTSDB_VERSION, REVISION, VERSION, host};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and POST.
pub(crate) async fn version(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut body = Vec::new();
    let revision = REVISION.unwrap_or_default();
    json::write_map(
        &mut body,
        [
            ("short_revision", revision.get(..7).unwrap_or(revision)),
            ("repo", "oxtsdb"),
            ("host", host()),
            ("version", OPENTSDB_VERSION),
            ("full_revision", revision),
            ("repo_status", ""),
            ("user", ""),
            ("branch", ""),
            ("timestamp", ""),
            ("implementation", "oxtsdb"),
            ("implementation_version", VERSION),
        ],
    );
    Ok(Reply::json(body))
}
