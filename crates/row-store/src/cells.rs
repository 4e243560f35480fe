//! A store on a single machine: plain cells in an LSM tree with its own journal.
//!
//! ```text
//!   write ──► queue ──► commit thread: evaluates a group ──► one atomic batch, one sync ──► responses
//!                                                                      │
//!   read ◄── snapshot of the tree ◄── memtables, table files ◄─────────┘
//! ```
//!
//! Each column of a row is one key of the tree; `key` draws it. One thread writes: it takes all queued requests, evaluates
//! them in order against the tree and the changes that precede them in the group, and commits the resulting puts
//! and removals as one batch, which the engine syncs before it makes it visible. Everything readable is therefore
//! durable, and conditional operations are serialized with plain writes. Deleted and excess versions are removed
//! physically, so that no read has to know about them.
//!
//! # Crash recovery
//!
//! The engine replays its journal: all of a group or nothing of it. Before that, `journal` cuts off a group that power
//! loss left incomplete at the end; damage before intact groups is an error.
//!
//! # Damage
//!
//! A damaged table file is replaced by one with its intact blocks; see `tree`. The engine's own threads end with
//! their first error, and the engine then accepts no writes until it is reopened. The same repair does that.
//!
//! # Folder
//!
//! ```text
//!   STORE      format version (2), as text
//!   LOCK       locked while a process has the store open; contains its pid, as text
//!   TABLES     definitions of the tables
//!   cells/     journal and table files, in the engine's own formats
//!   DAMAGE     rows lost to damage, if any
//!   set-aside/ damaged files
//! ```

mod catalog;
mod commit;
mod config;
mod engine;
mod evaluate;
mod expiry;
mod folder;
mod journal;
mod key;
mod opening;
mod prefixes;
mod queue;
mod read;
mod replacement;
mod row_store;
mod salvage;
mod set_aside;
mod snapshot;
mod store;
mod table_file;
mod table_list;
mod time;
mod tree;
mod varint;

pub use self::config::{CellConfig, CellStats};
pub use self::store::CellStore;
