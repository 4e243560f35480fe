//! `StoreAdminService`.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use oxtsdb_ingest::Writer;
use oxtsdb_maintenance::store_admin::{SnapshotError, StoreAdmin};
use oxtsdb_point_store::parts::PartsStats;
use oxtsdb_point_store::parts::days::check::{Checked, DayStats};
use oxtsdb_point_store::{DamagedPart, PointStore as _, PointStoreError};
use oxtsdb_proto::common::v1::time_range::{End, Start};
use oxtsdb_proto::common::v1::{ErrorReason, TimeRange};
use oxtsdb_proto::data::v1::check_store_response::{self as check, Finding, Summary};
use oxtsdb_proto::data::v1::create_snapshot_response::{self as created, Snapshot};
use oxtsdb_proto::data::v1::get_store_stats_response::{Damage, Day, Metric};
use oxtsdb_proto::data::v1::store_admin_service_server::StoreAdminService;
use oxtsdb_proto::data::v1::{
    CheckStoreRequest, CheckStoreResponse, CreateSnapshotRequest, CreateSnapshotResponse,
    GetStoreStatsRequest, GetStoreStatsResponse,
};
use oxtsdb_proto::error::{invalid_field, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::Engine;
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{Uid, UidKind};
use oxtsdb_server::deadline_of;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::status::store_status;

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(2);

/// Messages that wait for the client.
const QUEUED: usize = 16;

/// Metrics of a response at most.
const MAX_METRICS: u32 = 1000;

/// Serves `oxtsdb.data.v1.StoreAdminService`. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct StoreAdminHandler {
    /// `None`: the points are not in an embedded store.
    admin: Option<StoreAdmin>,
    engine: Engine,
    writer: Writer,
}

impl StoreAdminHandler {
    pub(crate) fn new(admin: Option<StoreAdmin>, engine: Engine, writer: Writer) -> Self {
        Self {
            admin,
            engine,
            writer,
        }
    }

    fn admin(&self) -> Result<&StoreAdmin, Status> {
        let message = "this call is one of the embedded store, and the server stores points in HBase";
        let error = || status(Code::FailedPrecondition, ErrorReason::NotEmbedded, message, &[]);
        self.admin.as_ref().ok_or_else(error)
    }
}

#[tonic::async_trait]
impl StoreAdminService for StoreAdminHandler {
    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<MessageStream<CreateSnapshotResponse>>, Status> {
        let admin = self.admin()?.clone();
        let folder = request.into_inner().folder;
        let (sender, receiver) = mpsc::channel(QUEUED);
        tokio::spawn(create(admin, folder, sender));
        Ok(Response::new(ReceiverStream::new(receiver).boxed()))
    }

    async fn check_store(
        &self,
        request: Request<CheckStoreRequest>,
    ) -> Result<Response<MessageStream<CheckStoreResponse>>, Status> {
        let admin = self.admin()?.clone();
        let rate = request.into_inner().bytes_per_second;
        let rate = rate.unwrap_or_else(|| admin.check_bytes_per_second());
        let (sender, receiver) = mpsc::channel(QUEUED);
        tokio::spawn(check(admin, rate, sender));
        Ok(Response::new(ReceiverStream::new(receiver).boxed()))
    }

    async fn get_store_stats(
        &self,
        request: Request<GetStoreStatsRequest>,
    ) -> Result<Response<GetStoreStatsResponse>, Status> {
        let admin = self.admin()?.clone();
        let deadline = deadline_of(request.extensions());
        let top = request.into_inner().top_metrics;
        if top > MAX_METRICS {
            let rule = format!("is {top}, expected at most {MAX_METRICS}");
            return Err(invalid_field("top_metrics", rule));
        }
        let mut response = stats(&admin, self.writer.too_old_points());
        let mut metrics = admin.points().metric_counts();
        metrics.sort_by_key(|(_, series)| Reverse(*series));
        metrics.truncate(top as usize);
        let uids: Vec<Uid> = metrics.iter().map(|(uid, _)| (*uid).into()).collect();
        // Names are a help for the reader: the figures are served without the UID service, too.
        let names = self
            .engine
            .storage()
            .directory
            .names(UidKind::Metric, &uids, deadline)
            .await;
        let mut names = names.unwrap_or_default().into_iter();
        response.metrics = metrics
            .into_iter()
            .map(|(uid, series)| Metric {
                uid: uid.as_bytes().to_vec().into(),
                name: names
                    .next()
                    .flatten()
                    .map_or_else(String::new, |name| name.to_string()),
                series,
            })
            .collect();
        Ok(Response::new(response))
    }
}

/// Makes a snapshot, also if the client goes.
async fn create(
    admin: StoreAdmin,
    folder: String,
    sender: mpsc::Sender<Result<CreateSnapshotResponse, Status>>,
) {
    let (stage, mut stages) = watch::channel("");
    let progress = move |store| {
        stage.send_replace(store);
    };
    let mut running = std::pin::pin!(admin.create_snapshot(&folder, progress));
    let mut ticks = tokio::time::interval(PROGRESS);
    let made = loop {
        tokio::select! {
            made = &mut running => break made,
            _ = ticks.tick() => {}
            Ok(()) = stages.changed() => {}
        }
        let store = (*stages.borrow_and_update()).to_owned();
        let event = created::Event::Progress(created::Progress { store });
        // A client that does not read has enough of them.
        drop(sender.try_send(Ok(CreateSnapshotResponse { event: Some(event) })));
    };
    let response = made.map_err(|error| snapshot_status(&error)).map(|made| {
        let snapshot = Snapshot {
            folder: made.folder.display().to_string(),
            files: made.files,
            bytes: made.bytes,
            stores: made.stores.iter().map(|name| (*name).to_owned()).collect(),
            elapsed: prost_types::Duration::try_from(made.elapsed).ok(),
        };
        CreateSnapshotResponse {
            event: Some(created::Event::Snapshot(snapshot)),
        }
    });
    // The client may have gone.
    drop(sender.send(response).await);
}

fn snapshot_status(error: &SnapshotError) -> Status {
    match error {
        SnapshotError::Folder { .. } => invalid_field("folder", error.to_string()),
        SnapshotError::Busy => busy(error.to_string()),
        SnapshotError::Store(error) => store_status(error),
    }
}

fn busy(message: String) -> Status {
    status(Code::Unavailable, ErrorReason::Overloaded, message, &[])
}

/// Checks the store until the client goes.
async fn check(admin: StoreAdmin, rate: u64, sender: mpsc::Sender<Result<CheckStoreResponse, Status>>) {
    let Ok(lock) = Arc::clone(admin.check_lock()).try_lock_owned() else {
        let message = "another check is running, retry when it is complete".to_owned();
        return drop(sender.send(Err(busy(message))).await);
    };
    let known = admin.damage();
    let total_bytes = admin.part_bytes();
    let read = Arc::new(AtomicU64::new(0));
    let mut running = tokio::task::spawn_blocking({
        let (read, sender) = (Arc::clone(&read), sender.clone());
        move || {
            let _one_at_a_time = lock;
            admin.check(rate, &mut |bytes| {
                read.store(bytes, Ordering::Relaxed);
                !sender.is_closed()
            })
        }
    });
    let mut ticks = tokio::time::interval(PROGRESS);
    let checked = loop {
        tokio::select! {
            checked = &mut running => break checked,
            _ = ticks.tick() => {
                let bytes = read.load(Ordering::Relaxed);
                let progress = check::Progress { bytes, total_bytes };
                drop(sender.try_send(Ok(message(check::Event::Progress(progress)))));
            }
        }
    };
    let checked = checked.unwrap_or_else(|error| {
        Err(PointStoreError::Io {
            place: "check".to_owned(),
            detail: error.to_string(),
        })
    });
    match checked {
        Ok(checked) => drop(report(&sender, &known, checked).await),
        Err(error) => drop(sender.send(Err(store_status(&StoreError::from(error)))).await),
    }
}

/// Sends what a check has found, with the damage that was known before.
async fn report(
    sender: &mpsc::Sender<Result<CheckStoreResponse, Status>>,
    known: &[DamagedPart],
    checked: Checked,
) -> Result<(), mpsc::error::SendError<Result<CheckStoreResponse, Status>>> {
    if checked.was_stopped {
        let message = "the server is shutting down; the check is not complete";
        let stopped = status(Code::Unavailable, ErrorReason::Draining, message, &[]);
        return sender.send(Err(stopped)).await;
    }
    let before = known.iter().map(|part| Finding {
        path: part.path.display().to_string(),
        detail: part.detail.clone(),
    });
    let now = checked.damaged.iter().map(|error| match error {
        PointStoreError::Damaged { path, detail } => Finding {
            path: path.display().to_string(),
            detail: detail.clone(),
        },
        error => Finding {
            path: String::new(),
            detail: error.to_string(),
        },
    });
    let mut damaged = 0;
    for finding in before.chain(now) {
        damaged += 1;
        sender.send(Ok(message(check::Event::Finding(finding)))).await?;
    }
    let summary = Summary {
        files: checked.files as u64,
        bytes: checked.bytes,
        damaged,
    };
    sender.send(Ok(message(check::Event::Summary(summary)))).await
}

fn message(event: check::Event) -> CheckStoreResponse {
    CheckStoreResponse { event: Some(event) }
}

/// All figures but the numbers of series of metrics.
fn stats(admin: &StoreAdmin, points_before_retention: u64) -> GetStoreStatsResponse {
    let PartsStats { figures, days } = admin.points().stats();
    let (counters, merges) = (&figures.counters, &figures.merges);
    let held_back = u64::try_from(figures.clock.held_back_ms).unwrap_or(0);
    let held_back = (held_back > 0).then(|| Duration::from_millis(held_back));
    let duration = |duration: Duration| prost_types::Duration::try_from(duration).ok();
    GetStoreStatsResponse {
        series: figures.series,
        points: figures.points,
        points_written: counters.points.get(),
        parts: figures.parts,
        bytes: figures.part_bytes,
        journal_bytes: figures.journal_bytes,
        journal_bytes_written: counters.journal_bytes.get(),
        head_memory_bytes: figures.head_bytes,
        series_memory_bytes: figures.series_bytes,
        index_memory_bytes: figures.index_bytes,
        flushes: counters.flushes.get(),
        merges: merges.completed.get(),
        failed_merges: merges.failed.get(),
        merged_bytes: merges.bytes_written.get(),
        merge_debt_bytes: figures.merge_debt_bytes,
        retention: admin.retention().and_then(duration),
        retention_edge_ms: admin.points().retention_edge_ms(),
        dropped_days: counters.dropped_days.get(),
        dropped_bytes: counters.dropped_bytes.get(),
        points_before_retention,
        clock_jumps: figures.clock.jumps,
        clock_held_back: held_back.and_then(duration),
        days: days.iter().map(day).collect(),
        metrics: Vec::new(),
        damage: admin.damage().iter().map(damage).collect(),
    }
}

fn day(stats: &DayStats) -> Day {
    Day {
        day: stats.day.to_string(),
        parts: stats.parts as u64,
        bytes: stats.bytes,
        points: stats.points,
        tombstones: stats.tombstones as u64,
        merge_debt_bytes: stats.merge_debt_bytes,
    }
}

fn damage(part: &DamagedPart) -> Damage {
    Damage {
        path: part.path.display().to_string(),
        range: Some(TimeRange {
            start: Some(Start::StartMs(part.range.first_ms)),
            // The first instant outside.
            end: Some(End::EndMs(part.range.last_ms.saturating_add(1))),
        }),
        detail: part.detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::error::reason_of;

    use super::*;
    use oxtsdb_test_stack::TestStack;

    #[tokio::test]
    async fn calls_fail_where_points_are_in_rows() {
        let stack = TestStack::start().await;
        let handler =
            StoreAdminHandler::new(None, stack.service.engine.clone(), stack.service.writer.clone());
        let folder = CreateSnapshotRequest {
            folder: "a".to_owned(),
        };
        let errors = [
            handler.create_snapshot(Request::new(folder)).await.err(),
            handler
                .check_store(Request::new(CheckStoreRequest::default()))
                .await
                .err(),
            handler
                .get_store_stats(Request::new(GetStoreStatsRequest::default()))
                .await
                .err(),
        ];
        for error in errors {
            let error = error.unwrap();
            assert_eq!(error.code(), Code::FailedPrecondition, "{error:?}");
            assert_eq!(reason_of(&error), Some(ErrorReason::NotEmbedded));
        }
    }
}
