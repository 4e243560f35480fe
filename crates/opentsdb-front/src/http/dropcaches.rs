//! `/api/dropcaches`: forgets cached names, UIDs and series, here and in the UID service.
//!
//! Source: OpenTSDB 2.4, `RpcManager.DropCachesRpc`.

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and DELETE.
pub(crate) async fn drop_caches(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    request.parts.writer.drop_caches().await;
    let mut body = Vec::new();
    // The status is a text in OpenTSDB too.
    json::write_map(&mut body, [("message", "Caches dropped"), ("status", "200")]);
    Ok(Reply::json(body))
}
