//! Whether a watch of changes returned all of them, in order.
//!
//! 5. The events of one UID form a chain as its changes do: each rename's old name is the new name of the one before,
//!    and nothing follows a delete. (An event may come twice, and an assignment late.)
//! 6. Every rename and delete that was acknowledged is among the events, unless a resynchronisation came after its
//!    start, or the watch ended within the bound of staleness after its end.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Change, Instant, Operation, Violation};

/// An item that a watch returned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A name was assigned a UID.
    Assigned {
        /// The UID.
        uid: u64,
        /// The name.
        name: String,
    },
    /// A UID has another name.
    Renamed {
        /// The UID.
        uid: u64,
        /// The name before.
        from: String,
        /// The name after.
        to: String,
    },
    /// A UID has no name any more.
    Deleted {
        /// The UID.
        uid: u64,
        /// The name before.
        name: String,
    },
    /// Anything may have changed.
    Resync,
}

impl Event {
    /// The UID that it is about.
    pub fn uid(&self) -> Option<u64> {
        match self {
            Self::Assigned { uid, .. } | Self::Renamed { uid, .. } | Self::Deleted { uid, .. } => Some(*uid),
            Self::Resync => None,
        }
    }
}

/// A recorded watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// The events with the instants at which they were received.
    pub events: Vec<(Instant, Event)>,
    /// When it ended.
    pub end: Instant,
}

/// Checks a watch against the operations of all clients.
///
/// # Errors
///
/// The first violation.
pub fn check_watch(watch: &Watch, history: &[Operation], staleness: Instant) -> Result<(), Violation> {
    check_order(watch)?;
    check_complete(watch, history, staleness)
}

/// Rule 5.
fn check_order(watch: &Watch) -> Result<(), Violation> {
    /// The name of a UID after an event; `None` within: it has none.
    type Last<'a> = BTreeMap<u64, (Option<&'a str>, &'a Event)>;

    let mut seen = BTreeSet::new();
    let mut last = Last::new();
    for (_, event) in &watch.events {
        let (uid, before, after) = match event {
            Event::Assigned { uid, name } => (*uid, None, Some(name.as_str())),
            Event::Renamed { uid, from, to } => (*uid, Some(from.as_str()), Some(to.as_str())),
            Event::Deleted { uid, name } => (*uid, Some(name.as_str()), None),
            Event::Resync => {
                seen.clear();
                last.clear();
                continue;
            }
        };
        let is_new = seen.insert(event);
        if let Some((name, earlier)) = last.get(&uid) {
            let follows = *name == before;
            // An assignment by another replica is found late, with the name of that time, and is followed by the
            // changes before. Other events may be sent twice.
            let is_late = |event: &Event| matches!(event, Event::Assigned { .. });
            if is_late(event) || (!follows && !is_new) {
                continue;
            }
            if !follows && !is_late(earlier) {
                let of_uid = |(_, other): &&(Instant, Event)| other.uid() == Some(uid);
                let all: Vec<_> = watch.events.iter().filter(of_uid).collect();
                return Err(Violation(format!(
                    "a watch returned {event:?} after {earlier:?}, of all events of this UID: {all:?}"
                )));
            }
        }
        last.insert(uid, (after, event));
    }
    Ok(())
}

/// Rule 6.
fn check_complete(watch: &Watch, history: &[Operation], staleness: Instant) -> Result<(), Violation> {
    let resync = |(at, event): &(Instant, Event)| (*event == Event::Resync).then_some(*at);
    let Some(begin) = watch.events.iter().filter_map(resync).max() else {
        return Ok(());
    };
    let events: BTreeSet<&Event> = watch.events.iter().map(|(_, event)| event).collect();
    for operation in history {
        let expected = match &operation.action {
            Action::Rename {
                from,
                to,
                outcome: Change::Done(uid),
            } => Event::Renamed {
                uid: *uid,
                from: from.clone(),
                to: to.clone(),
            },
            Action::Delete {
                name,
                outcome: Change::Done(uid),
            } => Event::Deleted {
                uid: *uid,
                name: name.clone(),
            },
            _ => continue,
        };
        let is_due = operation.start > begin && operation.end.saturating_add(staleness) < watch.end;
        if is_due && !events.contains(&expected) {
            return Err(Violation(format!(
                "a watch did not return {expected:?} of {operation:?}"
            )));
        }
    }
    Ok(())
}
