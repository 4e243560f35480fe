//! Gives events to all open watches.
//!
//! Each watch has an outbox that is bounded in bytes. If its client reads slower than events arrive, its events are
//! dropped, and the next update requests that the client drops what it has derived from the watch. Memory is thereby bounded
//! by the number of watches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use oxtsdb_schema::{PerKind, UidKind};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Event, WatchRequest};

/// Bytes of events that wait for one client.
const OUTBOX_BYTES: usize = 256 << 10;

/// Events of one update at most.
pub(crate) const UPDATE_EVENTS: usize = 1024;

/// How far events were reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// All entries of the log up to this number.
    pub(crate) log: u64,
    /// All sequential UIDs up to these numbers.
    pub(crate) counters: PerKind<u64>,
}

/// The watches of this process.
#[derive(Debug)]
pub(crate) struct Hub {
    max_watches: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    watches: HashMap<u64, Arc<Outbox>>,
    /// The log and the counters were read once.
    is_started: bool,
    position: Position,
}

#[derive(Debug)]
struct Outbox {
    request: WatchRequest,
    queue: Mutex<Queue>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Events were dropped.
    resync: bool,
    /// After the events of the queue.
    position: Position,
}

/// An update of a watch: up to [`UPDATE_EVENTS`] events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    /// Whether events were dropped before this update.
    pub(crate) resync: bool,
    pub(crate) events: Vec<Arc<Event>>,
    /// Where a watch resumes after this update; `None`: within the events that follow, so that there is no such
    /// position yet.
    pub(crate) position: Option<Position>,
}

/// An open watch. Dropping it closes it.
#[derive(Debug)]
pub(crate) struct Subscription {
    hub: Arc<Hub>,
    id: u64,
    outbox: Arc<Outbox>,
    /// Where it began.
    pub(crate) position: Position,
}

/// When an event was reported: the watches that were open have received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported(u64);

/// No further watch can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) limit: usize,
}

impl Hub {
    pub(crate) fn new(max_watches: usize) -> Self {
        Self {
            max_watches,
            state: Mutex::default(),
        }
    }

    /// Opens a watch of the events from now on. `None` if the hub does not know its position yet.
    pub(crate) fn subscribe(self: &Arc<Self>, request: WatchRequest) -> Result<Option<Subscription>, Full> {
        let mut state = self.state.lock();
        if !state.is_started {
            return Ok(None);
        }
        let position = state.position;
        if state.watches.len() >= self.max_watches {
            return Err(Full {
                limit: self.max_watches,
            });
        }
        let id = state.next_id;
        state.next_id += 1;
        let queue = Queue {
            position,
            ..Queue::default()
        };
        let outbox = Arc::new(Outbox {
            request,
            queue: Mutex::new(queue),
            added: Notify::new(),
        });
        state.watches.insert(id, Arc::clone(&outbox));
        Ok(Some(Subscription {
            hub: Arc::clone(self),
            id,
            outbox,
            position,
        }))
    }

    /// Whether a watch receives assignments of a kind.
    pub(crate) fn wants_assigned(&self, kind: UidKind) -> bool {
        self.state.lock().wants_assigned(kind)
    }

    /// Moves the position of a kind's assignments to a number without a report, unless a watch receives them. Returns
    /// whether it did.
    pub(crate) fn skip_assigned(&self, kind: UidKind, to: u64) -> bool {
        let mut state = self.state.lock();
        let is_skipped = !state.wants_assigned(kind);
        if is_skipped {
            state.advance(|position| *position.counters.get_mut(kind) = to);
        }
        is_skipped
    }

    pub(crate) fn position(&self) -> Option<Position> {
        let state = self.state.lock();
        state.is_started.then_some(state.position)
    }

    /// Reports events, and notes how far all events are reported with them: a watch that is opened meanwhile either
    /// receives them or begins before them.
    pub(crate) fn publish(
        &self,
        events: impl IntoIterator<Item = Event>,
        advance: impl FnOnce(&mut Position),
    ) -> Reported {
        let unreported = events.into_iter().map(|event| (event, None));
        self.publish_unless_reported(unreported, advance)
    }

    /// As [`Hub::publish`], without events that all open watches have received.
    pub(crate) fn publish_unless_reported(
        &self,
        events: impl IntoIterator<Item = (Event, Option<Reported>)>,
        advance: impl FnOnce(&mut Position),
    ) -> Reported {
        let mut state = self.state.lock();
        let reported = Reported(state.next_id);
        if !state.watches.is_empty() {
            let unreported = |(_, at): &(Event, Option<Reported>)| *at != Some(reported);
            for (event, _) in events.into_iter().filter(unreported) {
                let event = Arc::new(event);
                for outbox in state.watches.values() {
                    if outbox.request.wants(&event) {
                        outbox.push(Arc::clone(&event));
                    }
                }
            }
        }
        state.advance(advance);
        reported
    }

    /// Sets where the assignments of later watches begin, once: the log was read.
    pub(crate) fn start_at(&self, counters: PerKind<u64>) {
        let mut state = self.state.lock();
        if !state.is_started {
            for kind in UidKind::ALL {
                let counter = state.position.counters.get_mut(kind);
                *counter = (*counter).max(*counters.get(kind));
            }
            state.is_started = true;
        }
    }

    /// Reports to some watches that events are missing.
    pub(crate) fn resync(&self, is_affected: impl Fn(&WatchRequest) -> bool) {
        let state = self.state.lock();
        for outbox in state
            .watches
            .values()
            .filter(|outbox| is_affected(&outbox.request))
        {
            outbox.queue.lock().drop_events();
            outbox.added.notify_one();
        }
    }
}

impl State {
    fn wants_assigned(&self, kind: UidKind) -> bool {
        self.watches
            .values()
            .any(|outbox| outbox.request.wants_assigned(kind))
    }

    fn advance(&mut self, change: impl FnOnce(&mut Position)) {
        change(&mut self.position);
        for outbox in self.watches.values() {
            outbox.queue.lock().position = self.position;
        }
    }
}

impl Outbox {
    fn push(&self, event: Arc<Event>) {
        let mut queue = self.queue.lock();
        let bytes = event.byte_len();
        if queue.bytes + bytes > OUTBOX_BYTES {
            queue.drop_events();
        } else {
            queue.bytes += bytes;
            queue.events.push_back(event);
        }
        drop(queue);
        self.added.notify_one();
    }
}

impl Queue {
    fn drop_events(&mut self) {
        self.events.clear();
        self.bytes = 0;
        self.resync = true;
    }

    fn take(&mut self) -> Update {
        let count = self.events.len().min(UPDATE_EVENTS);
        let events: Vec<Arc<Event>> = self.events.drain(..count).collect();
        self.bytes -= events.iter().map(|event| event.byte_len()).sum::<usize>();
        Update {
            resync: std::mem::take(&mut self.resync),
            events,
            position: self.events.is_empty().then_some(self.position),
        }
    }
}

impl Subscription {
    /// Waits for events.
    pub(crate) async fn added(&self) {
        let is_empty = {
            let queue = self.outbox.queue.lock();
            queue.events.is_empty() && !queue.resync
        };
        if is_empty {
            self.outbox.added.notified().await;
        }
    }

    /// Takes the next events; without events, the update is a heartbeat.
    pub(crate) fn take(&self) -> Update {
        self.outbox.queue.lock().take()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.state.lock().watches.remove(&self.id);
    }
}
