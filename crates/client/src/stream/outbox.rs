//! From points to batches in the driver's channel, in order.
//!
//! Two tasks take batches: the caller's, which fills them, and the linger task, which takes a batch that is not
//! full after its time. Both reserve a place in the channel first and fill it while they hold the lock, so that
//! batches arrive in the order of their points.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::batch::Batcher;
use super::driver::Command;
use crate::{SeriesName, Timestamp, Value};

/// Collects points and sends them as batches. Dropping it closes the channel.
#[derive(Debug)]
pub(super) struct Outbox {
    collecting: Arc<Collecting>,
    commands: mpsc::Sender<Command>,
    linger: Option<Duration>,
    /// The linger task, which ends with this set.
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Collecting {
    state: Mutex<State>,
    /// A batch got its first point.
    started: Notify,
}

#[derive(Debug)]
struct State {
    batcher: Batcher,
    /// When the batch has to be sent, full or not.
    due: Option<Instant>,
}

/// The driver has ended.
#[derive(Debug)]
pub(super) struct Closed;

impl Outbox {
    /// Sends batches to this channel; those that are not full, if `linger` is given, after that time. Must be
    /// called within a Tokio runtime.
    pub(super) fn new(batcher: Batcher, commands: mpsc::Sender<Command>, linger: Option<Duration>) -> Self {
        let collecting = Arc::new(Collecting {
            state: Mutex::new(State { batcher, due: None }),
            started: Notify::new(),
        });
        let mut tasks = JoinSet::new();
        if linger.is_some() {
            let commands = commands.downgrade();
            tasks.spawn(send_due(Arc::clone(&collecting), commands));
        }
        Self {
            collecting,
            commands,
            linger,
            _tasks: tasks,
        }
    }

    /// Adds a point, and sends the batch if it is full.
    pub(super) async fn add(
        &self,
        series: &SeriesName,
        timestamp: Timestamp,
        value: Value,
    ) -> Result<(), Closed> {
        // A batch stays full if the call before was cancelled.
        if self.collecting.lock().batcher.is_full() {
            self.send_batch().await?;
        }
        let is_full = {
            let mut state = self.collecting.lock();
            if let Some(linger) = self.linger
                && state.due.is_none()
            {
                state.due = Some(Instant::now() + linger);
                self.collecting.started.notify_one();
            }
            state.batcher.add(series, timestamp, value);
            state.batcher.is_full()
        };
        if is_full {
            self.send_batch().await?;
        }
        Ok(())
    }

    /// Sends the batch if it has points.
    pub(super) async fn send_batch(&self) -> Result<(), Closed> {
        let place = self.commands.reserve().await.map_err(|_| Closed)?;
        self.collecting.lock().send(place);
        Ok(())
    }

    /// Sends a command behind all batches so far.
    pub(super) async fn send(&self, command: Command) -> Result<(), Closed> {
        self.commands.send(command).await.map_err(|_| Closed)
    }

    /// Waits until the driver has ended.
    pub(super) async fn closed(&self) {
        self.commands.closed().await;
    }

    /// Index of the point that is added next.
    pub(super) fn next_index(&self) -> u64 {
        self.collecting.lock().batcher.next_index()
    }
}

impl Collecting {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&mut self, place: mpsc::Permit<'_, Command>) {
        self.due = None;
        if !self.batcher.is_empty() {
            place.send(Command::Write(Box::new(self.batcher.take())));
        }
    }
}

/// Sends batches when they are due.
async fn send_due(collecting: Arc<Collecting>, commands: mpsc::WeakSender<Command>) {
    loop {
        let due = collecting.lock().due;
        let Some(due) = due else {
            collecting.started.notified().await;
            continue;
        };
        tokio::time::sleep_until(due).await;
        let Some(commands) = commands.upgrade() else {
            return;
        };
        let Ok(place) = commands.reserve().await else {
            return;
        };
        let mut state = collecting.lock();
        // The batch may have been sent meanwhile, and the next one be due later.
        if state.due.is_some_and(|due| due <= Instant::now()) {
            state.send(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(5);

    fn outbox(linger: Option<Duration>) -> (Outbox, mpsc::Receiver<Command>) {
        let (sender, receiver) = mpsc::channel(1);
        (Outbox::new(Batcher::new(100, 3), sender, linger), receiver)
    }

    async fn add(outbox: &Outbox, seconds: i64) {
        let series = SeriesName::new("m", [("a", "b")]);
        let timestamp = Timestamp::from_seconds(seconds);
        outbox.add(&series, timestamp, Value::Int(1)).await.unwrap();
    }

    /// First index and points of the next batch.
    async fn batch(receiver: &mut mpsc::Receiver<Command>) -> (u64, usize) {
        match receiver.recv().await {
            Some(Command::Write(batch)) => (batch.first_index, batch.points()),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn partial_batches_are_sent_after_the_linger_time() {
        let (outbox, mut receiver) = outbox(Some(LINGER));
        let started = Instant::now();
        add(&outbox, 1).await;
        add(&outbox, 2).await;
        assert_eq!(batch(&mut receiver).await, (0, 2));
        assert_eq!(started.elapsed().as_secs(), LINGER.as_secs());
        add(&outbox, 3).await;
        assert_eq!(batch(&mut receiver).await, (2, 1));
        assert_eq!(started.elapsed().as_secs(), 2 * LINGER.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn the_linger_time_begins_with_the_first_point_of_a_batch() {
        let (outbox, mut receiver) = outbox(Some(LINGER));
        let started = Instant::now();
        add(&outbox, 1).await;
        tokio::time::advance(LINGER / 2).await;
        add(&outbox, 2).await;
        add(&outbox, 3).await;
        assert_eq!(batch(&mut receiver).await, (0, 3), "full");
        assert_eq!(started.elapsed(), LINGER / 2);
        add(&outbox, 4).await;
        assert_eq!(batch(&mut receiver).await, (3, 1));
        let elapsed = started.elapsed();
        assert_eq!(elapsed.as_millis(), (LINGER / 2 + LINGER).as_millis());
    }

    #[tokio::test(start_paused = true)]
    async fn partial_batches_wait_without_a_linger_time() {
        let (outbox, mut receiver) = outbox(None);
        add(&outbox, 1).await;
        let waited = tokio::time::timeout(Duration::from_secs(3600), receiver.recv()).await;
        assert!(waited.is_err(), "{waited:?}");
        outbox.send_batch().await.unwrap();
        assert_eq!(batch(&mut receiver).await, (0, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn dropping_the_outbox_closes_the_channel() {
        let (outbox, mut receiver) = outbox(Some(LINGER));
        add(&outbox, 1).await;
        drop(outbox);
        assert!(receiver.recv().await.is_none());
    }
}
