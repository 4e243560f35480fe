//! Watches of mappings: a stream of events that reconnects and resumes.

use std::collections::VecDeque;
use std::time::Duration;

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::uid::v1::watch_uids_response::event::Event as EventMessage;
use oxtsdb_proto::uid::v1::{WatchUidsRequest, WatchUidsResponse};
use oxtsdb_schema::UidKind;
use tracing::debug;

use super::{UidClient, types};
use crate::call::Messages;
use crate::{Error, UidMapping};

/// The pause before the first attempt to open a watch again; each following is twice as long, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// The longest interval of heartbeats that the contract allows.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(30);

/// A watch is broken if it returns nothing for this number of heartbeats.
const MISSED_HEARTBEATS: u32 = 3;

/// Which events a watch returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchOptions {
    /// Of these kinds; none: of all.
    pub kinds: Vec<UidKind>,
    /// Without assignments: a cache needs renames and deletes only.
    pub skip_assigned: bool,
    /// How often the service shows that the watch is intact, 1 to 30 s. The default is 10 s.
    pub heartbeat: Duration,
    /// Begin after the events of an earlier watch: its [`UidWatch::resume_token`].
    pub resume_token: Option<String>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            kinds: Vec::new(),
            skip_assigned: false,
            heartbeat: Duration::from_secs(10),
            resume_token: None,
        }
    }
}

/// A change of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UidEvent {
    /// A name was assigned a UID.
    Assigned(UidMapping),
    /// A UID has another name.
    Renamed {
        /// The mapping now.
        mapping: UidMapping,
        /// The name before; empty if another program renamed it.
        old_name: String,
    },
    /// A UID has no name any more. Its name is empty if another program deleted it.
    Deleted(UidMapping),
}

/// An item of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchUpdate {
    /// Events, in order for each UID.
    Events {
        /// The events; at least one. An event may be returned again after the watch was resumed.
        events: Vec<UidEvent>,
        /// How long other replicas of the service may still return mappings as they were before. Repeat
        /// look-ups of this time after it.
        lag: Duration,
    },
    /// Any mapping may have changed: drop all that are cached. Returned when a watch begins without a token, too.
    Resync {
        /// As of [`WatchUpdate::Events`].
        lag: Duration,
    },
    /// Nothing has happened.
    Heartbeat,
    /// The watch is interrupted, and changes are unknown meanwhile. The next call of [`UidWatch::next`] opens it
    /// again, at another replica if there is one.
    Interrupted(Error),
}

/// A watch of mappings, by [`UidClient::watch`]. It has no end.
#[derive(Debug)]
pub struct UidWatch {
    client: UidClient,
    options: WatchOptions,
    messages: Option<Messages<WatchUidsResponse>>,
    /// Messages were lost, or the watch is new.
    needs_resync: bool,
    pause: Duration,
    ready: VecDeque<WatchUpdate>,
    opened: u64,
    counters: Vec<(UidKind, u64)>,
}

impl UidWatch {
    pub(super) fn new(client: UidClient, options: WatchOptions) -> Self {
        Self {
            client,
            needs_resync: options.resume_token.is_none(),
            options,
            messages: None,
            pause: Duration::ZERO,
            ready: VecDeque::new(),
            opened: 0,
            counters: Vec::new(),
        }
    }

    /// How often it was opened: a change says that another process, or another replica, may respond.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The highest assigned number of each kind with sequential UIDs, as of the last message.
    pub fn counters(&self) -> &[(UidKind, u64)] {
        &self.counters
    }

    /// Where another watch can resume after what this one has returned; `None` before the first message.
    pub fn resume_token(&self) -> Option<&str> {
        self.options.resume_token.as_deref()
    }

    /// The next update. Can be cancelled at any time.
    pub async fn next(&mut self) -> WatchUpdate {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return update;
            }
            match self.message().await {
                Ok(message) => {
                    self.pause = Duration::ZERO;
                    if let Err(error) = self.accept(message) {
                        return self.interrupted(error);
                    }
                }
                // A replica that drains, or a connection that reached its age: no change is lost.
                Err(error) if self.messages.is_some() && error.reason() == Some(ErrorReason::Draining) => {
                    self.messages = None;
                }
                Err(error) => return self.interrupted(error),
            }
        }
    }

    async fn message(&mut self) -> Result<WatchUidsResponse, Error> {
        let messages = match &mut self.messages {
            Some(messages) => messages,
            None => {
                tokio::time::sleep(self.pause).await;
                let opened = self.client.open_watch(self.request());
                let opened = tokio::time::timeout(LONGEST_HEARTBEAT, opened).await;
                let opened = opened.map_err(|_| Error::DeadlineExceeded)??;
                self.opened += 1;
                self.messages.insert(opened)
            }
        };
        let patience = self.options.heartbeat * MISSED_HEARTBEATS;
        let message = tokio::time::timeout(patience, messages.next()).await;
        message
            .map_err(|_| Error::DeadlineExceeded)??
            .ok_or_else(|| Error::protocol("the watch ended"))
    }

    fn request(&self) -> WatchUidsRequest {
        let kinds = self.options.kinds.iter().map(|kind| types::to_wire(*kind));
        WatchUidsRequest {
            kinds: kinds.collect(),
            skip_assigned: self.options.skip_assigned,
            heartbeat_interval: self.options.heartbeat.try_into().ok(),
            resume_token: self.options.resume_token.clone().unwrap_or_default(),
            table_id: self.client.table_id(),
        }
    }

    fn accept(&mut self, message: WatchUidsResponse) -> Result<(), Error> {
        let lag = message.replica_lag.and_then(|lag| lag.try_into().ok());
        let lag = lag.unwrap_or_default();
        let mut updates = VecDeque::new();
        if std::mem::take(&mut self.needs_resync) {
            updates.push_back(WatchUpdate::Resync { lag });
        }
        let mut events = Vec::with_capacity(message.events.len());
        for event in message.events {
            match event.event.ok_or_else(|| Error::protocol("an event is empty"))? {
                EventMessage::Resync(_) => {
                    events.clear();
                    updates.push_back(WatchUpdate::Resync { lag });
                }
                EventMessage::Assigned(event) => events.push(UidEvent::Assigned(mapping(event.mapping)?)),
                EventMessage::Renamed(event) => events.push(UidEvent::Renamed {
                    mapping: mapping(event.mapping)?,
                    old_name: event.old_name,
                }),
                EventMessage::Deleted(event) => events.push(UidEvent::Deleted(mapping(event.mapping)?)),
            }
        }
        if !events.is_empty() {
            updates.push_back(WatchUpdate::Events { events, lag });
        }
        if updates.is_empty() {
            updates.push_back(WatchUpdate::Heartbeat);
        }
        for counter in &message.counters {
            let kind = types::kind_from_wire(counter.kind)?;
            self.counters.retain(|(known, _)| *known != kind);
            self.counters.push((kind, counter.number));
        }
        if !message.resume_token.is_empty() {
            self.options.resume_token = Some(message.resume_token);
        }
        self.ready = updates;
        Ok(())
    }

    fn interrupted(&mut self, error: Error) -> WatchUpdate {
        debug!(%error, "watch of UIDs is interrupted");
        self.messages = None;
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LAST_PAUSE);
        if error.reason() == Some(ErrorReason::ResumeTokenExpired) {
            self.options.resume_token = None;
            self.needs_resync = true;
        }
        WatchUpdate::Interrupted(error)
    }
}

impl UidClient {
    /// Watches mappings: assignments, renames and deletes by any replica of the service, and by other programs
    /// as the contract says. Connects with the first call of [`UidWatch::next`].
    pub fn watch(&self, options: WatchOptions) -> UidWatch {
        let mut options = options;
        options.heartbeat = options.heartbeat.clamp(Duration::from_secs(1), LONGEST_HEARTBEAT);
        UidWatch::new(self.without_deadline(), options)
    }

    async fn open_watch(&self, request: WatchUidsRequest) -> Result<Messages<WatchUidsResponse>, Error> {
        self.connection.stream(&request).await
    }
}

fn mapping(message: Option<oxtsdb_proto::uid::v1::UidMapping>) -> Result<UidMapping, Error> {
    types::mapping(message)?.ok_or_else(|| Error::protocol("an event has no mapping"))
}
