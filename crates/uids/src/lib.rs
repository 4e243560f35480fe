//! UIDs: the numbers that represent names of metrics, tag keys and tag values in row keys. This crate owns table
//! `tsdb-uid`.
//!
//! ```text
//!   uids ─┬─► lookup ──┬─► cache
//!         ├─► policy   │
//!         ├─► assign ──┤
//!         ├─► change ──┼─► table ─► row store
//!         ├─► suggest  │
//!         ├─► watch ───┤
//!         ├─► usage ───┤
//!         └─► fsck ────┘
//! ```
//!
//! Invariants, under all races and crashes: a name has one UID, a UID has one name, and a name that has a
//! UID can be read back from it. [`assign`] describes how they are kept.
//!
//! No protocol and no settings: the UID service decodes requests, calls [`uids::Uids`], and encodes responses.

pub mod assign;
pub mod cache;
pub mod change;
mod coherence;
pub mod config;
mod deleted;
pub mod error;
mod flight;
pub mod fsck;
pub mod in_use;
pub mod layout;
mod lookup;
pub mod meta;
pub mod policy;
pub mod reclaim;
pub mod state;
pub mod suggest;
pub mod table;
#[cfg(feature = "testing")]
pub mod testing;
pub mod uids;
pub mod upkeep;
pub mod usage;
pub mod watch;
pub mod widths;
