//! The handler of `/api/config`.

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and POST.
pub(crate) async fn config(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut body = Vec::new();
    json::write_map(&mut body, request.parts.config.shown());
    Ok(Reply::json(body))
}
