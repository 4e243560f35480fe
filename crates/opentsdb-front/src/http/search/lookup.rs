//! `/api/search/lookup`: lists series by metric, tag keys and tag values.

use std::time::Instant;

use futures::stream;
use http::StatusCode;
use oxtsdb_metadata::lookup::{Extent, FoundSeries, SERIES_BYTES, SeriesLookup, TsuidBatches};
use oxtsdb_query::{Admitted, QueryError};
use oxtsdb_resources::ComputePool;

use super::request::{LookupRequest, Pair};
use crate::http::api_request::ApiRequest;
use crate::http::body::{BodyWriter, ReplyBody};
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::json_body::parsed;
use crate::http::query::failure::query_error;
use crate::http::reply::Reply;

/// GET and POST.
pub(super) async fn lookup(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let started = Instant::now();
    let ApiRequest {
        parts,
        parameters,
        context,
        mut body,
        ..
    } = request;
    let (engine, compute) = (&parts.engine, &parts.engine.resources().compute);
    let request = if body.bytes.is_empty() {
        LookupRequest::from_parameters(parameters)?
    } else {
        parsed(&mut body, compute, LookupRequest::from_json).await?
    };
    let query = request.selection();
    let admitted = SeriesLookup::admit(engine, &query, context).await;
    let (lookup, admitted) = admitted.map_err(|error| query_error(&error))?;
    let left = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
    let extent = left.map_or(Extent::All, Extent::First);
    let batches = lookup.batches(&query, &[], extent).await;
    let results = Results {
        batches: batches.map_err(|error| failed(&error))?,
        lookup,
        _admitted: admitted,
        compute: compute.clone(),
        left,
        count: 0,
    };
    let start_index = request.start_index;
    let pieces = stream::try_unfold(Some(results), move |results| async move {
        let Some(mut results) = results else {
            return Ok(None);
        };
        Ok(Some(match results.next().await? {
            Some(series) => (series, Some(results)),
            None => (tail(start_index, results.count).into(), None),
        }))
    });
    let mut body = ReplyBody::from_pieces(pieces, parts.buffers_results, "a look-up").await?;
    body.prepend(head("LOOKUP", &request, started));
    Ok(Reply::json(body))
}

/// The elements of `results`, written as they are read.
struct Results {
    batches: TsuidBatches,
    lookup: SeriesLookup,
    _admitted: Admitted,
    compute: ComputePool,
    /// Series that the limit of the request leaves.
    left: Option<usize>,
    /// Elements so far.
    count: u64,
}

impl Results {
    /// The next elements; `None` after the last.
    async fn next(&mut self) -> Result<Option<ReplyBody>, QueryError> {
        if self.left == Some(0) {
            return Ok(None);
        }
        let Some(mut tsuids) = self.batches.next().await? else {
            return Ok(None);
        };
        if let Some(left) = &mut self.left {
            tsuids.truncate(*left);
            *left -= tsuids.len();
        }
        let context = self.lookup.context();
        let held = context.budget().hold(tsuids.len() as u64 * SERIES_BYTES)?;
        let series = context.run(self.lookup.named(tsuids)).await?;
        let (mut writer, mut count) = (BodyWriter::with_budget(context.budget())?, self.count);
        let written = self.compute.run(move || {
            for series in &series {
                count += u64::from(write_series(writer.out(), series, count == 0));
                writer.roll()?;
            }
            drop((series, held));
            Ok::<_, QueryError>((writer.finish()?, count))
        });
        let (body, count) = written.await??;
        self.count = count;
        Ok(Some(body))
    }
}

/// Writes an element, after a comma unless it is the first. Returns false, without writing, if a UID has no name.
fn write_series(out: &mut Vec<u8>, FoundSeries { tsuid, names }: &FoundSeries, is_first: bool) -> bool {
    let Some(names) = names else { return false };
    if !is_first {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"tsuid\":");
    json::write_string(out, &hex::encode_upper(tsuid));
    out.extend_from_slice(b",\"metric\":");
    json::write_string(out, &names.metric);
    out.extend_from_slice(b",\"tags\":");
    json::write_map(out, names.tags.iter().map(|(key, value)| (&**key, &**value)));
    out.push(b'}');
    true
}

/// The JSON before the results.
pub(super) fn head(kind: &str, request: &LookupRequest, started: Instant) -> Vec<u8> {
    let mut out = format!("{{\"type\":\"{kind}\"").into_bytes();
    for (name, text) in [("query", &request.query), ("metric", &request.metric)] {
        if let Some(text) = text {
            out.extend_from_slice(format!(",\"{name}\":").as_bytes());
            json::write_string(&mut out, text);
        }
    }
    if let Some(tags) = &request.tags {
        out.extend_from_slice(b",\"tags\":[");
        for (place, Pair { key, value }) in tags.iter().enumerate() {
            out.extend_from_slice(if place == 0 { b"{\"key\":" } else { b",{\"key\":" });
            write_optional(&mut out, key.as_deref());
            out.extend_from_slice(b",\"value\":");
            write_optional(&mut out, value.as_deref());
            out.push(b'}');
        }
        out.push(b']');
    }
    out.extend_from_slice(b",\"limit\":");
    json::write_integer(&mut out, request.limit);
    let milliseconds = started.elapsed().as_millis();
    out.extend_from_slice(format!(",\"time\":{milliseconds}.0,\"results\":[").as_bytes());
    out
}

/// The JSON behind the results.
pub(super) fn tail(start_index: i64, count: u64) -> Vec<u8> {
    format!("],\"startIndex\":{start_index},\"totalResults\":{count}}}").into_bytes()
}

fn write_optional(out: &mut Vec<u8>, text: Option<&str>) {
    match text {
        Some(text) => json::write_string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

/// The response to a failed look-up.
fn failed(error: &QueryError) -> HttpError {
    match error {
        QueryError::UnknownName { kind, name } => {
            HttpError::new(StatusCode::NOT_FOUND, "Unable to resolve one or more UIDs")
                .with_details(format!("No such name for '{kind}': '{name}'"))
        }
        error => query_error(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use oxtsdb_test_stack::service::Service;

    async fn service() -> Service {
        let service = Service::start().await;
        let points = r#"[
            {"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}},
            {"metric":"m","timestamp":1357002000,"value":1,"tags":{"host":"a"}},
            {"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"b","dc":"x"}},
            {"metric":"n","timestamp":1356998400,"value":1,"tags":{"dc":"x"}}]"#;
        assert_eq!(service.post("/api/put", points).await.status, 204);
        service
    }

    #[tokio::test]
    async fn lists_series_in_opentsdbs_form() {
        let service = service().await;
        let response = service.get("/api/search/lookup?m=m{host=*,=x}&limit=3").await;
        let text = response.text();
        let (before, rest) = text.split_once("\"time\":").unwrap();
        assert_eq!(
            before,
            r#"{"type":"LOOKUP","metric":"m","tags":[{"key":"host","value":"*"},{"key":null,"value":"x"}],"limit":3,"#
        );
        let (_, results) = rest.split_once(',').unwrap();
        assert_eq!(
            results,
            concat!(
                r#""results":[{"tsuid":"000001000001000002000002000003","metric":"m","#,
                r#""tags":{"host":"b","dc":"x"}}],"startIndex":0,"totalResults":1}"#
            )
        );
    }

    #[tokio::test]
    async fn bodies_and_sources_list_the_same_series() {
        let service = service().await;
        let tsuids = |value: &serde_json::Value| {
            let results = value["results"].as_array().unwrap().iter();
            results
                .map(|result| result["tsuid"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let all = service.get("/api/search/lookup?m=*").await.json();
        assert_eq!(tsuids(&all).len(), 3);
        for body in [
            json!({}),
            json!({"metric": "*", "useMeta": false}),
            json!({"limit": 0}),
        ] {
            let response = service.post("/api/search/lookup", body.to_string()).await;
            assert_eq!(tsuids(&response.json()), tsuids(&all), "{body}");
        }
        let first = service.get("/api/search/lookup?m=*&limit=1").await.json();
        assert_eq!(
            (tsuids(&first), &first["totalResults"]),
            (tsuids(&all)[..1].to_vec(), &json!(1))
        );
    }

    #[tokio::test]
    async fn failures_are_opentsdbs() {
        let service = service().await;
        for (target, status, message, details) in [
            (
                "lookup?m=unknown",
                404,
                "Unable to resolve one or more UIDs",
                Some("No such name for 'metrics': 'unknown'"),
            ),
            (
                "lookup?m=m{host=a|b}",
                404,
                "Unable to resolve one or more UIDs",
                Some("No such name for 'tagv': 'a|b'"),
            ),
            (
                "lookup?m=sys%20cpu",
                404,
                "Unable to resolve one or more UIDs",
                Some("No such name for 'metrics': 'sys cpu'"),
            ),
            (
                "bogus?query=x",
                400,
                "Invalid search query type supplied",
                Some("Unknown type: bogus"),
            ),
            (
                "uidmeta?query=x",
                400,
                "Searching is not enabled",
                Some("Searching has not been enabled on this TSD"),
            ),
            ("uidmeta", 400, "Missing parameter <code>query</code>", None),
        ] {
            let response = service.get(&format!("/api/search/{target}")).await;
            let error = &response.json()["error"];
            assert_eq!(
                (
                    response.status,
                    error["message"].as_str(),
                    error["details"].as_str()
                ),
                (status, Some(message), details),
                "{target}"
            );
        }
        let response = service
            .request("PUT /api/search/lookup HTTP/1.1\r\n".to_owned(), b"{}")
            .await;
        let message = &response.json()["error"]["message"];
        assert_eq!(
            (response.status, message.as_str()),
            (400, Some("Unsupported method: PUT"))
        );
    }
}
