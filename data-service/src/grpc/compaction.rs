//! `DataAdminService.CompactRows`.

use std::time::Duration;

use futures::StreamExt as _;
use oxtsdb_maintenance::compaction::{
    CompactionError, Compactor, Courtesy, Figures, Finding, LEAST_MIN_AGE, NotCompactable, Pass, Problem,
    Rate, Step,
};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::compact_rows_response::{Finding as FindingMessage, Problem as ProblemMessage};
use oxtsdb_proto::data::v1::{CompactRowsRequest, CompactRowsResponse};
use oxtsdb_proto::error::status;
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Admitted, Engine, Hours, QueryDescription, QueryError, ResolvedNames};
use oxtsdb_schema::{MetricUid, UidKind};
use oxtsdb_server::Shutdown;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::DataServiceHandler;
use super::query::convert::{millis, range};
use super::query::query_status;
use super::results::context_of;
use super::status::store_status;

/// The age of a row's newest cell unless the request has one.
const DEFAULT_MIN_AGE: Duration = Duration::from_secs(600);

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(2);

/// Messages that wait for the client.
const QUEUED: usize = 2;

/// Rows that a stream describes.
const MAX_FINDINGS: usize = 100;

type Messages = MessageStream<CompactRowsResponse>;
type Sender = mpsc::Sender<Result<CompactRowsResponse, Status>>;

/// `DataAdminService.CompactRows`. The response begins when the call is admitted.
pub(super) async fn compact_rows(
    handler: &DataServiceHandler,
    request: Request<CompactRowsRequest>,
) -> Result<Response<Messages>, Status> {
    let engine = &handler.engine;
    let compactor = Compactor::from_engine(engine, handler.settings.writing.use_otsdb_timestamp)
        .map_err(not_compactable_status)?;
    let context = context_of(&request);
    let request = request.into_inner();
    let least_ms = i64::try_from(LEAST_MIN_AGE.as_millis()).unwrap_or(i64::MAX);
    let min_age = match &request.min_age {
        None => DEFAULT_MIN_AGE,
        Some(age) => Duration::from_millis(millis("min_age", age, least_ms)?.unsigned_abs()),
    };
    let hours = match &request.range {
        None => Hours::ALL,
        Some(_) => {
            let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
            Hours::overlapping(start_ms, stop_ms - 1)
        }
    };
    let what = match request.metric.as_str() {
        "" => "compact:*".to_owned(),
        metric => format!("compact:{metric}"),
    };
    let description = QueryDescription {
        sub_queries: vec![what],
        range_ms: (hours.start.millis(), hours.stop_ms()),
    };
    let table = engine.storage().table.to_string();
    let failed = |error: QueryError| query_status(&error, "metric", &table);
    let admitted = engine.admit(context, description, None).await.map_err(failed)?;
    let metric = match request.metric.as_str() {
        "" => None,
        name => Some(metric(engine, name, &admitted).await.map_err(failed)?),
    };
    let limit = |rate: u64| Some(rate).filter(|rate| *rate > 0);
    let pass = Pass {
        metric,
        hours,
        start_after_row_key: request.start_after_row_key.to_vec(),
        min_age,
        rate: Rate {
            rows_per_second: limit(request.rows_per_second),
            bytes_per_second: limit(request.bytes_per_second),
        },
        courtesy: Courtesy::None,
    };
    let (sender, receiver) = mpsc::channel(QUEUED);
    tokio::spawn(run(compactor, pass, sender, admitted, handler.shutdown.clone()));
    Ok(Response::new(ReceiverStream::new(receiver).boxed()))
}

async fn metric(engine: &Engine, name: &str, admitted: &Admitted) -> Result<MetricUid, QueryError> {
    let context = admitted.context();
    let directory = &*engine.storage().directory;
    let names = ResolvedNames::resolve([(UidKind::Metric, name)], directory, context.deadline()).await?;
    names.uid(UidKind::Metric, name).map(MetricUid::new)
}

/// The work of a pass since the last message.
#[derive(Debug, Default)]
struct Progress {
    figures: Figures,
    findings: Vec<Finding>,
    findings_seen: usize,
    last_row_key: Vec<u8>,
}

impl Progress {
    fn step(&mut self, step: Step<'_>) {
        self.figures.add(step.figures);
        self.last_row_key = step.last_row_key.to_vec();
        let left = MAX_FINDINGS.saturating_sub(self.findings_seen);
        self.findings_seen += step.findings.len();
        self.findings.extend(step.findings.into_iter().take(left));
    }

    /// The message; empties this.
    fn message(&mut self) -> CompactRowsResponse {
        let findings = std::mem::take(&mut self.findings);
        let findings = findings.into_iter().map(finding).collect();
        let figures = std::mem::take(&mut self.figures);
        CompactRowsResponse {
            last_row_key: self.last_row_key.clone().into(),
            findings,
            ..message(&figures)
        }
    }
}

/// Runs a pass and reports it, until the client is gone, an operator cancels it or the server drains.
async fn run(compactor: Compactor, pass: Pass, sender: Sender, admitted: Admitted, shutdown: Shutdown) {
    let progress = Mutex::new(Progress::default());
    let mut running = Box::pin(compactor.run(pass, |step| progress.lock().step(step)));
    let mut ticks = tokio::time::interval(PROGRESS);
    let ended = loop {
        tokio::select! {
            ended = &mut running => break ended.map_err(|error| compaction_status(&error)),
            () = sender.closed() => return,
            () = admitted.context().cancellation().cancelled() => {
                break Err(query_status(&QueryError::Cancelled, "", ""));
            }
            () = shutdown.draining() => {
                let message = "the server is shutting down; resume after the last row at another one";
                break Err(status(Code::Unavailable, ErrorReason::Draining, message, &[]));
            }
            _ = ticks.tick() => {
                // While the client does not read, figures add up.
                let mut progress = progress.lock();
                if progress.figures.rows > 0 && let Ok(permit) = sender.try_reserve() {
                    permit.send(Ok(progress.message()));
                }
            }
        }
    };
    drop(running);
    let mut progress = progress.into_inner();
    // Finished work counts, also before an error. The client may have gone.
    if progress.figures.rows > 0 || ended.is_ok() {
        let mut last = progress.message();
        last.done = ended.is_ok();
        drop(sender.send(Ok(last)).await);
    }
    if let Err(error) = ended {
        drop(sender.send(Err(error)).await);
    }
}

fn not_compactable_status(error: NotCompactable) -> Status {
    let (reason, metadata): (_, &[_]) = match error {
        NotCompactable::Embedded => (ErrorReason::EmbeddedStore, &[]),
        NotCompactable::DataTimestamps => (
            ErrorReason::FeatureDisabled,
            &[("setting", "--use-otsdb-timestamp")],
        ),
    };
    status(Code::FailedPrecondition, reason, error.to_string(), metadata)
}

fn compaction_status(error: &CompactionError) -> Status {
    match error {
        CompactionError::Store(error) => store_status(error),
        CompactionError::Panicked(_) => status(Code::Internal, ErrorReason::Internal, error.to_string(), &[]),
    }
}

fn finding(finding: Finding) -> FindingMessage {
    let problem = match finding.problem {
        Problem::Damaged => ProblemMessage::Damaged,
        Problem::Conflicting => ProblemMessage::Conflicting,
        Problem::InvalidKey => ProblemMessage::InvalidKey,
        Problem::Unconfirmed => ProblemMessage::Unconfirmed,
    };
    FindingMessage {
        row_key: finding.row_key.into(),
        problem: problem.into(),
        detail: finding.detail,
    }
}

fn message(figures: &Figures) -> CompactRowsResponse {
    CompactRowsResponse {
        rows: figures.rows,
        bytes: figures.bytes,
        compacted: figures.compacted,
        already_compact: figures.already_compact,
        appended: figures.appended,
        recent: figures.recent,
        too_large: figures.too_large,
        data_timestamps: figures.data_timestamps,
        damaged: figures.damaged,
        conflicting: figures.conflicting,
        invalid_keys: figures.invalid_keys,
        unconfirmed: figures.unconfirmed,
        points: figures.points,
        cells_before: figures.cells_before,
        cells_after: figures.cells_after,
        bytes_before: figures.bytes_before,
        bytes_after: figures.bytes_after,
        ..CompactRowsResponse::default()
    }
}

#[cfg(test)]
mod tests;
