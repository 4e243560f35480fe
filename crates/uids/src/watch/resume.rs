//! The updates of one watch: what it has missed, then what happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream;
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{PerKind, UidKind};
use tokio::time::Instant;

use super::hub::{Subscription, UPDATE_EVENTS};
use super::{Assignments, Event, Position, Token, Update};
use crate::error::UidServiceError;
use crate::lookup::Lookup;

/// An update with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchUpdate {
    /// Events were lost: what was derived from the watch is wrong.
    pub resync: bool,
    /// Up to 1024 events; none: a heartbeat.
    pub events: Vec<Arc<Event>>,
    /// Where to resume after this update.
    pub resume_token: String,
    /// The highest numbers that are reported as assigned.
    pub counters: PerKind<u64>,
}

/// An open watch, and what it has missed.
pub(crate) struct Resumption {
    pub(crate) subscription: Subscription,
    pub(crate) assignments: Arc<Assignments>,
    pub(crate) lookup: Arc<Lookup>,
    pub(crate) identity: u64,
    pub(crate) heartbeat: Duration,
    /// Where the watch is.
    pub(crate) position: Position,
    /// Renames and deletes between `position` and the subscription's position.
    pub(crate) changes: VecDeque<Event>,
    /// Ranges of numbers with assignments that it has missed: after the first up to the second.
    pub(crate) numbers: VecDeque<(UidKind, u64, u64)>,
    /// Whether nothing was returned yet.
    pub(crate) is_new: bool,
}

impl Resumption {
    /// The updates, without end unless the store fails.
    pub(crate) fn updates(self) -> impl Stream<Item = Result<WatchUpdate, UidServiceError>> + Send {
        stream::try_unfold(self, async |mut watch| {
            let update = watch.next().await?;
            Ok(Some((update, watch)))
        })
    }

    async fn next(&mut self) -> Result<WatchUpdate, UidServiceError> {
        let update = match self.missed().await? {
            Some(missed) => missed,
            None => self.live().await?,
        };
        if let Some(position) = update.position {
            self.position = position;
        }
        self.is_new = false;
        let token = Token {
            identity: self.identity,
            position: self.position,
        };
        Ok(WatchUpdate {
            resync: update.resync,
            events: update.events,
            resume_token: token.encode(),
            counters: self.position.counters,
        })
    }

    /// The next events that the watch has missed.
    async fn missed(&mut self) -> Result<Option<Update>, UidServiceError> {
        if !self.changes.is_empty() {
            let count = self.changes.len().min(UPDATE_EVENTS);
            let events = self.changes.drain(..count).map(Arc::new).collect();
            let position = Position {
                log: self.subscription.position.log,
                ..self.position
            };
            return Ok(Some(Update {
                events,
                position: self.changes.is_empty().then_some(position),
                ..Update::default()
            }));
        }
        let began = Instant::now();
        while let Some((kind, from, to)) = self.numbers.pop_front() {
            let end = to.min(from.saturating_add(UPDATE_EVENTS as u64));
            if end < to {
                self.numbers.push_front((kind, end, to));
            }
            let numbers: Vec<u64> = (from + 1..=end).collect();
            let mappings = self.assignments.complete(kind, &numbers).await?;
            // Numbers after the subscription's counter are looked up because an earlier one is incomplete.
            let reported = *self.subscription.position.counters.get(kind);
            let position = self.position.counters.get_mut(kind);
            *position = end.min(reported).max(*position);
            // Without events, the update is a heartbeat.
            if !mappings.is_empty() || began.elapsed() >= self.heartbeat {
                let events = mappings.into_iter().map(Event::Assigned).map(Arc::new);
                return Ok(Some(Update {
                    events: events.collect(),
                    position: Some(self.position),
                    ..Update::default()
                }));
            }
        }
        Ok(None)
    }

    async fn live(&mut self) -> Result<Update, UidServiceError> {
        if !self.is_new {
            let _heartbeat = tokio::time::timeout(self.heartbeat, self.subscription.added()).await;
        }
        let update = self.subscription.take();
        // A heartbeat says that nothing has changed.
        if update.events.is_empty() && !update.resync && !self.lookup.uses_cache() {
            let detail = "the log of changes cannot be read".to_owned();
            return Err(StoreError::Unavailable { detail }.into());
        }
        Ok(update)
    }
}
