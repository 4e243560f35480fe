//! `DataAdminService.FsckRows` and `RepairRows`.

mod convert;
mod repair;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{BoxStream, StreamExt as _};
use oxtsdb_maintenance::fsck::{CheckError, CheckOptions, CheckedBatch};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::fsck_rows_response::{Event, Findings, Progress, Summary, summary};
use oxtsdb_proto::data::v1::{FsckRowsRequest, FsckRowsResponse};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Admitted, Engine, Hours, QueryDescription, QueryError, ResolvedNames};
use oxtsdb_schema::row::{CheckRules, RowFindingType};
use oxtsdb_schema::{MetricUid, UidKind};
use oxtsdb_server::Shutdown;
use oxtsdb_server::repairs::grace_period;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::DataServiceHandler;
use super::query::convert::range;
use super::query::query_status;
use super::results::context_of;
use super::status::store_status;
pub(super) use repair::repair_rows;

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(2);

/// Messages that wait for the client.
const QUEUED: usize = 2;

/// Rows of a message at most.
const MESSAGE_ROWS: usize = 512;

/// The bytes of rows at which a message is closed.
const MESSAGE_BYTES: usize = 1 << 20;

type Messages = MessageStream<FsckRowsResponse>;
type Sender = mpsc::Sender<Result<FsckRowsResponse, Status>>;

/// `DataAdminService.FsckRows`. The response begins when the call is admitted. A check is listed and can be cancelled as a
/// query, but has no time limit.
pub(super) async fn fsck_rows(
    handler: &DataServiceHandler,
    request: Request<FsckRowsRequest>,
) -> Result<Response<Messages>, Status> {
    let engine = &handler.engine;
    let context = context_of(&request);
    let request = request.into_inner();
    let mut options = options(handler, &request)?;
    let Some(permit) = handler.fsck.start() else {
        return Err(status(
            Code::Unavailable,
            ErrorReason::Overloaded,
            "another check is running, retry when it is complete",
            &[("limit", "1")],
        ));
    };
    let what = match request.metric.as_str() {
        "" => "fsck:*".to_owned(),
        metric => format!("fsck:{metric}"),
    };
    let description = QueryDescription {
        sub_queries: vec![what],
        range_ms: (options.hours.start.millis(), options.hours.stop_ms()),
    };
    let table = engine.storage().table.to_string();
    let failed = |error: QueryError| query_status(&error, "metric", &table);
    let admitted = engine.admit(context, description, None).await.map_err(failed)?;
    if !request.metric.is_empty() {
        let metric = metric(engine, &request.metric, &admitted).await;
        options.metric = Some(metric.map_err(failed)?);
    }
    let admitted = Arc::new(admitted);
    let batches = handler.fsck.check(options, Arc::clone(&admitted), permit);
    let (sender, receiver) = mpsc::channel(QUEUED);
    let run = Run {
        sender,
        shutdown: handler.shutdown.clone(),
        table,
        totals: Totals::default(),
        has_other_points: handler.fsck.has_other_points(),
    };
    tokio::spawn(async move {
        // Held until the last message is sent: its end cancels what belongs to it, and the batches end before the summary.
        let admitted = admitted;
        let sender = run.sender.clone();
        let shutdown = run.shutdown.clone();
        let ended = tokio::select! {
            ended = run.run(batches) => ended,
            () = sender.closed() => return,
            () = admitted.context().cancellation().cancelled() => {
                Err(query_status(&QueryError::Cancelled, "", ""))
            }
            () = shutdown.draining() => {
                let message = "the server is shutting down; resume after the last row at another one";
                Err(status(Code::Unavailable, ErrorReason::Draining, message, &[]))
            }
        };
        if let Err(error) = ended {
            // The client may have gone.
            drop(sender.send(Err(error)).await);
        }
    });
    Ok(Response::new(ReceiverStream::new(receiver).boxed()))
}

/// The options of a check, except for its metric.
fn options(handler: &DataServiceHandler, request: &FsckRowsRequest) -> Result<CheckOptions, Status> {
    let mut rules = CheckRules::new(handler.fsck.layout());
    rules.keep = convert::keep("keep", request.keep)?;
    for (index, number) in request.leave.iter().enumerate() {
        let left = convert::finding_type(&format!("leave[{index}]"), *number)?;
        rules.repair.retain(|finding| *finding != left);
    }
    for (index, number) in request.also_repair.iter().enumerate() {
        let field = format!("also_repair[{index}]");
        let repaired = convert::finding_type(&field, *number)?;
        if request.leave.contains(number) {
            return Err(invalid_field(&field, "is also in `leave`"));
        }
        if !rules.repair.contains(&repaired) {
            rules.repair.push(repaired);
        }
    }
    let hours = match &request.range {
        None => Hours::ALL,
        Some(_) => {
            let (start_ms, stop_ms) = range("range", request.range.as_ref(), now_ms())?;
            Hours::overlapping(start_ms, stop_ms - 1)
        }
    };
    let keys = (request.start_row_key.to_vec(), request.stop_row_key.to_vec());
    if !request.metric.is_empty() && (!keys.0.is_empty() || !keys.1.is_empty()) {
        let field = if keys.0.is_empty() {
            "stop_row_key"
        } else {
            "start_row_key"
        };
        return Err(invalid_field(field, "is not allowed with a metric"));
    }
    if !keys.1.is_empty() && keys.1 <= keys.0 {
        return Err(invalid_field("stop_row_key", "is not after start_row_key"));
    }
    Ok(CheckOptions {
        rules,
        metric: None,
        range: keys,
        hours,
        start_after: request.start_after_row_key.to_vec(),
        grace: grace_period(request.grace_period)?,
    })
}

async fn metric(engine: &Engine, name: &str, admitted: &Admitted) -> Result<MetricUid, QueryError> {
    let context = admitted.context();
    let directory = &*engine.storage().directory;
    let names = ResolvedNames::resolve([(UidKind::Metric, name)], directory, context.deadline()).await?;
    names.uid(UidKind::Metric, name).map(MetricUid::new)
}

/// The totals of a check.
#[derive(Debug, Default)]
struct Totals {
    rows: u64,
    cells: u64,
    findings: BTreeMap<RowFindingType, u64>,
    left_alone: u64,
    last_row_key: Vec<u8>,
}

/// Reports a check.
struct Run {
    sender: Sender,
    shutdown: Shutdown,
    table: String,
    totals: Totals,
    has_other_points: bool,
}

impl Run {
    /// # Errors
    ///
    /// Why the check failed.
    async fn run(
        mut self,
        mut batches: BoxStream<'static, Result<CheckedBatch, CheckError>>,
    ) -> Result<(), Status> {
        let mut reported = tokio::time::Instant::now();
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                () = tokio::time::sleep_until(reported + PROGRESS) => {
                    self.progress().await;
                    reported = tokio::time::Instant::now();
                    continue;
                }
            };
            let Some(batch) = batch else { break };
            self.report(batch.map_err(|error| check_status(&error, &self.table))?)
                .await;
            if reported.elapsed() >= PROGRESS {
                self.progress().await;
                reported = tokio::time::Instant::now();
            }
        }
        let summary = Event::Summary(self.summary());
        self.send(summary).await;
        Ok(())
    }

    /// Reports the findings of a batch.
    async fn report(&mut self, batch: CheckedBatch) {
        self.totals.rows += batch.rows;
        self.totals.cells += batch.cells;
        let mut rows = Vec::new();
        let mut bytes = 0;
        for row in batch.rows_with_findings {
            let findings = row.check.findings.iter();
            if row.is_recent {
                self.totals.left_alone += findings.map(|finding| finding.count).sum::<u64>();
                continue;
            }
            for finding in findings {
                *self.totals.findings.entry(finding.finding).or_default() += finding.count;
            }
            let row = convert::row_message(row);
            let length = row.encoded_len();
            if !rows.is_empty() && (rows.len() == MESSAGE_ROWS || bytes + length > MESSAGE_BYTES) {
                let rows = std::mem::take(&mut rows);
                self.send(Event::Findings(Findings { rows })).await;
                bytes = 0;
            }
            bytes += length;
            rows.push(row);
        }
        if !rows.is_empty() {
            self.send(Event::Findings(Findings { rows })).await;
        }
        self.totals.last_row_key = batch.last_row_key;
    }

    async fn progress(&self) {
        let progress = Progress {
            rows: self.totals.rows,
            cells: self.totals.cells,
            findings: self.totals.findings.values().sum(),
            last_row_key: self.totals.last_row_key.clone().into(),
        };
        self.send(Event::Progress(progress)).await;
    }

    fn summary(&self) -> Summary {
        let counts = self
            .totals
            .findings
            .iter()
            .map(|(finding, count)| summary::Count {
                r#type: convert::type_message(*finding).into(),
                severity: convert::severity_message(finding.severity()).into(),
                count: *count,
            });
        Summary {
            rows: self.totals.rows,
            cells: self.totals.cells,
            findings: counts.collect(),
            left_alone: self.totals.left_alone,
            has_other_points: self.has_other_points,
        }
    }

    /// Sends a message. When the client has gone, the check is dropped.
    async fn send(&self, event: Event) {
        drop(
            self.sender
                .send(Ok(FsckRowsResponse { event: Some(event) }))
                .await,
        );
    }
}

fn check_status(error: &CheckError, table: &str) -> Status {
    match error {
        CheckError::Store(error) => store_status(error),
        CheckError::Memory(error) => query_status(error, "", table),
        CheckError::Names(names) => query_status(&QueryError::from(names.clone()), "", table),
        CheckError::Panicked(_) => status(Code::Internal, ErrorReason::Internal, error.to_string(), &[]),
    }
}

#[cfg(test)]
mod tests;
