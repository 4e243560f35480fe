//! `DataAdminService.BuildRollups`.

use futures::stream::{self, StreamExt as _};
use oxtsdb_maintenance::rollup::build::{
    BuildError, BuildProgress, BuildRequest, PlanError, Position, PositionError, RollupBuilder,
};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{BuildRollupsRequest, BuildRollupsResponse};
use oxtsdb_proto::error::{invalid_field, status as error_status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::language::time::now_ms;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::query::convert::range;
use super::query::query_status;
use super::results::context_of;
use super::{DataServiceHandler, status};

/// Messages that wait for the client.
const QUEUED: usize = 4;

/// The most intervals of a request.
const MAX_INTERVALS: usize = 64;

type Messages = MessageStream<BuildRollupsResponse>;

pub(super) fn build_rollups(
    service: &DataServiceHandler,
    request: Request<BuildRollupsRequest>,
) -> Result<Response<Messages>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let range_ms = range("range", request.range.as_ref(), now_ms())?;
    if request.intervals.len() > MAX_INTERVALS {
        let rule = format!(
            "has {} items, at most {MAX_INTERVALS} are allowed",
            request.intervals.len()
        );
        return Err(invalid_field("intervals", rule));
    }
    let position = match request.resume_token.as_ref() {
        [] => None,
        token => Some(Position::decode(token).map_err(|error| position_status(&error))?),
    };
    let build = BuildRequest {
        metric: Some(request.metric).filter(|metric| !metric.is_empty()),
        range_ms,
        intervals: request.intervals,
        position,
        // The caller learns what is wrong, and can go on with other metrics and ranges.
        skips_unreadable: false,
    };
    let (engine, shutdown) = (service.engine.clone(), service.shutdown.clone());
    let table = engine.storage().table.to_string();
    let builder = RollupBuilder::new(
        engine,
        service.writer.uids().clone(),
        shutdown,
        service.rollups.clone(),
    );
    let intervals = builder
        .check(&build)
        .map_err(|error| build_status(&error, &table))?;
    let (sender, receiver) = mpsc::channel(QUEUED);
    let (result_sender, result) = oneshot::channel();
    tokio::spawn(async move {
        let built = builder.build(build, context, &sender).await;
        let last = match built {
            Ok(progress) => Ok(BuildRollupsResponse {
                done: true,
                ..message(progress, &[])
            }),
            Err(error) => Err(build_status(&error, &table)),
        };
        // The caller may have gone.
        let _ = result_sender.send(last);
    });
    let shown = intervals.clone();
    let progress = ReceiverStream::new(receiver).map(move |progress| Ok(message(progress, &shown)));
    let last = stream::once(async move {
        let stopped = || Status::internal("the build of rollups stopped");
        let last = result.await.map_err(|_| stopped())??;
        Ok(BuildRollupsResponse { intervals, ..last })
    });
    Ok(Response::new(progress.chain(last).boxed()))
}

fn message(progress: BuildProgress, intervals: &[String]) -> BuildRollupsResponse {
    BuildRollupsResponse {
        resume_token: progress
            .position
            .map(|position| position.encode().into())
            .unwrap_or_default(),
        intervals: intervals.to_vec(),
        metric: progress.metric,
        parts_done: progress.chunks.0,
        parts: progress.chunks.1,
        points: progress.points,
        cells_written: progress.cells.written,
        cells_unchanged: progress.cells.unchanged,
        cells_removed: progress.cells.removed,
        done: false,
    }
}

fn position_status(error: &PositionError) -> Status {
    invalid_field("resume_token", error.to_string())
}

/// The status of a build that failed; `table` is the table of points.
fn build_status(error: &BuildError, table: &str) -> Status {
    let reason = |code, reason| error_status(code, reason, error.to_string(), &[]);
    match error {
        BuildError::Plan(plan) => match plan {
            PlanError::NotConfigured | PlanError::NoAggregates | PlanError::NoIntervals => {
                reason(Code::FailedPrecondition, ErrorReason::RollupsNotConfigured)
            }
            PlanError::UnknownInterval { .. }
            | PlanError::DefaultInterval { .. }
            | PlanError::Unaligned { .. }
            | PlanError::TooManyIntervals { .. } => invalid_field("intervals", error.to_string()),
        },
        BuildError::Position(error) => position_status(error),
        BuildError::Query(error) => query_status(error, "metric", table),
        BuildError::Uids(error) => status::uids_status(error),
        BuildError::Tag { .. } => reason(Code::FailedPrecondition, ErrorReason::RollupsNotConfigured),
        BuildError::Draining => reason(Code::Unavailable, ErrorReason::Draining),
        BuildError::Gone => reason(Code::Aborted, ErrorReason::ClientTooSlow),
        BuildError::Internal(_) => reason(Code::Internal, ErrorReason::Internal),
    }
}

#[cfg(test)]
mod tests;
