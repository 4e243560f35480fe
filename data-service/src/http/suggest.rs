//! `/api/suggest`: names that begin with a text.
//!
//! Source: OpenTSDB 2.4, `SuggestRpc`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_schema::UidKind;

use crate::http::api_request::ApiRequest;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::query::failure::of_query;
use crate::http::reply::Reply;
use crate::uids::{Uids, UidsError};
use oxtsdb_query::Budget;
use oxtsdb_query::Limits;
use oxtsdb_query::{QueryError, QueryResources};

/// Names of a response if the client gives no `max`.
const DEFAULT_MAX: usize = 25;

/// Names of a response, at most, so that it fits in memory.
const MOST: usize = 100_000;

/// Responses of at most this many names are written inline, and are too small to be charged.
const FEW: usize = 1000;

/// Memory of a name and its UID, in bytes; an estimate.
const NAME_BYTES: u64 = 128;

/// How long the UID service may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The names to suggest.
#[derive(Debug, PartialEq, Eq)]
struct SuggestRequest {
    kind: UidKind,
    prefix: String,
    max: usize,
}

/// GET.
pub(crate) async fn get(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts, parameters, ..
    } = request;
    let kind = parameters
        .get("type")
        .filter(|kind| !kind.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing parameter <code>type</code>"))?;
    let request = suggest_request(kind, parameters.get("q"), parameters.get("max"))?;
    respond(&parts.uids, parts.engine.resources(), request).await
}

/// POST: the same as a JSON object of scalars.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest { parts, mut body, .. } = request;
    let resources = parts.engine.resources();
    let request = parsed(&mut body, &resources.compute, parse).await?;
    respond(&parts.uids, resources, request).await
}

/// Reads the body of a POST.
fn parse(content: &[u8]) -> Result<SuggestRequest, HttpError> {
    let fields: BTreeMap<Cow<'_, str>, serde_json::Value> =
        serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
    let field = |name: &str| match fields.get(name) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(text)) => Some(text.clone()),
        Some(other) => Some(other.to_string()),
    };
    let kind = field("type")
        .filter(|kind| !kind.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing 'type' parameter"))?;
    suggest_request(&kind, field("q").as_deref(), field("max").as_deref())
}

fn suggest_request(kind: &str, prefix: Option<&str>, max: Option<&str>) -> Result<SuggestRequest, HttpError> {
    let max = match max.filter(|max| !max.is_empty()) {
        None => DEFAULT_MAX,
        Some(text) => {
            let max: i32 = text
                .parse()
                .map_err(|_| HttpError::bad_request("Unable to parse 'max' as a number"))?;
            usize::try_from(max)
                .ok()
                .filter(|max| *max > 0)
                .unwrap_or(DEFAULT_MAX)
                .min(MOST)
        }
    };
    let kind = match kind {
        "metrics" => UidKind::Metric,
        "tagk" => UidKind::Tagk,
        "tagv" => UidKind::Tagv,
        other => {
            return Err(HttpError::bad_request(format!(
                "Invalid 'type' parameter:{other}"
            )));
        }
    };
    Ok(SuggestRequest {
        kind,
        prefix: prefix.unwrap_or_default().to_owned(),
        max,
    })
}

async fn respond(
    uids: &Uids,
    resources: &QueryResources,
    request: SuggestRequest,
) -> Result<Reply, HttpError> {
    let SuggestRequest { kind, prefix, max } = request;
    let deadline = Some(Instant::now() + TIMEOUT);
    let of_query = |error: QueryError| of_query(&error);
    let budget = Budget::new(Limits::NONE, Arc::default(), resources.memory.empty_reservation());
    let is_large = max > FEW;
    let held = is_large.then(|| budget.hold(max as u64 * NAME_BYTES));
    let held = held.transpose().map_err(of_query)?;
    let names = uids
        .suggest(kind, &prefix, max, deadline)
        .await
        .map_err(|error| uids_error(&error))?;
    if !is_large {
        return Ok(Reply::json(write(&names, None).map_err(of_query)?));
    }
    let write = move || {
        let body = write(&names, Some(&budget));
        drop((names, held));
        body
    };
    let written = resources.compute.run(write).await;
    let body = written.map_err(QueryError::from).flatten();
    Ok(Reply::json(body.map_err(of_query)?))
}

/// Names as JSON, charged to the budget if there is one.
fn write(names: &[String], budget: Option<&Budget>) -> Result<ReplyBody, QueryError> {
    let mut body = BodyWriter::new();
    if let Some(budget) = budget {
        body.hold_of(budget)?;
    }
    body.out().push(b'[');
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            body.out().push(b',');
        }
        json::write_string(body.out(), name);
        body.roll()?;
    }
    body.out().push(b']');
    body.finish()
}

/// The response to a failure of the UID service.
pub(crate) fn uids_error(error: &UidsError) -> HttpError {
    let status = match error {
        UidsError::Unavailable { .. } | UidsError::Busy { .. } => http::StatusCode::SERVICE_UNAVAILABLE,
        UidsError::DeadlineExceeded => http::StatusCode::GATEWAY_TIMEOUT,
        UidsError::Rejected { .. } | UidsError::Layout { .. } | UidsError::InvalidResponse { .. } => {
            http::StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    HttpError::new(status, error.to_string()).with_causes(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::DataSettings;
    use crate::test_stack::TestStack;
    use crate::test_stack::service::Service;

    #[tokio::test]
    async fn many_names_are_charged_to_the_query_pool() {
        let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
        let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
        let service = Service::of(stack).await;
        let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
        assert_eq!(service.post("/api/put", point).await.status, 204);
        let query = memory.query();
        let taken = query.try_reserve(query.limit_bytes()).unwrap();
        let many = "/api/suggest?type=metrics&max=1001";
        let response = service.get(many).await;
        assert_eq!(
            (response.status, response.header("retry-after")),
            (503, Some("1"))
        );
        let few = service.get("/api/suggest?type=metrics&max=1000").await;
        assert_eq!((few.status, few.text()), (200, r#"["m"]"#));
        drop(taken);
        let response = service.get(many).await;
        assert_eq!((response.status, response.text()), (200, r#"["m"]"#));
    }

    #[test]
    fn rejects_invalid_requests_with_opentsdbs_texts() {
        let message = |kind: &str, max| suggest_request(kind, None, max).unwrap_err().message;
        assert_eq!(message("bogus", None), "Invalid 'type' parameter:bogus");
        assert_eq!(message("metrics", Some("x")), "Unable to parse 'max' as a number");
        for (max, expected) in [(None, 25), (Some("0"), 25), (Some("-3"), 25), (Some("7"), 7)] {
            let request = suggest_request("tagk", Some("h"), max).unwrap();
            assert_eq!(
                request,
                SuggestRequest {
                    kind: UidKind::Tagk,
                    prefix: "h".into(),
                    max: expected
                }
            );
        }
    }
}
