//! What the server sends on a stream, and how long it waits for the client to read it.
//!
//! There is no queue. The producer keeps one message of each kind; while the client does not read, acks are
//! merged into one. So adding a reply never waits, and unread replies take bounded memory however long the
//! client leaves them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use oxtsdb_proto::data::v1::WriteStreamResponse;
use oxtsdb_proto::data::v1::write_stream_response::{Ack, Draining, Message, Opened};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::Status;

/// The server's end. The stream ends when it is dropped.
#[derive(Debug)]
pub(super) struct Replies {
    shared: Arc<Shared>,
    /// Errors of an ack, at most.
    max_errors: usize,
    /// How long the client may leave replies unread.
    timeout: Duration,
}

/// The client's end: the messages of a response stream.
#[derive(Debug)]
pub(super) struct ReplyStream(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The client has read something, or is gone.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    opened: Option<Opened>,
    ack: Option<Ack>,
    draining: Option<Draining>,
    /// Comes last.
    status: Option<Status>,
    has_ended: bool,
    is_abandoned: bool,
    /// Since when something waits to be read.
    unread_since: Option<Instant>,
    reader: Option<Waker>,
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
        max_errors: usize::MAX,
        timeout,
    };
    (replies, ReplyStream(shared))
}

impl Replies {
    /// Answers `open`. Acks have `max_errors` errors from now on.
    pub(super) fn opened(&mut self, opened: Opened, max_errors: usize) {
        self.max_errors = max_errors;
        self.add(|state| state.opened = Some(opened));
    }

    /// Says that the server drains.
    pub(super) fn draining(&self, draining: Draining) {
        self.add(|state| state.draining = Some(draining));
    }

    /// Acknowledges further frames.
    pub(super) fn ack(&self, next: Ack) {
        self.add(|state| match &mut state.ack {
            None => state.ack = Some(next),
            Some(ack) => {
                ack.sequence = next.sequence;
                ack.written += next.written;
                ack.failed += next.failed;
                let space = self.max_errors.saturating_sub(ack.errors.len());
                ack.errors.extend(next.errors.into_iter().take(space));
            }
        });
    }

    /// Ends the stream with a status, behind what waits.
    pub(super) fn fail(self, status: Status) {
        self.add(|state| state.status = Some(status));
    }

    /// Ends the stream with a status in place of what waits.
    pub(super) fn abort(self, status: Status) {
        self.add(|state| {
            state.ack = None;
            state.draining = None;
            state.status = Some(status);
        });
    }

    /// Completes when there is no use in further replies.
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
            // Nothing unread now: look again after a while, since replies are added without a notice.
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

impl State {
    fn next(&mut self) -> Option<Result<Message, Status>> {
        if let Some(opened) = self.opened.take() {
            return Some(Ok(Message::Opened(opened)));
        }
        if let Some(ack) = self.ack.take() {
            return Some(Ok(Message::Ack(ack)));
        }
        if let Some(draining) = self.draining.take() {
            return Some(Ok(Message::Draining(draining)));
        }
        self.status.take().map(Err)
    }

    fn has_unread(&self) -> bool {
        self.opened.is_some() || self.ack.is_some() || self.draining.is_some() || self.status.is_some()
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
mod tests {
    use futures::StreamExt as _;
    use oxtsdb_proto::data::v1::write_stream_response::FrameError;

    use super::*;

    fn ack(sequence: u64, errors: usize) -> Ack {
        Ack {
            sequence,
            written: 10,
            failed: 1,
            errors: vec![FrameError::default(); errors],
        }
    }

    async fn next(stream: &mut ReplyStream) -> Message {
        stream.next().await.unwrap().unwrap().message.unwrap()
    }

    #[tokio::test]
    async fn acks_are_merged_until_they_are_read() {
        let (mut replies, mut stream) = replies(Duration::from_secs(30));
        replies.opened(Opened::default(), 3);
        for sequence in 1..=1000 {
            replies.ack(ack(sequence, 2));
        }
        replies.draining(Draining::default());
        assert_eq!(next(&mut stream).await, Message::Opened(Opened::default()));
        let Message::Ack(merged) = next(&mut stream).await else {
            panic!("not an ack")
        };
        assert_eq!(
            (
                merged.sequence,
                merged.written,
                merged.failed,
                merged.errors.len()
            ),
            (1000, 10_000, 1000, 3)
        );
        assert_eq!(next(&mut stream).await, Message::Draining(Draining::default()));
        replies.ack(ack(1001, 0));
        replies.fail(Status::unavailable("end"));
        assert_eq!(next(&mut stream).await, Message::Ack(ack(1001, 0)));
        assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "end");
        assert!(stream.next().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_for_the_timeout_has_stalled() {
        let (replies, mut stream) = replies(Duration::from_secs(30));
        let idle = tokio::time::timeout(Duration::from_secs(3600), replies.lost()).await;
        assert!(idle.is_err(), "a client that has nothing to read does not stall");
        replies.ack(ack(1, 0));
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(29)).await;
        next(&mut stream).await;
        replies.ack(ack(2, 0));
        assert_eq!(replies.lost().await, Lost::Stalled);
        assert!(
            began.elapsed() >= Duration::from_secs(59),
            "it had read in between"
        );
        assert!(
            began.elapsed() <= Duration::from_secs(89),
            "{:?}",
            began.elapsed()
        );
        replies.abort(Status::aborted("stalled"));
        assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "stalled");
    }

    #[tokio::test]
    async fn a_client_that_is_gone_is_noticed() {
        let (replies, stream) = replies(Duration::from_secs(30));
        drop(stream);
        assert_eq!(replies.lost().await, Lost::Gone);
    }
}
