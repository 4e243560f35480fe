//! `WriteStream`: frames in, cumulative acks out.
//!
//! One task serves a stream. It reads a frame, makes a batch of it and hands the batch to the
//! store; while the store syncs it reads the next frames, as far as the window goes. The store's
//! answers are taken in the order of the frames, and an ack speaks for all of them that have come.
//!
//! ```text
//!   reading ─► waiting for room (at most one frame) ─► in flight (in order) ─► acknowledged
//! ```

use std::pin::pin;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, FuturesOrdered};
use futures::{FutureExt as _, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::write_stream_request::{self as incoming, Frame, Open};
use oxtsdb_proto::data::v1::write_stream_response::{self as outgoing, Ack, Draining, FrameError, Opened};
use oxtsdb_proto::data::v1::{Columns, TimestampPrecision, WriteStreamRequest, WriteStreamResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status as status_with};
use oxtsdb_server::{deadline_of, message_error};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use super::write::{MAX_COLUMN_POINTS, max_errors, point_error, precision};
use super::{DataServiceHandler, status};
use crate::write::columns::{self, ErrorRun, PointErrors, Tables};
use crate::write::{Room, Rows, WriteError};

/// Answers that wait for the client to read them; then the stream reads no more.
const REPLIES: usize = 16;

type Reply = Result<WriteStreamResponse, Status>;

pub(super) fn write_stream(
    service: &DataServiceHandler,
    request: Request<Streaming<WriteStreamRequest>>,
) -> Response<BoxStream<'static, Reply>> {
    let deadline = deadline_of(request.extensions());
    let (replies, receiver) = mpsc::channel(REPLIES);
    tokio::spawn(serve(service.clone(), request.into_inner(), deadline, replies));
    Response::new(ReceiverStream::new(receiver).boxed())
}

async fn serve(
    service: DataServiceHandler,
    mut incoming: Streaming<WriteStreamRequest>,
    deadline: Option<Instant>,
    replies: mpsc::Sender<Reply>,
) {
    let ended = match open(&service, &mut incoming, deadline).await {
        Ok(Some(open)) => match Session::new(service, &open, deadline, replies.clone()) {
            Ok(session) => session.run(incoming, &open.client_name).await,
            Err(status) => Err(End::Failed(status)),
        },
        Ok(None) => Ok(()),
        Err(status) => Err(End::Failed(status)),
    };
    if let Err(End::Failed(status)) = ended {
        // Nobody may be listening any more.
        let _ = replies.send(Err(status)).await;
    }
}

/// The first message; `None` if the client left without one.
async fn open(
    service: &DataServiceHandler,
    incoming: &mut Streaming<WriteStreamRequest>,
    deadline: Option<Instant>,
) -> Result<Option<Open>, Status> {
    let message = tokio::select! {
        message = incoming.message() => message.map_err(message_error)?,
        () = service.shutdown.draining() => return Err(draining()),
        () = passed(deadline) => return Err(deadline_exceeded()),
    };
    match message {
        Some(WriteStreamRequest {
            message: Some(incoming::Message::Open(open)),
        }) => Ok(Some(open)),
        Some(WriteStreamRequest {
            message: Some(incoming::Message::Frame(_)),
        }) => Err(invalid_field("frame", "came before open, expected open first")),
        Some(WriteStreamRequest { message: None }) => Err(no_message()),
        None => Ok(None),
    }
}

/// Why a stream ends.
enum End {
    /// With a status that the client is told.
    Failed(Status),
    /// The client is gone.
    Gone,
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

/// What a frame came to, once it is stored.
struct Report {
    sequence: u64,
    points: u64,
    written: u64,
    failed: u64,
    errors: Vec<ErrorRun>,
}

/// A frame that waits until there is memory for its batch.
struct Waiting {
    report: Report,
    rows: Rows,
    room: BoxFuture<'static, Room>,
}

/// An open stream.
struct Session {
    service: DataServiceHandler,
    precision: TimestampPrecision,
    max_errors: usize,
    deadline: Option<Instant>,
    replies: mpsc::Sender<Reply>,
    tables: Tables,
    next_sequence: u64,
    waiting: Option<Waiting>,
    in_flight: FuturesOrdered<BoxFuture<'static, (Report, Result<(), WriteError>)>>,
    /// Points of frames that are not acknowledged.
    unacknowledged: u64,
    /// What the next ack will say.
    ack: Ack,
}

impl Session {
    fn new(
        service: DataServiceHandler,
        open: &Open,
        deadline: Option<Instant>,
        replies: mpsc::Sender<Reply>,
    ) -> Result<Self, Status> {
        let tables = Tables::new(service.tables_limits());
        Ok(Self {
            precision: precision("open.precision", open.precision)?,
            max_errors: max_errors(open.max_errors),
            service,
            deadline,
            replies,
            tables,
            next_sequence: 1,
            waiting: None,
            in_flight: FuturesOrdered::new(),
            unacknowledged: 0,
            ack: Ack::default(),
        })
    }

    async fn run(mut self, mut incoming: Streaming<WriteStreamRequest>, client: &str) -> Result<(), End> {
        debug!(client, "write stream opened");
        let settings = &self.service.settings;
        let opened = outgoing::Message::Opened(Opened {
            window_frames: settings.stream_window_frames,
            window_points: settings.stream_window_points,
            max_series: settings.stream_max_series,
        });
        self.reply(opened).await?;
        let read = self.frames(&mut incoming).await;
        debug!(client, frames = self.next_sequence - 1, "write stream is read");
        if matches!(read, Err(End::Gone)) {
            return read;
        }
        // What was received is finished and acknowledged, however the reading ended.
        self.finish().await?;
        read
    }

    /// Reads until the client closes its side, or something ends the stream.
    async fn frames(&mut self, incoming: &mut Streaming<WriteStreamRequest>) -> Result<(), End> {
        let shutdown = self.service.shutdown.clone();
        let mut drain = pin!(shutdown.draining().fuse());
        let grace = self.service.settings.stream_grace();
        let mut grace_ends: Option<Instant> = None;
        loop {
            let window = &self.service.settings;
            let may_read = self.waiting.is_none()
                && self.in_flight.len() < window.stream_window_frames as usize
                && self.unacknowledged < window.stream_window_points;
            tokio::select! {
                biased;
                Some(stored) = self.in_flight.next() => {
                    self.stored(stored)?;
                    self.acknowledge().await?;
                }
                room = room(&mut self.waiting), if self.waiting.is_some() => self.begin(room),
                () = &mut drain => {
                    grace_ends = Some(Instant::now() + grace);
                    let grace = prost_types::Duration::try_from(grace).ok();
                    self.reply(outgoing::Message::Draining(Draining { grace })).await?;
                }
                () = passed(grace_ends) => return Err(draining().into()),
                () = passed(self.deadline) => return Err(deadline_exceeded().into()),
                message = incoming.message(), if may_read => match message.map_err(message_error)? {
                    Some(WriteStreamRequest { message: Some(incoming::Message::Frame(frame)) }) => {
                        self.frame(frame).await?;
                    }
                    Some(WriteStreamRequest { message: Some(incoming::Message::Open(_)) }) => {
                        return Err(invalid_field("open", "came again, expected it as the first message only").into());
                    }
                    Some(WriteStreamRequest { message: None }) => return Err(no_message().into()),
                    None => return Ok(()),
                },
            }
        }
    }

    /// Makes a batch of a frame and starts to store it.
    async fn frame(&mut self, frame: Frame) -> Result<(), Status> {
        let Frame { sequence, columns } = frame;
        if sequence != self.next_sequence {
            let description = format!("is {sequence}, expected {}", self.next_sequence);
            return Err(invalid_field("frame.sequence", description));
        }
        self.next_sequence += 1;
        let columns = columns.unwrap_or_default();
        let points = self.check_points(&columns)?;
        let mut errors = PointErrors::new(self.max_errors);
        let mut rows = self.service.writer.batch(points);
        let taken = async {
            self.tables
                .declare(&columns, &self.service.writer, self.deadline)
                .await?;
            columns::encode(&columns, self.precision, &mut self.tables, &mut rows, &mut errors)
        };
        taken
            .await
            .map_err(|error| status::of_columns("frame.", &error))?;
        let report = Report {
            sequence,
            points: points as u64,
            written: rows.points(),
            failed: errors.failed(),
            errors: errors.into_runs(),
        };
        self.unacknowledged += report.points;
        match self.service.writer.try_room(rows.byte_len()) {
            Some(room) => self.store(report, rows, room),
            None => {
                let room = self.service.writer.room(rows.byte_len()).boxed();
                self.waiting = Some(Waiting { report, rows, room });
            }
        }
        Ok(())
    }

    /// A frame that no window would ever let through is refused, or the stream would stand still.
    fn check_points(&self, columns: &Columns) -> Result<usize, Status> {
        let points = columns::point_count(columns);
        let window = usize::try_from(self.service.settings.stream_window_points).unwrap_or(usize::MAX);
        let max = window.min(MAX_COLUMN_POINTS);
        if points > max {
            let description = format!("has {points} points, at most {max} are allowed");
            return Err(invalid_field_because(
                "frame.columns.blocks",
                ErrorReason::BatchTooLarge,
                description,
            ));
        }
        Ok(points)
    }

    /// There is room for the frame that waited.
    fn begin(&mut self, room: Room) {
        if let Some(Waiting { report, rows, .. }) = self.waiting.take() {
            self.store(report, rows, room);
        }
    }

    fn store(&mut self, report: Report, rows: Rows, room: Room) {
        let stored = self.service.writer.store_in(room, rows);
        let storing = async move { (report, stored.await) };
        self.in_flight.push_back(storing.boxed());
    }

    /// Takes the store's answer for the oldest frame into the next ack.
    fn stored(&mut self, (report, stored): (Report, Result<(), WriteError>)) -> Result<(), Status> {
        self.unacknowledged -= report.points;
        stored.map_err(|error| status::of_write(&error))?;
        self.ack.sequence = report.sequence;
        self.ack.written += report.written;
        self.ack.failed += report.failed;
        let space = self.max_errors - self.ack.errors.len();
        let errors = report.errors.iter().take(space);
        self.ack.errors.extend(errors.map(|run| FrameError {
            sequence: report.sequence,
            error: Some(point_error(run)),
        }));
        Ok(())
    }

    /// Acknowledges what is stored, and what turns out to be stored by now. While the client reads no
    /// answers, the ack grows: what is stored gives its room back, whoever the client is.
    async fn acknowledge(&mut self) -> Result<(), End> {
        let replies = self.replies.clone();
        let mut failed = None;
        let reply = loop {
            tokio::select! {
                biased;
                Some(stored) = self.in_flight.next(), if failed.is_none() => failed = self.stored(stored).err(),
                reply = replies.reserve() => break reply.map_err(|_| End::Gone)?,
            }
        };
        let ack = std::mem::take(&mut self.ack);
        reply.send(Ok(message(outgoing::Message::Ack(ack))));
        failed.map_or(Ok(()), |status| Err(status.into()))
    }

    /// Waits for all frames that were received, up to the first that fails.
    async fn finish(&mut self) -> Result<(), End> {
        loop {
            tokio::select! {
                biased;
                Some(stored) = self.in_flight.next() => {
                    self.stored(stored)?;
                    self.acknowledge().await?;
                }
                room = room(&mut self.waiting), if self.waiting.is_some() => self.begin(room),
                else => return Ok(()),
            }
        }
    }

    async fn reply(&mut self, message: outgoing::Message) -> Result<(), End> {
        let reply = self::message(message);
        self.replies.send(Ok(reply)).await.map_err(|_| End::Gone)
    }
}

fn message(message: outgoing::Message) -> WriteStreamResponse {
    WriteStreamResponse {
        message: Some(message),
    }
}

/// Completes when there is room for the frame that waits; never, if none does.
async fn room(waiting: &mut Option<Waiting>) -> Room {
    match waiting {
        Some(waiting) => (&mut waiting.room).await,
        None => std::future::pending().await,
    }
}

/// Completes when an instant is over; never, if there is none.
async fn passed(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

fn draining() -> Status {
    let message = "the server is about to go, write to another one";
    status_with(Code::Unavailable, ErrorReason::Draining, message, &[])
}

fn deadline_exceeded() -> Status {
    let message = "the deadline of the stream passed";
    status_with(
        Code::DeadlineExceeded,
        ErrorReason::DeadlineExceeded,
        message,
        &[],
    )
}

fn no_message() -> Status {
    invalid_field("message", "is missing, expected open or frame")
}

#[cfg(test)]
mod tests;
