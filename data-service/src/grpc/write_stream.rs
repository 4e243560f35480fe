//! `WriteStream`: frames in, cumulative acks out.
//!
//! One task serves a stream. Its steps run concurrently, and none waits for a later one:
//!
//! ```text
//!   read ─► prepare (one frame): resolve names, permit, encode ─► store (in order) ─► acknowledge
//! ```
//!
//! A frame holds no permit while its names are resolved, and blocks neither the frames before it nor drain
//! and deadline. The store's results are taken in the order of the frames. Acks are merged while the client
//! does not read them, so a client that reads nothing holds no permit either; it is disconnected after
//! `--client-timeout-seconds`.

mod prepare;
mod replies;

use std::pin::pin;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use futures::{FutureExt as _, StreamExt as _};
use oxtsdb_ingest::{Caller, WriteError};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::write_stream_request::{self as incoming, Frame, Open};
use oxtsdb_proto::data::v1::write_stream_response::{Draining, Opened};
use oxtsdb_proto::data::v1::{WriteStreamRequest, WriteStreamResponse};
use oxtsdb_proto::error::{invalid_field, status as status_with};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_server::telemetry::in_request;
use oxtsdb_server::{Shutdown, deadline_of, message_error};
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::debug;

use self::prepare::{Frames, Prepared, Report, max_frame_points};
use self::replies::{Lost, Replies, replies};
use super::results::caller_of;
use super::write::{WriteOptions, count_write};
use super::{DataServiceHandler, status};

pub(super) fn write_stream(
    service: &DataServiceHandler,
    request: Request<Streaming<WriteStreamRequest>>,
) -> Result<Response<MessageStream<WriteStreamResponse>>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let shutdown = Shutdown::from_extensions(request.extensions(), &service.shutdown);
    // In place of a response: a proxy that has none yet can open the stream at another server.
    if shutdown.is_draining() {
        return Err(draining());
    }
    let (replies, stream) = replies(service.settings.connections.client_timeout());
    let service = DataServiceHandler {
        shutdown,
        ..service.clone()
    };
    tokio::spawn(in_request(serve(
        service,
        caller,
        request.into_inner(),
        deadline,
        replies,
    )));
    Ok(Response::new(stream.boxed()))
}

async fn serve(
    service: DataServiceHandler,
    caller: Caller,
    mut incoming: Streaming<WriteStreamRequest>,
    deadline: Option<Instant>,
    replies: Replies,
) {
    let opened = match open(&service, &mut incoming, deadline).await {
        Ok(Some(open)) => Session::new(service, caller, &open, deadline, replies),
        Ok(None) => return,
        Err(status) => Err((replies, status)),
    };
    match opened {
        Ok(session) => session.run(incoming).await,
        Err((replies, status)) => replies.fail(status),
    }
}

/// Reads the first message; `None` if the client closed without one.
async fn open(
    service: &DataServiceHandler,
    incoming: &mut Streaming<WriteStreamRequest>,
    deadline: Option<Instant>,
) -> Result<Option<Open>, Status> {
    // A client that is opening a stream gets the notice of the drain, and moves without an error.
    let overdue = async {
        service.shutdown.draining().await;
        tokio::time::sleep(service.settings.streams.grace()).await;
    };
    let message = tokio::select! {
        message = incoming.message() => message.map_err(message_error)?,
        () = overdue => return Err(draining()),
        () = passed(deadline) => return Err(deadline_exceeded()),
    };
    match message {
        Some(WriteStreamRequest {
            message: Some(incoming::Message::Open(open)),
        }) => Ok(Some(open)),
        Some(WriteStreamRequest {
            message: Some(incoming::Message::Frame(_)),
        }) => Err(invalid_field(
            "frame",
            "came before `open`, which must be the first message",
        )),
        Some(WriteStreamRequest { message: None }) => Err(no_message()),
        None => Ok(None),
    }
}

/// Why the stream reads no more frames.
enum End {
    /// The client has closed its side.
    Closed,
    /// The client gets this status, after the acks of what was received.
    Failed(Status),
    /// The deadline or the grace of a drain has passed. Frames that are not submitted to the store are dropped.
    Expired(Status),
    /// The client reads no replies.
    Lost(Lost),
}

/// An open stream.
struct Session {
    service: DataServiceHandler,
    caller: Caller,
    deadline: Option<Instant>,
    replies: Replies,
    /// Away while a frame is being prepared.
    frames: Option<Frames>,
    preparing: Option<BoxFuture<'static, (Frames, Result<Prepared, Status>)>>,
    in_flight: FuturesOrdered<BoxFuture<'static, (Report, Result<(), WriteError>)>>,
    /// Points of frames that were read and are not stored.
    unacknowledged: u64,
}

impl Session {
    fn new(
        service: DataServiceHandler,
        caller: Caller,
        open: &Open,
        deadline: Option<Instant>,
        replies: Replies,
    ) -> Result<Self, (Replies, Status)> {
        let options = match WriteOptions::parse("open.options", open.options.as_ref()) {
            Ok(options) => options,
            Err(status) => return Err((replies, status)),
        };
        debug!(client = open.client_name, "write stream opened");
        replies.opened(limits(&service));
        Ok(Self {
            frames: Some(Frames::new(&service, caller.client, options, deadline)),
            service,
            caller,
            deadline,
            replies,
            preparing: None,
            in_flight: FuturesOrdered::new(),
            unacknowledged: 0,
        })
    }

    /// Serves the stream to its end.
    async fn run(mut self, mut incoming: Streaming<WriteStreamRequest>) {
        let end = self.read(&mut incoming).await;
        // Received frames are stored and acknowledged, as far as the reason for the end leaves time.
        let finished = match &end {
            End::Closed | End::Failed(_) => self.finish().await,
            End::Expired(_) | End::Lost(_) => {
                self.preparing = None;
                self.finish().await
            }
        };
        match (finished, end) {
            (_, End::Lost(lost)) | (Some(End::Lost(lost)), _) => self.give_up(lost),
            (Some(End::Failed(status) | End::Expired(status)), _)
            | (_, End::Failed(status) | End::Expired(status)) => self.replies.fail(status),
            (Some(End::Closed) | None, End::Closed) => {}
        }
    }

    /// Reads frames until something ends the stream, while those before are prepared and stored.
    async fn read(&mut self, incoming: &mut Streaming<WriteStreamRequest>) -> End {
        let shutdown = self.service.shutdown.clone();
        let mut drain = pin!(shutdown.draining().fuse());
        let grace = self.service.settings.streams.grace();
        let mut grace_ends: Option<Instant> = None;
        loop {
            let window = &self.service.settings;
            let may_read = self.frames.is_some()
                && self.in_flight.len() < window.streams.stream_window_frames as usize
                && self.unacknowledged < window.streams.stream_window_points;
            let has_capacity = self.replies.has_capacity();
            let step = tokio::select! {
                biased;
                Some((report, stored)) = self.in_flight.next() => self.stored(report, stored),
                prepared = next(&mut self.preparing) => self.prepared(prepared),
                () = &mut drain => {
                    grace_ends = Some(Instant::now() + grace);
                    let grace = prost_types::Duration::try_from(grace).ok();
                    self.replies.draining(Draining { grace });
                    Ok(())
                }
                () = passed(grace_ends) => Err(End::Expired(draining())),
                () = passed(self.deadline) => Err(End::Expired(deadline_exceeded())),
                lost = self.replies.lost() => Err(End::Lost(lost)),
                () = self.replies.capacity(), if !has_capacity => Ok(()),
                message = incoming.message(), if may_read && has_capacity => self.take(message),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    /// Stores what was received, up to the first frame that fails. Returns why it stopped early, if so.
    async fn finish(&mut self) -> Option<End> {
        loop {
            let step = tokio::select! {
                biased;
                Some((report, stored)) = self.in_flight.next() => self.stored(report, stored),
                prepared = next(&mut self.preparing), if self.preparing.is_some() => self.prepared(prepared),
                () = passed(self.deadline), if self.preparing.is_some() => Err(End::Expired(deadline_exceeded())),
                else => return None,
            };
            match step {
                Ok(()) => {}
                // Frames that are submitted to the store are finished nevertheless.
                Err(End::Expired(status)) => {
                    self.preparing = None;
                    while let Some((report, stored)) = self.in_flight.next().await {
                        if let Err(end) = self.stored(report, stored) {
                            return Some(end);
                        }
                    }
                    return Some(End::Expired(status));
                }
                Err(end) => return Some(end),
            }
        }
    }

    /// Handles a message: starts to prepare its frame.
    fn take(&mut self, message: Result<Option<WriteStreamRequest>, Status>) -> Result<(), End> {
        let message = message.map_err(|status| End::Failed(message_error(status)))?;
        let Some(WriteStreamRequest { message }) = message else {
            return Err(End::Closed);
        };
        let frame = match message {
            Some(incoming::Message::Frame(frame)) => frame,
            Some(incoming::Message::Open(_)) => {
                let status = invalid_field("open", "came twice, expected it as the first message only");
                return Err(End::Failed(status));
            }
            None => return Err(End::Failed(no_message())),
        };
        self.prepare(frame)
    }

    fn prepare(&mut self, frame: Frame) -> Result<(), End> {
        // The session reads only while it has the frames.
        let Some(frames) = &mut self.frames else {
            return Ok(());
        };
        self.unacknowledged += frames.check(&frame).map_err(End::Failed)?;
        self.preparing = self.frames.take().map(|frames| frames.prepare(frame).boxed());
        Ok(())
    }

    /// Submits a prepared frame to the store.
    fn prepared(&mut self, (frames, prepared): (Frames, Result<Prepared, Status>)) -> Result<(), End> {
        self.preparing = None;
        self.frames = Some(frames);
        let Prepared { report, batch } = prepared.map_err(End::Failed)?;
        let stored = self.service.writer.begin_store(batch);
        self.in_flight
            .push_back(async move { (report, stored.await) }.boxed());
        Ok(())
    }

    /// Acknowledges the oldest frame; its write has completed.
    fn stored(&mut self, report: Report, stored: Result<(), WriteError>) -> Result<(), End> {
        self.unacknowledged -= report.points;
        count_write(
            &self.service,
            &self.caller,
            report.written,
            &report.failures,
            stored.is_ok(),
        );
        if let Err(error) = stored {
            // Acks are cumulative, so none may follow for a later frame. The client sends these again, stored or
            // not.
            self.preparing = None;
            self.in_flight = FuturesOrdered::new();
            return Err(End::Failed(status::write_status(&error)));
        }
        self.replies.ack(report.sequence, report.written, report.failures);
        Ok(())
    }

    /// Ends a stream with a client that reads no replies.
    fn give_up(self, lost: Lost) {
        match lost {
            Lost::Gone => debug!("the client of a write stream is gone"),
            Lost::Stalled => {
                let timeout = self.service.settings.connections.client_timeout_seconds;
                let message = format!(
                    "the client read no acknowledgements for {timeout} s (--client-timeout-seconds); \
                     send what is not acknowledged again on a new stream"
                );
                debug!(message);
                let setting = [("setting", "--client-timeout-seconds")];
                let status = status_with(Code::Aborted, ErrorReason::ClientTooSlow, message, &setting);
                self.replies.abort(status);
            }
        }
    }
}

/// The limits of a stream.
fn limits(service: &DataServiceHandler) -> Opened {
    let settings = &service.settings;
    Opened {
        window_frames: settings.streams.stream_window_frames,
        window_points: settings.streams.stream_window_points,
        max_frame_points: max_frame_points(service) as u64,
        max_series: settings.streams.stream_max_series,
        max_symbol_bytes: service.tables_limits().symbol_bytes as u64,
        max_message_bytes: service.max_message_bytes() as u64,
    }
}

/// Completes with the future; never, if it is `None`.
async fn next<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Completes at an instant; never, if there is none.
async fn passed(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}

fn draining() -> Status {
    let message = "the server is shutting down, or the connection has reached its age; open a new stream";
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
