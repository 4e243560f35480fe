//! `/api/stats/query`: running queries, and the last that ended, of all protocols.
//!
//! ```text
//!   {"completed":[{"query":{"start":"MS","end":"MS","queries":[{"m":"sum:sys.cpu"}]},"exception":"null",
//!     "queryStartTimestamp":MS,"queryCompletedTimestamp":MS,"stats":{...}}],"running":[...]}
//! ```
//!
//! Sub-queries are texts in OpenTSDB's query language in place of its objects. `stats` has the used resources.
//!
//! Source: OpenTSDB 2.4, `QueryStats.getRunningAndCompleteStats`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oxtsdb_query::{Resource, RunningQueries, RunningQuery};
use serde_json::{Value, json};

/// All queries.
pub(super) fn to_json(queries: &RunningQueries) -> Vec<u8> {
    let completed = queries.completed();
    let completed: Vec<Value> = completed
        .iter()
        .map(|completed| {
            let mut shown = shown(&completed.query);
            shown["exception"] = json!(completed.error.as_deref().unwrap_or("null"));
            shown["queryCompletedTimestamp"] =
                json!(millis(completed.query.started_at + completed.query.elapsed));
            shown
        })
        .collect();
    let running: Vec<Value> = queries.list().iter().map(shown).collect();
    json!({"completed": completed, "running": running})
        .to_string()
        .into_bytes()
}

/// The fields that running and completed queries share.
fn shown(query: &RunningQuery) -> Value {
    let (start_ms, end_ms) = query.description.range_ms;
    let queries: Vec<Value> = query
        .description
        .sub_queries
        .iter()
        .enumerate()
        .map(|(index, text)| json!({"index": index, "m": text}))
        .collect();
    let used = |resource| query.usage.get(resource);
    json!({
        "id": query.id,
        "query": {"start": start_ms.to_string(), "end": end_ms.to_string(), "queries": queries},
        "queryStartTimestamp": millis(query.started_at),
        "stats": {
            "totalTime": duration_ms(query.elapsed),
            "series": used(Resource::Series),
            "rowsFromStorage": used(Resource::Rows),
            "bytesFromStorage": used(Resource::Bytes),
            "dpsPreFilter": used(Resource::Points),
            "memoryBytes": used(Resource::Memory),
        },
    })
}

fn millis(time: SystemTime) -> u64 {
    duration_ms(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
