//! `/api/stats`: the counts of this process's HTTP and telnet side.
//!
//! Source: OpenTSDB 2.4, `StatsRpc`, `IncomingDataPoint` (values are texts).

use std::time::{SystemTime, UNIX_EPOCH};

use crate::front::counters::Statistic;
use crate::http::{json, version};

/// The time, in seconds since the epoch.
pub(crate) fn now_seconds() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// The answer.
pub(crate) fn body(statistics: &[Statistic]) -> Vec<u8> {
    let seconds = now_seconds();
    let mut out = Vec::new();
    out.push(b'[');
    for (place, Statistic { name, tag, value }) in statistics.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"metric\":");
        json::write_string(&mut out, name);
        out.extend_from_slice(b",\"timestamp\":");
        json::write_integer(&mut out, seconds);
        out.extend_from_slice(b",\"value\":");
        json::write_string(&mut out, &value.to_string());
        out.extend_from_slice(b",\"tags\":");
        json::write_map(&mut out, tag.iter().copied().chain([("host", version::host())]));
        out.push(b'}');
    }
    out.push(b']');
    out
}
