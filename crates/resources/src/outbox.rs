//! A bounded channel for the results of one client.
//!
//! The producer fills the outbox and the connection drains it as the client reads. If the client reads nothing
//! for the stall time-out while results wait, the producer drops them and leaves an error in their place: a
//! client that never reads holds no memory, however long its connection stays open.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The producer's end.
pub struct Outbox<T, E> {
    shared: Arc<Shared<T, E>>,
    capacity: usize,
    stall: Duration,
}

/// The client's end: a stream that ends with the producer, or with the producer's error.
pub struct Inbox<T, E> {
    shared: Arc<Shared<T, E>>,
}

struct Shared<T, E> {
    state: Mutex<State<T, E>>,
    /// Notified when an item was read or the inbox was dropped.
    changed: Notify,
}

struct State<T, E> {
    items: VecDeque<(T, usize)>,
    bytes: usize,
    taken: u64,
    /// Returned after the items.
    error: Option<E>,
    /// The outbox was dropped.
    is_ended: bool,
    /// The inbox was dropped.
    is_closed: bool,
    reader: Option<Waker>,
}

/// Error of an item that the outbox did not accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The inbox was dropped.
    #[error("the client is gone")]
    Closed,
    /// The client read nothing for the stall time-out.
    #[error("the client reads no results")]
    Stalled,
}

impl<T, E> fmt::Debug for Outbox<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("Outbox")
            .field("items", &state.items.len())
            .field("bytes", &state.bytes)
            .finish_non_exhaustive()
    }
}

impl<T, E> fmt::Debug for Inbox<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

/// Creates an outbox that holds items of up to `capacity` bytes in total, and its inbox.
pub fn outbox<T, E>(capacity: usize, stall: Duration) -> (Outbox<T, E>, Inbox<T, E>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            items: VecDeque::new(),
            bytes: 0,
            taken: 0,
            error: None,
            is_ended: false,
            is_closed: false,
            reader: None,
        }),
        changed: Notify::new(),
    });
    let outbox = Outbox {
        shared: Arc::clone(&shared),
        capacity,
        stall,
    };
    (outbox, Inbox { shared })
}

impl<T, E> Outbox<T, E> {
    /// Adds an item of about `bytes` bytes, waiting for capacity. An empty outbox accepts an item of any size.
    ///
    /// # Errors
    ///
    /// If the inbox was dropped or the client stalls.
    pub async fn send(&mut self, item: T, bytes: usize) -> Result<(), SendError> {
        self.space(bytes).await?;
        self.push(item, bytes);
        Ok(())
    }

    /// Waits until there is capacity for `bytes`.
    ///
    /// # Errors
    ///
    /// As [`Outbox::send`].
    pub async fn space(&mut self, bytes: usize) -> Result<(), SendError> {
        let capacity = self.capacity;
        self.wait_until(|state| state.items.is_empty() || state.bytes + bytes <= capacity)
            .await
    }

    /// Adds an item of about `bytes` bytes after [`Outbox::space`] has waited for its capacity.
    pub fn push(&mut self, item: T, bytes: usize) {
        let mut state = self.shared.state.lock();
        state.items.push_back((item, bytes));
        state.bytes += bytes;
        state.wake_reader();
    }

    /// Appends an error after the items and ends the outbox.
    pub fn fail(self, error: E) {
        let mut state = self.shared.state.lock();
        state.error.get_or_insert(error);
        // Dropping the outbox wakes the reader.
    }

    /// Drops all items and ends the outbox with an error.
    pub fn abort(self, error: E) {
        let dropped = {
            let mut state = self.shared.state.lock();
            state.bytes = 0;
            state.error = Some(error);
            std::mem::take(&mut state.items)
        };
        // Outside the lock: items may be large.
        drop(dropped);
    }

    /// Waits until the client has read all items.
    ///
    /// # Errors
    ///
    /// As [`Outbox::send`].
    pub async fn drained(&mut self) -> Result<(), SendError> {
        self.wait_until(|state| state.items.is_empty()).await
    }

    /// Completes when the inbox was dropped.
    pub async fn closed(&self) {
        loop {
            let changed = self.shared.changed.notified();
            if self.shared.state.lock().is_closed {
                return;
            }
            changed.await;
        }
    }

    async fn wait_until(&self, is_met: impl Fn(&State<T, E>) -> bool) -> Result<(), SendError> {
        loop {
            let changed = self.shared.changed.notified();
            let taken = {
                let state = self.shared.state.lock();
                if state.is_closed {
                    return Err(SendError::Closed);
                }
                if is_met(&state) {
                    return Ok(());
                }
                state.taken
            };
            let stalled = tokio::time::timeout(self.stall, changed).await.is_err();
            if stalled && self.shared.state.lock().taken == taken {
                return Err(SendError::Stalled);
            }
        }
    }
}

impl<T, E> Drop for Outbox<T, E> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.is_ended = true;
        state.wake_reader();
    }
}

impl<T, E> State<T, E> {
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl<T, E> Stream for Inbox<T, E> {
    type Item = Result<T, E>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.shared.state.lock();
        if let Some((item, bytes)) = state.items.pop_front() {
            state.bytes -= bytes;
            state.taken += 1;
            drop(state);
            self.shared.changed.notify_one();
            return Poll::Ready(Some(Ok(item)));
        }
        if state.is_ended {
            return Poll::Ready(state.error.take().map(Err));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T, E> Drop for Inbox<T, E> {
    fn drop(&mut self) {
        let dropped = {
            let mut state = self.shared.state.lock();
            state.is_closed = true;
            state.bytes = 0;
            std::mem::take(&mut state.items)
        };
        drop(dropped);
        self.shared.changed.notify_one();
    }
}

#[cfg(test)]
mod tests;
