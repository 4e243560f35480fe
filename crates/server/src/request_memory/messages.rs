//! The messages of a request, which the decoder gets once they are complete.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error;
use oxtsdb_resources::{MemoryError, MemoryPool, Reservation};
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::{Code, Status};

use super::framing::{Framing, Pieces};
use super::no_memory;

/// How long a request waits for memory.
const WAIT_LIMIT: Duration = Duration::from_secs(1);

/// The charge of a byte of a stream: itself, and four for the decoded form, which suits columns; the codec
/// bounds messages that need more.
pub(super) const STREAM_FACTOR: u64 = 5;

/// The charge of a compressed byte. Points compress to an eighth.
pub(super) const COMPRESSED_FACTOR: u64 = 8 * STREAM_FACTOR;

/// Bytes of a single request that are not charged.
pub(super) const FREE_BYTES: u64 = 1024;

/// The time in which a message must be complete, from its first byte; of a single request from its call.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(120);

/// The time between two pieces of a message.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(30);

type Waiting = Pin<Box<dyn Future<Output = Result<Reservation, MemoryError>> + Send>>;

/// The body of a request, which reserves memory as it arrives.
pub(super) struct Messages {
    body: Body,
    pool: MemoryPool,
    charge: Arc<Mutex<Reservation>>,
    is_single: bool,
    /// The most bytes of a message.
    max_message_bytes: u64,
    /// The rest of the bytes that are not charged.
    free_bytes: u64,
    framing: Framing,
    incomplete: Pieces,
    /// Pieces of messages that are complete.
    complete: VecDeque<Bytes>,
    /// A piece that has arrived and waits for memory.
    waiting: Option<(Piece, Waiting)>,
    receiving: Option<Receiving>,
    end: Option<End>,
}

/// Received bytes of a request.
struct Piece {
    data: Bytes,
    /// How many of the bytes belong to complete messages.
    complete: usize,
}

/// How a body ended.
enum End {
    Trailers(Frame<Bytes>),
    Error(Status),
    Complete,
}

/// The time limits of a message that is being received.
struct Receiving {
    deadline: Instant,
    timer: Pin<Box<Sleep>>,
}

impl Receiving {
    fn begin() -> Self {
        let now = Instant::now();
        Self {
            deadline: now + MESSAGE_TIMEOUT,
            timer: Box::pin(tokio::time::sleep_until(now + PAUSE_TIMEOUT)),
        }
    }

    fn progressed(&mut self) {
        let until = self.deadline.min(Instant::now() + PAUSE_TIMEOUT);
        self.timer.as_mut().reset(until);
    }
}

impl Messages {
    pub(super) fn new(
        body: Body,
        pool: MemoryPool,
        charge: Arc<Mutex<Reservation>>,
        is_single: bool,
        max_message_bytes: u64,
    ) -> Self {
        let factors = if is_single {
            [1, 1]
        } else {
            [STREAM_FACTOR, COMPRESSED_FACTOR]
        };
        Self {
            body,
            pool,
            charge,
            is_single,
            max_message_bytes,
            free_bytes: FREE_BYTES,
            framing: Framing::new(factors),
            incomplete: Pieces::default(),
            complete: VecDeque::new(),
            waiting: None,
            receiving: is_single.then(Receiving::begin),
            end: None,
        }
    }

    /// Completes when a message is complete, or the body has ended.
    pub(super) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.complete.is_empty() && self.end.is_none() {
            if let Some((_, waiting)) = &mut self.waiting {
                let reserved = ready!(waiting.as_mut().poll(cx));
                match (reserved, self.waiting.take()) {
                    (Ok(reserved), Some((piece, _))) => {
                        self.charge.lock().merge(reserved);
                        self.add(piece);
                    }
                    (Err(error), _) => self.fail(no_memory(&error)),
                    (Ok(_), None) => {}
                }
                continue;
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending => {
                    ready!(self.poll_overdue(cx));
                    self.fail(too_slow(self.framing.is_within_message()));
                }
                Poll::Ready(None) if self.framing.is_within_message() => self.fail(incomplete()),
                Poll::Ready(None) => self.end = Some(End::Complete),
                Poll::Ready(Some(Err(status))) => self.fail(status),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.receive(data),
                    Err(_) if self.framing.is_within_message() => self.fail(incomplete()),
                    Err(trailers) => self.end = Some(End::Trailers(trailers)),
                },
            }
        }
        Poll::Ready(())
    }

    /// Completes when the message that is being received has exceeded its time.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.receiving {
            Some(receiving) => receiving.timer.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }

    /// Reserves memory for bytes that have arrived, or starts to wait for it.
    fn receive(&mut self, data: Bytes) {
        let advance = match self.framing.advance(&data, self.max_message_bytes) {
            Ok(advance) => advance,
            Err(length) => return self.fail(too_large(length, self.max_message_bytes)),
        };
        let piece = Piece {
            data,
            complete: advance.complete,
        };
        let mut charge = advance.charge;
        let free_bytes = if self.is_single { FREE_BYTES } else { 0 };
        // A message that exceeds the pool can never be admitted: neither waiting nor a retry helps.
        let needed = self.framing.message_charge().saturating_sub(free_bytes);
        if let Err(error) = self.pool.check_fits(needed) {
            return self.fail(no_memory(&error));
        }
        if self.is_single {
            let free = charge.min(self.free_bytes);
            self.free_bytes -= free;
            charge -= free;
        }
        if charge == 0 || self.charge.lock().try_grow(charge).is_ok() {
            return self.add(piece);
        }
        let pool = self.pool.clone();
        let waiting = async move { pool.reserve(charge, WAIT_LIMIT).await };
        self.waiting = Some((piece, Box::pin(waiting)));
    }

    /// Adds bytes with reserved memory.
    fn add(&mut self, piece: Piece) {
        let Piece { mut data, complete } = piece;
        if complete > 0 {
            self.incomplete.move_to(&mut self.complete);
            self.complete.push_back(data.split_to(complete));
            self.receiving = None;
        }
        if !data.is_empty() {
            self.incomplete.push(data);
            self.receiving.get_or_insert_with(Receiving::begin).progressed();
        }
    }

    fn fail(&mut self, status: Status) {
        // Releases the received bytes, also if the handler keeps the body.
        self.incomplete = Pieces::default();
        self.charge.lock().shrink_to(0);
        self.end = Some(End::Error(status));
    }
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if !this.is_single && this.complete.is_empty() && this.waiting.is_none() {
            // The handler has pulled all messages that are complete.
            this.charge.lock().shrink_to(this.framing.unfinished_charge());
        }
        ready!(this.poll_message(cx));
        if let Some(data) = this.complete.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(match this.end.replace(End::Complete) {
            Some(End::Trailers(frame)) => Some(Ok(frame)),
            Some(End::Error(status)) => Some(Err(status)),
            Some(End::Complete) | None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.complete.is_empty()
            && self.waiting.is_none()
            && match &self.end {
                Some(end) => matches!(end, End::Complete),
                None => !self.framing.is_within_message() && self.body.is_end_stream(),
            }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// The status of a message that is announced with more bytes than its method takes.
fn too_large(length: u64, limit: u64) -> Status {
    error::status(
        Code::ResourceExhausted,
        ErrorReason::MessageTooLarge,
        format!("message has {length} bytes, at most {limit} are allowed"),
        &[("limit", &limit.to_string())],
    )
}

fn incomplete() -> Status {
    error::status(
        Code::InvalidArgument,
        ErrorReason::MalformedMessage,
        "the request ends within a message",
        &[],
    )
}

fn too_slow(has_begun: bool) -> Status {
    let what = if has_begun {
        "the rest of the message"
    } else {
        "the message"
    };
    error::status(
        Code::Aborted,
        ErrorReason::ClientTooSlow,
        format!(
            "{what} did not arrive: at most {} s may pass between two pieces of a message, and {} s until it is complete",
            PAUSE_TIMEOUT.as_secs(),
            MESSAGE_TIMEOUT.as_secs()
        ),
        &[],
    )
}
