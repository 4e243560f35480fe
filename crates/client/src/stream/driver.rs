//! The task that owns batches until they are acknowledged.
//!
//! ```text
//!   commands ─► unacknowledged: [ in flight | not yet sent ] ─► session
//!                      └──────── acks remove from the front ◄──────┘
//! ```
//!
//! The server's window bounds the frames in flight, and a batch is accepted only when all before it are sent,
//! so the window bounds the memory too.
//!
//! A stream that breaks while it has nothing to send is opened again for the next batch, not before. The patience
//! bounds the time in which batches are pending and none is acknowledged.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Code;
use tracing::{debug, warn};

use super::batch::Batch;
use super::outcome::{Acknowledged, FailedPoint, Observers, WriteReport};
use super::session::{Completed, Session};
use crate::call::Connection;
use crate::failures::FailedRange;
use crate::{Error, SeriesName};

/// Pauses before a stream is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// A command of the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// Write these points.
    Write(Box<Batch>),
    /// Confirm when all batches before are acknowledged.
    Flush(oneshot::Sender<()>),
}

/// State that the writer and its driver share.
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

/// Attempts to open a stream since the last progress.
struct Attempts {
    patience: Duration,
    pauses: ExponentialBackoff,
    failing_since: Option<Instant>,
}

impl Attempts {
    fn new(patience: Duration) -> Self {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_jitter()
            .without_max_times();
        Self {
            patience,
            pauses: pauses.build(),
            failing_since: None,
        }
    }

    /// How much longer attempts may take; the patience begins with the first.
    fn patience_left(&mut self) -> Duration {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        self.patience.saturating_sub(since.elapsed())
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    ///
    /// `error`, if a retry does not mend it, or the patience ends with the pause.
    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        let pause = self.pauses.next().unwrap_or(LONGEST_PAUSE);
        let pause = pause.max(error.retry_delay().unwrap_or_default());
        if !error.is_retry_safe() || self.patience_left() <= pause {
            return Err(error);
        }
        warn!(%error, "write stream broke, reconnecting");
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

impl Driver {
    /// Runs until the writer is dropped; the first batches go to `session`.
    ///
    /// # Errors
    ///
    /// The error that a retry does not mend, or that persisted for longer than the patience.
    pub(super) async fn run(mut self, session: Session) -> Result<(), Error> {
        let mut session = Some(session);
        let mut attempts = Attempts::new(self.patience);
        loop {
            let acknowledged = self.shared.acknowledged();
            let result = match session.take() {
                Some(session) => self.session(session).await,
                None if !self.has_batch().await => return Ok(()),
                None => match open(&self.connection, attempts.patience_left()).await {
                    Ok(session) => self.session(session).await,
                    Err(error) => Err(error),
                },
            };
            let progressed = self.shared.acknowledged() > acknowledged;
            if progressed {
                attempts = Attempts::new(self.patience);
            }
            match result {
                Ok(End::Done) => return Ok(()),
                Ok(End::Reopen) if progressed || self.unacknowledged.is_empty() => {}
                Ok(End::Reopen) => attempts.pause(draining()).await?,
                Err(error) if self.unacknowledged.is_empty() && error.is_retry_safe() => {
                    debug!(%error, "idle write stream broke");
                }
                Err(error) => attempts.pause(error).await?,
            }
        }
    }

    /// Waits, without a stream, until there is a batch to send; returns false if the writer is closed.
    async fn has_batch(&mut self) -> bool {
        while self.unacknowledged.is_empty() {
            if self.start_dictionary() {
                return true;
            }
            self.confirm_flush();
            match self.commands.recv().await {
                Some(command) => self.receive(command),
                None => return false,
            }
        }
        true
    }

    fn receive(&mut self, command: Command) {
        match command {
            Command::Write(batch) if batch.starts_dictionary => self.next = Some(*batch),
            Command::Write(batch) => self.add(*batch),
            Command::Flush(flush) => self.flush = Some(flush),
        }
    }

    /// Starts the dictionary of the batch that waits for it, if there is one. All batches before it are acknowledged.
    fn start_dictionary(&mut self) -> bool {
        let Some(next) = self.next.take() else {
            return false;
        };
        self.dictionary.clear();
        self.add(next);
        true
    }

    /// Confirms a flush. All batches before it are acknowledged.
    fn confirm_flush(&mut self) {
        if let Some(flush) = self.flush.take() {
            // The writer may have stopped waiting.
            let _ = flush.send(());
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
                if self.start_dictionary() {
                    // The stream's tables have the series of the old dictionary.
                    session.close().await;
                    return Ok(End::Reopen);
                }
                self.confirm_flush();
                if closed {
                    session.close().await;
                    return Ok(End::Done);
                }
            }
            let all_sent = session.in_flight() == self.unacknowledged.len();
            let accepts = all_sent && self.next.is_none() && self.flush.is_none() && !closed;
            tokio::select! {
                command = self.commands.recv(), if accepts && !session.is_draining() => match command {
                    Some(command) => self.receive(command),
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

/// Opens a stream within the patience: a server may accept the connection and never respond.
async fn open(connection: &Connection, patience: Duration) -> Result<Session, Error> {
    tokio::time::timeout(patience, Session::open(connection))
        .await
        .unwrap_or(Err(Error::DeadlineExceeded))
}

/// The error of a server that drains each stream before it acknowledges a frame.
fn draining() -> Error {
    Error::Connection {
        code: Code::Unavailable,
        message: "the server is draining".to_owned(),
    }
}

#[cfg(test)]
mod tests;
