//! OpenTSDB's pages outside of `/api`: pages of its user interface that programs request too.
//!
//! `/suggest`, `/aggregators`, `/version` and `/stats` respond as below `/api`, with another content type; `/version`
//! and `/stats` are text unless the query string has `json`. Errors are HTML pages, or `{"err":"..."}` with `json`.
//!
//! Source: OpenTSDB 2.4, `RpcManager`, `LogsRpc`, `HttpQuery.badRequest`.

use http::StatusCode;

use crate::front::build_info;
use crate::http::aggregators;
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::graph;
use crate::http::html::escaped;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::reply::Reply;
use crate::http::suggest;
use crate::http::version;

/// `/suggest`: GET and POST of the query string.
pub(crate) async fn suggest(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    suggest::get(request).await.map(Reply::into_page_json)
}

/// `/aggregators`: GET and POST.
pub(crate) async fn aggregators(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    aggregators::list(request).await.map(Reply::into_page_json)
}

/// `/version`: GET and POST.
pub(crate) async fn version(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    if request.parameters.has("json") {
        return version::version(request).await.map(Reply::into_page_json);
    }
    Ok(Reply::page_text(build_info::version_text().into_bytes()))
}

/// `/logs`: rejected as OpenTSDB does unless it keeps its log in memory.
pub(crate) async fn logs(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Err(HttpError::bad_request(
        "No CyclicBufferAppender found. This server writes its log to standard error only.",
    ))
}

/// `/favicon.ico`: the page's is a part of it. All methods.
pub(crate) async fn no_file(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::error(
        &HttpError::new(StatusCode::NOT_FOUND, "Page not found"),
        false,
    ))
}

/// The response to a failed request outside of `/api`.
pub(crate) fn error(error: &HttpError, parameters: &Parameters) -> Reply {
    // OpenTSDB's pages have no 405.
    let status = match error.status {
        StatusCode::METHOD_NOT_ALLOWED => StatusCode::BAD_REQUEST,
        status => status,
    };
    if let Some(picture) = graph::error(error, parameters) {
        return picture;
    }
    if parameters.has("json") {
        let mut body = Vec::new();
        json::write_map(&mut body, [("err", &*error.message)]);
        return Reply::page_json(status, body);
    }
    let title = status.canonical_reason().unwrap_or("Error");
    Reply::page(status, title, &escaped(&error.message))
}
