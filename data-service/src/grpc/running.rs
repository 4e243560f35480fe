//! `DataAdminService.ListQueries` and `DataAdminService.CancelQuery`.

use oxtsdb_proto::common::v1::time_range::{End, Start};
use oxtsdb_proto::common::v1::{ErrorReason, TimeRange};
use oxtsdb_proto::data::v1::{
    CancelQueryRequest, CancelQueryResponse, ListQueriesResponse, RunningQuery as RunningQueryMessage,
};
use oxtsdb_proto::error::status;
use oxtsdb_query::RunningQuery;
use oxtsdb_query::{Engine, Resource};
use tonic::{Code, Status};

/// The running queries.
pub(super) fn list(engine: &Engine) -> ListQueriesResponse {
    let queries = engine.running().list().iter().map(message).collect();
    ListQueriesResponse { queries }
}

/// Cancels one of them.
pub(super) fn cancel(engine: &Engine, request: &CancelQueryRequest) -> Result<CancelQueryResponse, Status> {
    let id = request.id;
    if engine.running().cancel(id) {
        return Ok(CancelQueryResponse {});
    }
    Err(status(
        Code::NotFound,
        ErrorReason::QueryNotFound,
        format!("query {id} is not running"),
        &[("id", &id.to_string())],
    ))
}

fn message(query: &RunningQuery) -> RunningQueryMessage {
    let used = |resource| query.usage.get(resource);
    RunningQueryMessage {
        id: query.id,
        sub_queries: query.description.sub_queries.clone(),
        range: Some(TimeRange {
            start: Some(Start::StartMs(query.description.range_ms.0)),
            // The first instant outside.
            end: Some(End::EndMs(query.description.range_ms.1.saturating_add(1))),
        }),
        started: Some(query.started_at.into()),
        elapsed: prost_types::Duration::try_from(query.elapsed).ok(),
        series: used(Resource::Series),
        rows: used(Resource::Rows),
        bytes: used(Resource::Bytes),
        points: used(Resource::Points),
        memory_bytes: used(Resource::Memory),
    }
}
