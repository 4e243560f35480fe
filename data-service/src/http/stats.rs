//! `/api/stats`: the counters of the HTTP and telnet front ends of this process.
//!
//! Source: OpenTSDB 2.4, `StatsRpc`, `IncomingDataPoint` (values are texts).

use crate::front::build_info;
use crate::front::counters::{Statistic, now_seconds};
use crate::http::api_request::ApiRequest;
use crate::http::error::HttpError;
use crate::http::json;
use crate::http::reply::Reply;

/// GET and POST.
pub(crate) async fn stats(request: ApiRequest<'_>) -> Result<Reply, HttpError> {
    Ok(Reply::json(to_json(&request.parts.counters.statistics())))
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
