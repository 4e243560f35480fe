//! `DataAdminService.DeletePoints`.

use futures::stream::{self, StreamExt as _};
use oxtsdb_maintenance::delete::{Deleted, Deletion, delete};
use oxtsdb_point_store::TimeRange;
use oxtsdb_proto::data::v1::delete_points_request::Source;
use oxtsdb_proto::data::v1::{DeletePointsRequest, DeletePointsResponse};
use oxtsdb_proto::error::invalid_field;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Engine, QueryError, RowSource};
use tonic::{Request, Response, Status};

use super::query::convert::{metric_source, range, tsuids};
use super::query::query_status;
use super::results::{context_of, result_stream};

/// `DataAdminService.DeletePoints`. The response begins when the delete is admitted.
pub(super) async fn delete_points(
    engine: &Engine,
    request: Request<DeletePointsRequest>,
) -> Result<Response<MessageStream<DeletePointsResponse>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let (first_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
    let (source, field) = match &request.source {
        None => return Err(invalid_field("source", "is missing, expected metric or tsuids")),
        Some(Source::Metric(source)) => {
            let (metric, filter) = metric_source("metric", source)?;
            (RowSource::Metric { metric, filter }, "metric")
        }
        Some(Source::Tsuids(source)) if !source.filters.is_empty() => {
            let rule = format!(
                "has {} items, series are deleted without filters",
                source.filters.len()
            );
            return Err(invalid_field("tsuids.filters", rule));
        }
        Some(Source::Tsuids(source)) => (RowSource::Tsuids(tsuids("tsuids", source)?), "tsuids"),
    };
    let deletion = Deletion {
        source,
        range: TimeRange {
            first_ms,
            last_ms: stop_ms - 1,
        },
        dry_run: request.dry_run,
    };
    let table = engine.storage().table.to_string();
    let failed = move |error: QueryError| query_status(&error, field, &table);
    let steps = delete(engine, context, deletion).await.map_err(&failed)?;
    // The last step again, marked as such.
    let steps = steps.map(Some).chain(stream::iter([None]));
    let messages = steps.scan((Deleted::default(), false), move |(last, has_failed), step| {
        let message = match step {
            _ if *has_failed => None,
            Some(Ok(deleted)) => {
                *last = deleted;
                Some(Ok(message(deleted, false)))
            }
            Some(Err(error)) => {
                *has_failed = true;
                Some(Err(failed(error)))
            }
            None => Some(Ok(message(*last, true))),
        };
        futures::future::ready(message)
    });
    Ok(Response::new(result_stream(messages, engine, None)))
}

const fn message(deleted: Deleted, done: bool) -> DeletePointsResponse {
    let Deleted {
        series,
        rows,
        points,
        damaged_cells,
        contended_rows,
    } = deleted;
    DeletePointsResponse {
        series,
        rows,
        points,
        damaged_cells,
        contended_rows,
        done,
    }
}
