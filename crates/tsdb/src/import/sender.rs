//! Sends batches on a WriteStream, and sends again what a broken stream had not acknowledged.
//!
//! ```text
//!   batches ─► unacknowledged: [ sent | not yet sent ] ─► frames ─► server
//!                     └──────── acks take from the front ◄── acks ───┘
//! ```
//!
//! The server's window bounds what is sent, and a batch is taken only when all before it are sent,
//! so the window bounds the memory too.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use oxtsdb_proto::common::v1::ItemError;
use oxtsdb_proto::data::v1::write_stream_request::{Message as Outgoing, Open};
use oxtsdb_proto::data::v1::write_stream_response::{Ack, Message as Incoming, Opened};
use oxtsdb_proto::data::v1::{WriteStreamRequest, WriteStreamResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};
use tracing::warn;

use super::batch::Batch;
use super::frame::{Declared, StreamNumbers};
use super::report::Report;
use crate::remote::{Target, describe, may_pass};

/// Errors that are asked for with an ack; a window has no more points.
const MAX_ERRORS: u32 = 1_000_000;

/// Called with the points that an ack speaks for.
pub(super) type OnAck = Box<dyn Fn(u64) + Send>;

/// Sends batches until there are no more.
pub(super) struct Sender {
    target: Target,
    report: Arc<Mutex<Report>>,
    /// How long to try again without any ack before giving up.
    patience: Duration,
    on_ack: OnAck,
    declared: Declared,
    /// Sent ones first.
    unacknowledged: VecDeque<Batch>,
    /// The batches that begin a fresh dictionary wait here until all before are acknowledged.
    next: Option<Batch>,
    last_progress: Instant,
}

/// A stream that is open.
pub(super) struct Session {
    requests: mpsc::UnboundedSender<WriteStreamRequest>,
    responses: Streaming<WriteStreamResponse>,
    opened: Opened,
    numbers: StreamNumbers,
    /// Sequence numbers given.
    sequence: u64,
    /// Of the unacknowledged batches so many are sent, with so many points.
    sent: usize,
    sent_points: u64,
    draining: bool,
}

/// Why a session came to its end without an error.
enum End {
    /// All is acknowledged.
    Done,
    /// A new stream is to go on.
    GoOn,
}

impl Session {
    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// The status of the server.
    pub(super) async fn open(target: &Target) -> Result<Self, Status> {
        let (requests, outgoing) = mpsc::unbounded_channel();
        let open = Open {
            client_name: concat!("tsdb import ", env!("CARGO_PKG_VERSION")).to_owned(),
            max_errors: MAX_ERRORS,
            ..Open::default()
        };
        // The receiver is in our hands.
        let _ = requests.send(WriteStreamRequest {
            message: Some(Outgoing::Open(open)),
        });
        let mut responses = target
            .data()
            .write_stream(UnboundedReceiverStream::new(outgoing))
            .await?
            .into_inner();
        let Some(Incoming::Opened(opened)) = responses.message().await?.and_then(|answer| answer.message)
        else {
            return Err(Status::unavailable("the stream ended before it was opened"));
        };
        Ok(Self {
            requests,
            responses,
            opened,
            numbers: StreamNumbers::default(),
            sequence: 0,
            sent: 0,
            sent_points: 0,
            draining: false,
        })
    }

    /// The most series that the server lets a stream declare.
    pub(super) fn max_series(&self) -> usize {
        self.opened.max_series as usize
    }

    /// The most points that the server takes in one frame.
    pub(super) fn window_points(&self) -> usize {
        usize::try_from(self.opened.window_points).unwrap_or(usize::MAX)
    }

    fn has_room_for(&self, batch: &Batch) -> bool {
        let points = self.sent_points + batch.points() as u64;
        let empty = self.sent == 0;
        // A window of less than one batch would stop us for good.
        empty || (self.sent < self.opened.window_frames as usize && points <= self.opened.window_points)
    }

    fn send(&mut self, batch: &Batch, declared: &Declared) {
        self.sequence += 1;
        self.sent += 1;
        self.sent_points += batch.points() as u64;
        let frame = self.numbers.frame(batch, declared, self.sequence);
        // If the stream is broken, its answers say so.
        let _ = self.requests.send(WriteStreamRequest {
            message: Some(Outgoing::Frame(frame)),
        });
    }

    /// Closes our side, and waits for the server to close its own.
    async fn close(self) {
        let Self {
            requests,
            mut responses,
            ..
        } = self;
        drop(requests);
        // All is acknowledged, so whatever comes now changes nothing.
        while let Ok(Some(_)) = responses.message().await {}
    }
}

impl Sender {
    /// A sender to a data service; it gives up after `patience` without an ack while the service
    /// is unavailable.
    pub(super) fn new(target: Target, report: Arc<Mutex<Report>>, patience: Duration, on_ack: OnAck) -> Self {
        Self {
            target,
            report,
            patience,
            on_ack,
            declared: Declared::default(),
            unacknowledged: VecDeque::new(),
            next: None,
            last_progress: Instant::now(),
        }
    }

    /// Sends all batches, the first ones on `session`.
    ///
    /// # Errors
    ///
    /// The status that ended it. What was not acknowledged: see [`Sender::first_unacknowledged`].
    pub(super) async fn run(
        &mut self,
        session: Session,
        batches: &mut mpsc::Receiver<Batch>,
    ) -> Result<(), Status> {
        let mut session = Some(session);
        let mut delay = Duration::from_millis(50);
        loop {
            let progress = self.last_progress;
            let result = match session.take() {
                Some(session) => self.session(session, batches).await,
                None => match Session::open(&self.target).await {
                    Ok(session) => self.session(session, batches).await,
                    Err(status) => Err(status),
                },
            };
            match result {
                Ok(End::Done) => return Ok(()),
                Ok(End::GoOn) => {}
                Err(status) if may_pass(&status) && self.last_progress.elapsed() < self.patience => {
                    warn!(status = describe(&status), "the stream broke, trying again");
                }
                Err(status) => return Err(status),
            }
            delay = if self.last_progress > progress {
                Duration::from_millis(50)
            } else {
                (delay * 2).min(Duration::from_secs(2))
            };
            tokio::time::sleep(delay).await;
        }
    }

    /// File and line of the first point that is not acknowledged, after an error.
    pub(super) fn first_unacknowledged(&self) -> Option<(usize, u64)> {
        let batch = self.unacknowledged.front().or(self.next.as_ref())?;
        Some((batch.file, batch.first_line()))
    }

    async fn session(
        &mut self,
        mut session: Session,
        batches: &mut mpsc::Receiver<Batch>,
    ) -> Result<End, Status> {
        let mut ended = false;
        loop {
            self.send_what_fits(&mut session);
            if session.sent == 0 && session.draining {
                session.close().await;
                return Ok(End::GoOn);
            }
            if self.unacknowledged.is_empty() {
                if let Some(mut next) = self.next.take() {
                    // The numbers of the stream are those of the old dictionary.
                    self.declared.add(&mut next);
                    self.unacknowledged.push_back(next);
                    session.close().await;
                    return Ok(End::GoOn);
                }
                if ended {
                    session.close().await;
                    return Ok(End::Done);
                }
            }
            let all_sent = session.sent == self.unacknowledged.len() && self.next.is_none();
            tokio::select! {
                batch = batches.recv(), if all_sent && !ended && !session.draining => match batch {
                    Some(batch) if batch.fresh => self.next = Some(batch),
                    Some(mut batch) => {
                        self.declared.add(&mut batch);
                        self.unacknowledged.push_back(batch);
                    }
                    None => ended = true,
                },
                answer = session.responses.message() => match answer?.map(|answer| answer.message) {
                    Some(Some(Incoming::Ack(ack))) => self.acknowledge(&mut session, &ack)?,
                    Some(Some(Incoming::Draining(_))) => session.draining = true,
                    Some(Some(Incoming::Opened(_)) | None) => {
                        return Err(Status::internal("the server sent a message that has no place here"));
                    }
                    None => return Err(Status::unavailable("the server ended the stream")),
                },
            }
        }
    }

    fn send_what_fits(&self, session: &mut Session) {
        while let Some(batch) = self.unacknowledged.get(session.sent) {
            if session.draining || !session.has_room_for(batch) {
                return;
            }
            session.send(batch, &self.declared);
        }
    }

    /// Takes what an ack speaks for from the front.
    ///
    /// # Errors
    ///
    /// UNAVAILABLE if some points may be stored later, for example when the UID service is there again: all
    /// that the ack speaks for is to be sent again, which changes nothing of what was stored.
    fn acknowledge(&mut self, session: &mut Session, ack: &Ack) -> Result<(), Status> {
        if let Some(error) = transient(ack) {
            return Err(Status::unavailable(error.message.clone()));
        }
        // Frames have the numbers up to `sequence`, and the last `sent` of them are open.
        let first_open = session.sequence + 1 - session.sent as u64;
        self.report_errors(ack, first_open);
        let mut points = 0;
        while session.sent > 0 && session.sequence + 1 - session.sent as u64 <= ack.sequence {
            let Some(batch) = self.unacknowledged.pop_front() else {
                break;
            };
            session.sent -= 1;
            session.sent_points -= batch.points() as u64;
            points += batch.points() as u64;
        }
        self.last_progress = Instant::now();
        (self.on_ack)(points);
        Ok(())
    }

    fn report_errors(&self, ack: &Ack, first_open: u64) {
        let mut report = report(&self.report);
        report.written += ack.written;
        let mut unnamed = ack.failed;
        for frame_error in &ack.errors {
            let index = frame_error.sequence.checked_sub(first_open);
            let batch = index
                .and_then(|index| usize::try_from(index).ok())
                .and_then(|index| self.unacknowledged.get(index));
            let (Some(batch), Some(error)) = (batch, &frame_error.error) else {
                continue;
            };
            let reason = error
                .error
                .as_ref()
                .map_or("rejected", |error| error.message.as_str());
            let first = usize::try_from(error.point).unwrap_or(usize::MAX);
            let count = usize::try_from(error.count.max(1)).unwrap_or(usize::MAX);
            for line in (first..first.saturating_add(count)).map_while(|point| batch.line(point)) {
                report.reject(batch.file, line, &reason);
                unnamed = unnamed.saturating_sub(1);
            }
        }
        let batches = self.unacknowledged.iter().zip(first_open..=ack.sequence);
        let first = batches.clone().next();
        if let (Some((first, _)), Some((last, _))) = (first, batches.last()) {
            let from = report.place(first.file, first.first_line());
            let to = report.place(last.file, last.last_line());
            report.reject_unnamed(unnamed, &format!("{from} to {to}"));
        }
    }
}

/// The first error of an ack that a retry may mend.
fn transient(ack: &Ack) -> Option<&ItemError> {
    let mut errors = ack
        .errors
        .iter()
        .filter_map(|error| error.error.as_ref()?.error.as_ref());
    errors.find(|error| error.retryable)
}

fn report(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    // Counts stay right even if another thread panicked.
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
