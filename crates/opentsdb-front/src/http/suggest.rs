//! `/api/suggest`: names that begin with a text.
//!
//! Source: OpenTSDB 2.4, `SuggestRpc`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use oxtsdb_metadata::uids::{Uids, UidsError};
use oxtsdb_query::{QueryDescription, QueryError, RequestContext};
use oxtsdb_schema::UidKind;

use crate::http::api_request::{ApiParts, ApiRequest};
use crate::http::body::BodyWriter;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;

/// Names of a response if the client gives no `max`.
const DEFAULT_MAX: usize = 25;

/// Names of a response, at most, so that it fits in memory.
const MOST: usize = 100_000;

/// Responses of at most this many names are too small to be admitted as queries and charged; larger ones are read in
/// pages of this size.
const FEW: usize = 1000;

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
        parts,
        parameters,
        context,
        ..
    } = request;
    let kind = parameters
        .get("type")
        .filter(|kind| !kind.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing parameter <code>type</code>"))?;
    let request = suggest_request(kind, parameters.get("q"), parameters.get("max"))?;
    respond(parts, context, request).await
}

/// POST: the same as a JSON object of scalars.
pub(crate) async fn post(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let ApiRequest {
        parts,
        context,
        mut body,
        ..
    } = request;
    let request = parsed(&mut body, &parts.engine.resources().compute, parse).await?;
    respond(parts, context, request).await
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
    parts: &ApiParts,
    context: RequestContext,
    request: SuggestRequest,
) -> Result<Reply, HttpError> {
    let mut pages = Pages {
        uids: &parts.uids,
        next: Some(None),
        left: request.max,
        request,
    };
    if pages.left <= FEW {
        let deadline = Some(Instant::now() + TIMEOUT);
        let mut out = vec![b'['];
        while let Some(names) = pages.next(deadline).await? {
            for name in names {
                if out.len() > 1 {
                    out.push(b',');
                }
                json::write_string(&mut out, &name);
            }
        }
        out.push(b']');
        return Ok(Reply::json(out));
    }
    let SuggestRequest { kind, prefix, .. } = &pages.request;
    let description = QueryDescription::without_range(format!("suggest:{kind}:{prefix}"));
    let admitted = parts.engine.admit(context, description, None).await;
    let admitted = admitted.map_err(|error| query_error(&error))?;
    let context = admitted.context();
    let compute = &context.compute(&parts.engine.resources().compute);
    let mut body = BodyWriter::with_budget(admitted.budget()).map_err(|error| query_error(&error))?;
    body.out().push(b'[');
    let mut is_first = true;
    loop {
        let page = context
            .run(async { Ok(pages.next(context.deadline()).await) })
            .await;
        let Some(names) = page.map_err(|error: QueryError| query_error(&error))?? else {
            break;
        };
        if !std::mem::take(&mut is_first) && !names.is_empty() {
            body.out().push(b',');
        }
        let written = body.write_items(compute, names, |out, name| json::write_string(out, &name));
        body = written.await.map_err(|error| query_error(&error))?;
    }
    body.out().push(b']');
    let body = body.finish().map_err(|error| query_error(&error))?;
    Ok(Reply::json(body))
}

/// The names of a request, page by page: none of them takes a thread of the runtime for long.
struct Pages<'a> {
    uids: &'a Uids,
    request: SuggestRequest,
    /// The page that follows; `None` after the last one.
    next: Option<Option<String>>,
    /// Names that may follow.
    left: usize,
}

impl Pages<'_> {
    /// The names of the next page; `None` after the last.
    async fn next(&mut self, deadline: Option<Instant>) -> Result<Option<Vec<String>>, HttpError> {
        let Some(page) = self.next.take().filter(|_| self.left > 0) else {
            return Ok(None);
        };
        let SuggestRequest { kind, prefix, .. } = &self.request;
        let size = self.left.min(FEW);
        let page = self.uids.suggest(*kind, prefix, (size, page), deadline).await;
        let page = page.map_err(|error| uids_error(&error))?;
        self.left = self.left.saturating_sub(page.mappings.len());
        self.next = page.next_page.map(Some);
        let names = page.mappings.into_iter().map(|mapping| mapping.name);
        Ok(Some(names.collect()))
    }
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
    use oxtsdb_data_settings::DataSettings;
    use oxtsdb_test_stack::TestStack;
    use oxtsdb_test_stack::service::Service;

    #[tokio::test]
    async fn many_names_are_admitted_as_a_query_and_read_in_pages() {
        let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
        let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
        let service = Service::from_stack(stack).await;
        let tags: Vec<String> = (0..1500).map(|number| format!("v{number:04}")).collect();
        let points = tags.iter().map(|tagv| {
            let tags = serde_json::json!({"k": tagv});
            serde_json::json!({"metric": "m", "timestamp": 1, "value": 1, "tags": tags})
        });
        let points: serde_json::Value = points.collect();
        assert_eq!(service.post("/api/put", points.to_string()).await.status, 204);
        for (max, expected) in [(1001, &tags[..1001]), (1_000_000, &tags[..]), (7, &tags[..7])] {
            let response = service.get(&format!("/api/suggest?type=tagv&max={max}")).await;
            assert_eq!(response.status, 200);
            assert_eq!(response.json(), serde_json::json!(expected), "{max}");
        }
        let queries = service.get("/api/stats/query").await.json();
        let completed = queries["completed"].as_array().unwrap();
        assert_eq!(completed.len(), 2, "a few names are no query: {queries}");
        assert_eq!(completed[0]["query"]["queries"][0]["m"], "suggest:tagv:");
        let query = memory.query().usage();
        assert!(query.peak_bytes > 0 && query.used_bytes == 0, "{query:?}");
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
