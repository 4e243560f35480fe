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
use oxtsdb_query::exec::budget::{Budget, Limits};
use oxtsdb_query::{QueryError, QueryResources};

/// Names in an answer if the client does not say how many.
const DEFAULT_MAX: usize = 25;

/// Names in an answer at most, so that it stays small enough for memory.
const MOST: usize = 100_000;

/// Answers with at most so many names are written inline, and are too small to be counted.
const FEW: usize = 1000;

/// Memory of a name and its UID; an estimate.
const NAME_BYTES: u64 = 128;

/// How long the UID service may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What to suggest.
#[derive(Debug, PartialEq, Eq)]
struct Question {
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
    let question = question(kind, parameters.get("q"), parameters.get("max"))?;
    answer(&parts.uids, parts.engine.resources(), question).await
}

/// POST: the same as a JSON object of scalars.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest { parts, mut body, .. } = request;
    let resources = parts.engine.resources();
    let question = parsed(&mut body, &resources.compute, parse).await?;
    answer(&parts.uids, resources, question).await
}

/// Reads the body of a POST.
fn parse(content: &[u8]) -> Result<Question, HttpError> {
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
    question(&kind, field("q").as_deref(), field("max").as_deref())
}

fn question(kind: &str, prefix: Option<&str>, max: Option<&str>) -> Result<Question, HttpError> {
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
    Ok(Question {
        kind,
        prefix: prefix.unwrap_or_default().to_owned(),
        max,
    })
}

async fn answer(uids: &Uids, resources: &QueryResources, question: Question) -> Result<Reply, HttpError> {
    let Question { kind, prefix, max } = question;
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

/// Names as JSON; with a budget they hold memory of it.
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

/// A question that the UID service did not answer.
pub(crate) fn uids_error(error: &UidsError) -> HttpError {
    let status = match error {
        UidsError::Unavailable { .. } | UidsError::Busy { .. } => http::StatusCode::SERVICE_UNAVAILABLE,
        UidsError::DeadlineExceeded => http::StatusCode::GATEWAY_TIMEOUT,
        UidsError::Refused { .. } | UidsError::Layout { .. } | UidsError::BadAnswer { .. } => {
            http::StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    HttpError::new(status, error.to_string()).with_causes(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::testing::Service;
    use crate::settings::DataSettings;
    use crate::test_stack::TestStack;

    #[tokio::test]
    async fn many_names_take_memory_for_queries() {
        let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
        let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
        let service = Service::of(stack).await;
        let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
        assert_eq!(service.post("/api/put", point).await.status, 204);
        let query = memory.query();
        let taken = query.try_reserve(query.limit_bytes()).unwrap();
        let many = "/api/suggest?type=metrics&max=1001";
        let answer = service.get(many).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        let few = service.get("/api/suggest?type=metrics&max=1000").await;
        assert_eq!((few.status, few.text()), (200, r#"["m"]"#));
        drop(taken);
        let answer = service.get(many).await;
        assert_eq!((answer.status, answer.text()), (200, r#"["m"]"#));
    }

    #[test]
    fn questions_are_checked_in_opentsdbs_words() {
        let told = |kind: &str, max| question(kind, None, max).unwrap_err().message;
        assert_eq!(told("bogus", None), "Invalid 'type' parameter:bogus");
        assert_eq!(told("metrics", Some("x")), "Unable to parse 'max' as a number");
        for (max, expected) in [(None, 25), (Some("0"), 25), (Some("-3"), 25), (Some("7"), 7)] {
            let asked = question("tagk", Some("h"), max).unwrap();
            assert_eq!(
                asked,
                Question {
                    kind: UidKind::Tagk,
                    prefix: "h".into(),
                    max: expected
                }
            );
        }
    }
}
