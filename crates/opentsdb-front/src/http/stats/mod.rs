//! `/api/stats` and below: counters, the process, its threads, and queries; `/stats`: counters as lines.
//!
//! Shapes are OpenTSDB's. Facts that only a Java process has are absent or empty: the memory account's pools are listed
//! as pools, threads have no stacks, nothing is collected, and there are no region clients.
//!
//! Source: OpenTSDB 2.4, `StatsRpc`, `IncomingDataPoint` (values are texts).

mod process;
mod queries;

use http::StatusCode;
use oxtsdb_query::Engine;

use crate::front::build_info;
use crate::front::counters::{Statistic, now_seconds};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// All queries, as `/api/stats/query` shows them.
pub fn running_queries(engine: &Engine) -> Vec<u8> {
    queries::to_json(engine.running())
}

/// GET and POST of `/api/stats`; a path below that names nothing is the same.
pub(crate) async fn stats(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let mut segments = request.path.split('/').filter(|segment| !segment.is_empty());
    segments.find(|segment| segment.eq_ignore_ascii_case("stats"));
    let below = segments.next().unwrap_or_default().to_ascii_lowercase();
    Ok(Reply::json(match below.as_str() {
        "query" => queries::to_json(request.parts.engine.running()),
        "jvm" => {
            blocking(process::memory_pools(request.parts), |pools| {
                process::to_json(&pools)
            })
            .await?
        }
        "threads" => blocking((), |()| process::threads_to_json()).await?,
        "region_clients" => b"[]".to_vec(),
        _ => to_json(&request.parts.counters.statistics()),
    }))
}

/// GET and POST of `/stats`: lines, or with `json` an array of them.
pub(crate) async fn page(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    let seconds = now_seconds();
    let statistics = request.parts.counters.statistics();
    let lines = statistics.iter().map(|statistic| statistic.line(seconds));
    if !request.parameters.has("json") {
        let text: String = lines.map(|line| line + "\n").collect();
        return Ok(Reply::page_text(text.into_bytes()));
    }
    let mut body = Vec::new();
    json::write_strings(&mut body, lines);
    Ok(Reply::page_json(StatusCode::OK, body))
}

/// Runs a function that reads files of the system.
async fn blocking<T: Send + 'static>(
    input: T,
    read: impl FnOnce(T) -> Vec<u8> + Send + 'static,
) -> Result<Vec<u8>, HttpError> {
    tokio::task::spawn_blocking(move || read(input))
        .await
        .map_err(|error| HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn to_json(statistics: &[Statistic]) -> Vec<u8> {
    let seconds = now_seconds();
    let mut out = Vec::new();
    out.push(b'[');
    for (index, Statistic { name, tag, value }) in statistics.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"metric\":");
        json::write_string(&mut out, name);
        out.extend_from_slice(b",\"timestamp\":");
        json::write_integer(&mut out, seconds);
        out.extend_from_slice(b",\"value\":");
        json::write_string(&mut out, &value.to_string());
        out.extend_from_slice(b",\"tags\":");
        json::write_map(
            &mut out,
            tag.iter().copied().chain([("host", build_info::host())]),
        );
        out.push(b'}');
    }
    out.push(b']');
    out
}
