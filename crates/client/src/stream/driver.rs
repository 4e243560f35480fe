//! The task that owns batches until they are acknowledged.
//!
//! ```text
//!   commands ─► unacknowledged: [ in flight | not yet sent ] ─► session
//!                      └──────── acks remove from the front ◄──────┘
//! ```
//!
//! The server's window bounds the frames in flight, and a batch is accepted only when all before it are sent,
//! so the window bounds the memory too.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::warn;

use super::batch::Batch;
use super::outcome::{Acknowledged, FailedPoint, Observers, WriteReport};
use super::session::{Completed, Session};
use crate::call::Connection;
use crate::failures::FailedRange;
use crate::{Error, SeriesName};

/// Pauses before a stream is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What the writer sends.
#[derive(Debug)]
pub(super) enum Command {
    /// Write these points.
    Write(Box<Batch>),
    /// Confirm when all batches before are acknowledged.
    Flush(oneshot::Sender<()>),
}

/// What the writer and its driver share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Outcomes since the writer last took them.
    report: Mutex<WriteReport>,
    /// All points before this index are acknowledged.
    acknowledged: AtomicU64,
}

impl Shared {
    /// Takes the outcomes so far.
    pub(super) fn take_report(&self) -> WriteReport {
        std::mem::take(&mut self.report())
    }

    /// All points before this index are acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    fn report(&self) -> MutexGuard<'_, WriteReport> {
        // Counts stay right even if an observer panicked.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends batches until the writer is dropped or the service fails for longer than the patience.
#[derive(Debug)]
pub(super) struct Driver {
    pub(super) connection: Connection,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) shared: Arc<Shared>,
    pub(super) observers: Observers,
    /// How long to reconnect without any progress before giving up.
    pub(super) patience: Duration,
    /// The series that batches refer to.
    pub(super) dictionary: Vec<SeriesName>,
    /// Those in flight come first.
    pub(super) unacknowledged: VecDeque<Batch>,
    /// A batch that starts a dictionary waits here until all before it are acknowledged.
    pub(super) next: Option<Batch>,
    /// Confirmed when all is acknowledged; no command is received before.
    pub(super) flush: Option<oneshot::Sender<()>>,
}

/// How a session ended.
enum End {
    /// The writer is closed, and everything is acknowledged.
    Done,
    /// Continue on another stream.
    Reopen,
}

impl Driver {
    /// Runs until the writer is dropped; the first batches go to `session`.
    ///
    /// # Errors
    ///
    /// The error that a retry does not mend, or that persisted for longer than the patience.
    pub(super) async fn run(mut self, session: Session) -> Result<(), Error> {
        let mut session = Some(session);
        let mut pause = FIRST_PAUSE;
        let mut failing_since: Option<Instant> = None;
        loop {
            let acknowledged = self.shared.acknowledged();
            let result = match session.take() {
                Some(session) => self.session(session).await,
                None => match Session::open(&self.connection).await {
                    Ok(session) => self.session(session).await,
                    Err(error) => Err(error),
                },
            };
            let progressed = self.shared.acknowledged() > acknowledged || self.unacknowledged.is_empty();
            if progressed {
                failing_since = None;
                pause = FIRST_PAUSE;
            }
            match result {
                Ok(End::Done) => return Ok(()),
                Ok(End::Reopen) => {}
                Err(error) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    if !error.is_retry_safe() || since.elapsed() >= self.patience {
                        return Err(error);
                    }
                    warn!(%error, "write stream broke, reconnecting");
                    tokio::time::sleep(pause.max(error.retry_delay().unwrap_or_default())).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn session(&mut self, mut session: Session) -> Result<End, Error> {
        let mut closed = false;
        loop {
            self.send_what_fits(&mut session);
            if session.is_draining() && session.in_flight() == 0 {
                session.close().await;
                return Ok(End::Reopen);
            }
            if self.unacknowledged.is_empty() {
                if let Some(next) = self.next.take() {
                    // The stream's tables have the series of the old dictionary.
                    self.dictionary.clear();
                    self.add(next);
                    session.close().await;
                    return Ok(End::Reopen);
                }
                if let Some(flush) = self.flush.take() {
                    // The writer may have stopped waiting.
                    let _ = flush.send(());
                }
                if closed {
                    session.close().await;
                    return Ok(End::Done);
                }
            }
            let all_sent = session.in_flight() == self.unacknowledged.len();
            let accepts = all_sent && self.next.is_none() && self.flush.is_none() && !closed;
            tokio::select! {
                command = self.commands.recv(), if accepts && !session.is_draining() => match command {
                    Some(Command::Write(batch)) if batch.starts_dictionary => self.next = Some(*batch),
                    Some(Command::Write(batch)) => self.add(*batch),
                    Some(Command::Flush(flush)) => self.flush = Some(flush),
                    None => closed = true,
                },
                completed = session.next() => if let Some(completed) = completed? {
                    self.complete(completed);
                },
            }
        }
    }

    fn add(&mut self, mut batch: Batch) {
        self.dictionary.append(&mut batch.new_series);
        self.unacknowledged.push_back(batch);
    }

    fn send_what_fits(&self, session: &mut Session) {
        while let Some(batch) = self.unacknowledged.get(session.in_flight()) {
            if !session.accepts(batch) {
                return;
            }
            session.send(batch, &self.dictionary);
        }
    }

    /// Removes the batches of completed frames and reports their outcome.
    fn complete(&mut self, completed: Completed) {
        let batches: Vec<Batch> = self.unacknowledged.drain(..completed.frames).collect();
        let points: u64 = batches.iter().map(|batch| batch.points() as u64).sum();
        let mut failures = Vec::new();
        for (place, failed) in &completed.failures {
            if let Some(batch) = batches.get(*place) {
                let points = failed.iter().flat_map(|range| self.failed_points(batch, range));
                failures.extend(points);
            }
        }
        failures.sort_by_key(|point| point.index);
        let first_index = self.shared.acknowledged();
        let acknowledged = Acknowledged {
            first_index,
            points,
            written: completed.written,
            failed: failures.len() as u64,
        };
        self.observers
            .report(&mut self.shared.report(), failures, acknowledged);
        self.shared
            .acknowledged
            .store(first_index + points, Ordering::Relaxed);
    }

    fn failed_points(&self, batch: &Batch, range: &FailedRange) -> impl Iterator<Item = FailedPoint> {
        let positions = range.first..range.end;
        let points = positions.map_while(|position| batch.point(usize::try_from(position).ok()?));
        points.filter_map(|point| {
            Some(FailedPoint {
                index: batch.first_index + u64::from(point.offset),
                series: self.dictionary.get(point.series as usize)?.clone(),
                timestamp: point.timestamp,
                retryable: range.retryable,
                rejection: range.rejection.clone(),
            })
        })
    }
}
