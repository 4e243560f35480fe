//! Replies of the server on a stream, and how long it waits for the client to read them.
//!
//! There is no queue of messages. The producer keeps `opened`, `draining` and the outcome of acknowledged
//! frames; while the client does not read, outcomes without failures are merged into one. So adding a reply
//! never waits. Failed points cannot be merged: while too many are unread, [`Replies::has_capacity`] is
//! false and the stream reads no further frames. Unread replies thus take bounded memory.
//!
//! An ack is made when the client reads it, of at most [`ACK_BYTES`].

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use oxtsdb_ingest::columns::Failures;
use oxtsdb_proto::data::v1::WriteStreamResponse;
use oxtsdb_proto::data::v1::write_stream_response::{Ack, Draining, FrameFailures, Message, Opened};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;

use crate::grpc::write::RemainingFailures;

/// Bytes of the failures of an ack. The rest of a mebibyte is for its other fields and for lengths.
const ACK_BYTES: usize = (1 << 20) - (8 << 10);

/// Bytes of the failures of a frame in an ack, without their own fields.
const FRAME_BYTES: usize = 32;

/// Memory of unread failures from which on no frame is read.
const UNREAD_BYTES: usize = 1 << 20;

/// The server's end. Dropping it ends the stream.
#[derive(Debug)]
pub(super) struct Replies {
    shared: Arc<Shared>,
    /// How long the client may leave replies unread.
    timeout: Duration,
}

/// The client's end: the messages of a response stream.
#[derive(Debug)]
pub(super) struct ReplyStream(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when the client has read something, or is gone.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    opened: Option<Opened>,
    outcomes: Outcomes,
    draining: Option<Draining>,
    /// Sent last.
    status: Option<Status>,
    has_ended: bool,
    is_abandoned: bool,
    /// Since when there is something to read.
    unread_since: Option<Instant>,
    reader: Option<Waker>,
}

/// Frames to acknowledge, in order.
#[derive(Debug, Default)]
struct Outcomes {
    frames: VecDeque<Outcome>,
    /// The last sequence number that was sent in an ack.
    acknowledged: u64,
}

/// A frame, or several without failures.
#[derive(Debug)]
struct Outcome {
    sequence: u64,
    written: u64,
    failures: Option<RemainingFailures>,
}

/// Why a client gets no more replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// It is gone.
    Gone,
    /// It does not read.
    Stalled,
}

/// Both ends.
pub(super) fn replies(timeout: Duration) -> (Replies, ReplyStream) {
    let shared = Arc::new(Shared::default());
    let replies = Replies {
        shared: Arc::clone(&shared),
        timeout,
    };
    (replies, ReplyStream(shared))
}

impl Replies {
    /// Responds to `open`.
    pub(super) fn opened(&self, opened: Opened) {
        self.add(|state| state.opened = Some(opened));
    }

    /// Announces that the server drains.
    pub(super) fn draining(&self, draining: Draining) {
        self.add(|state| state.draining = Some(draining));
    }

    /// Acknowledges a frame.
    pub(super) fn ack(&self, sequence: u64, written: u64, failures: Failures) {
        let failures = (failures.failed() > 0).then(|| RemainingFailures::new(failures));
        self.add(|state| {
            state.outcomes.add(Outcome {
                sequence,
                written,
                failures,
            });
        });
    }

    /// Ends the stream with a status, after all other replies.
    pub(super) fn fail(self, status: Status) {
        self.add(|state| state.status = Some(status));
    }

    /// Ends the stream with a status in place of unread replies.
    pub(super) fn abort(self, status: Status) {
        self.add(|state| {
            state.outcomes.frames.clear();
            state.draining = None;
            state.status = Some(status);
        });
    }

    /// Whether more failures may be added.
    pub(super) fn has_capacity(&self) -> bool {
        self.shared.state.lock().outcomes.byte_len() < UNREAD_BYTES
    }

    /// Completes when [`Replies::has_capacity`] may have become true.
    pub(super) async fn capacity(&self) {
        let changed = self.shared.changed.notified();
        if !self.has_capacity() {
            changed.await;
        }
    }

    /// Completes when the client reads no further replies.
    pub(super) async fn lost(&self) -> Lost {
        loop {
            let changed = self.shared.changed.notified();
            let (is_abandoned, unread_since) = {
                let state = self.shared.state.lock();
                (state.is_abandoned, state.unread_since)
            };
            if is_abandoned {
                return Lost::Gone;
            }
            // Adding a reply does not notify, so an empty stream is checked again after the time-out.
            let limit =
                unread_since.map_or_else(|| Instant::now() + self.timeout, |since| since + self.timeout);
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(limit) => {
                    let unread_since = self.shared.state.lock().unread_since;
                    if unread_since.is_some_and(|since| since.elapsed() >= self.timeout) {
                        return Lost::Stalled;
                    }
                }
            }
        }
    }

    fn add(&self, change: impl FnOnce(&mut State)) {
        let reader = {
            let mut state = self.shared.state.lock();
            if state.is_abandoned {
                return;
            }
            change(&mut state);
            state.unread_since.get_or_insert_with(Instant::now);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let reader = {
            let mut state = self.shared.state.lock();
            state.has_ended = true;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Outcomes {
    fn add(&mut self, next: Outcome) {
        match self.frames.back_mut() {
            Some(last) if last.failures.is_none() => {
                last.sequence = next.sequence;
                last.written += next.written;
                last.failures = next.failures;
            }
            _ => self.frames.push_back(next),
        }
    }

    fn byte_len(&self) -> usize {
        let failures = self.frames.iter().filter_map(|frame| frame.failures.as_ref());
        failures.map(|failures| failures.byte_len() + FRAME_BYTES).sum()
    }

    /// An ack of as many frames and failures as fit.
    fn next_ack(&mut self) -> Option<Ack> {
        if self.frames.is_empty() {
            return None;
        }
        let mut ack = Ack {
            sequence: self.acknowledged,
            ..Ack::default()
        };
        let mut budget = ACK_BYTES;
        while let Some(frame) = self.frames.front_mut() {
            if let Some(failures) = &mut frame.failures {
                if budget < FRAME_BYTES {
                    break;
                }
                let part = failures.next_part(budget - FRAME_BYTES);
                budget -= (part.bytes + FRAME_BYTES).min(budget);
                if part.bytes > 0 {
                    ack.failed += part.points;
                    ack.failures.push(FrameFailures {
                        sequence: frame.sequence,
                        failures: Some(part.message),
                    });
                }
                if !failures.is_empty() {
                    break;
                }
            }
            ack.sequence = frame.sequence;
            ack.written += frame.written;
            self.frames.pop_front();
        }
        self.acknowledged = ack.sequence;
        Some(ack)
    }
}

impl State {
    fn next(&mut self) -> Option<Result<Message, Status>> {
        if let Some(opened) = self.opened.take() {
            return Some(Ok(Message::Opened(opened)));
        }
        if let Some(ack) = self.outcomes.next_ack() {
            return Some(Ok(Message::Ack(ack)));
        }
        if let Some(draining) = self.draining.take() {
            return Some(Ok(Message::Draining(draining)));
        }
        self.status.take().map(Err)
    }

    fn has_unread(&self) -> bool {
        self.opened.is_some()
            || !self.outcomes.frames.is_empty()
            || self.draining.is_some()
            || self.status.is_some()
    }
}

impl Stream for ReplyStream {
    type Item = Result<WriteStreamResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.0.state.lock();
        let Some(next) = state.next() else {
            if state.has_ended {
                return Poll::Ready(None);
            }
            state.reader = Some(context.waker().clone());
            return Poll::Pending;
        };
        state.unread_since = state.has_unread().then(Instant::now);
        drop(state);
        self.0.changed.notify_waiters();
        let message = next.map(|message| WriteStreamResponse {
            message: Some(message),
        });
        Poll::Ready(Some(message))
    }
}

impl Drop for ReplyStream {
    fn drop(&mut self) {
        *self.0.state.lock() = State {
            is_abandoned: true,
            ..State::default()
        };
        self.0.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
