//! `/api/aggregators`: the names of all aggregators.
//!
//! Source: OpenTSDB 2.4, `AggregatorsRpc`.

use oxtsdb_query::Aggregator;

use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and POST.
pub(crate) async fn list(_request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut body = Vec::new();
    json::write_strings(&mut body, Aggregator::ALL.iter().map(Aggregator::name));
    Ok(Reply::json(body))
}
