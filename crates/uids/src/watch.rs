//! Watches: events about mappings, for caches and copies of the table.
//!
//! ```text
//!   assignments of this process ──────────────┐
//!   renames and deletes: the log of changes ──┼─► hub ─► an outbox for each watch ─► client
//!   assignments of others: counters, rows ────┤
//!   changes by other programs: a scan ────────┘
//! ```
//!
//! The `hub` gives every event to the watches that are open. A watch that is resumed reads what it has missed from the
//! table itself: renames and deletes from the log, assignments from the reverse mappings of the numbers between the
//! counter then and now. So no events are stored twice, and a replica can resume the watch of another one.
//!
//! An event may be sent again after a resume, or when two sources report it; events of one UID are in order.

mod assignments;
mod foreign;
mod hub;
pub(crate) mod resume;
mod token;

use std::time::Duration;

use oxtsdb_schema::{Name, UidKind};

use crate::suggest::Mapping;
use crate::table::KindUid;

pub(crate) use self::assignments::Assignments;
pub(crate) use self::foreign::{ForeignChange, ForeignScan};
pub(crate) use self::hub::{Hub, Position, Update};
pub(crate) use self::resume::Resumption;
pub use self::resume::WatchUpdate;
pub(crate) use self::token::Token;

/// A change of a mapping, as a watch reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A name was assigned a UID.
    Assigned(Mapping),
    /// A UID has another name.
    Renamed {
        /// The mapping now.
        mapping: Mapping,
        /// The name before.
        old: Name,
    },
    /// A UID has no name any more.
    Deleted(Mapping),
    /// Another program has changed the name of a UID.
    Foreign {
        /// The kind and the UID.
        uid: KindUid,
        /// The name now; `None`: it has none.
        name: Option<Name>,
    },
}

impl Event {
    /// The kind and the UID.
    pub fn uid(&self) -> KindUid {
        match self {
            Self::Assigned(mapping) | Self::Renamed { mapping, .. } | Self::Deleted(mapping) => {
                (mapping.kind, mapping.uid)
            }
            Self::Foreign { uid, .. } => *uid,
        }
    }

    fn byte_len(&self) -> usize {
        let name = match self {
            Self::Assigned(mapping) | Self::Deleted(mapping) => mapping.name.as_bytes().len(),
            Self::Renamed { mapping, old } => mapping.name.as_bytes().len() + old.as_bytes().len(),
            Self::Foreign { name, .. } => name.as_ref().map_or(0, |name| name.as_bytes().len()),
        };
        name + EVENT_BYTES
    }
}

/// Memory of an event without its names.
const EVENT_BYTES: usize = 96;

/// Which events a watch receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRequest {
    /// Of these kinds.
    pub kinds: Vec<UidKind>,
    /// Without assignments.
    pub skip_assigned: bool,
    /// After the events of an earlier watch; `None`: from now on.
    pub resume: Option<String>,
    /// An update is returned at least this often.
    pub heartbeat: Duration,
}

impl WatchRequest {
    pub(crate) fn wants(&self, event: &Event) -> bool {
        let (kind, _) = event.uid();
        match event {
            Event::Assigned(_) => self.wants_assigned(kind),
            _ => self.kinds.contains(&kind),
        }
    }

    fn wants_assigned(&self, kind: UidKind) -> bool {
        !self.skip_assigned && self.kinds.contains(&kind)
    }
}
