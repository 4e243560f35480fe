//! A store on a single machine: plain cells in a log-structured merge tree with its own journal.
//!
//! ```text
//!   write ──► queue ──► commit thread: evaluates a group ──► one frame of the journal, one sync ──► memtable ──► responses
//!                                                                                                     │ size
//!   read ◄── version: memtables, tables ◄── tables merged by size ◄── table, sorted and immutable ◄───┘
//! ```
//!
//! Each column of a row is one key; `key` draws it. One thread writes: it takes all queued requests, evaluates
//! them in order against the acknowledged state and the earlier changes of the group, and commits the resulting
//! puts and removals as one frame, which is synced before it becomes visible. Everything readable is therefore
//! durable, and conditional operations are serialized with plain writes. Deleted and excess versions are removed
//! physically, so that no read has to know about them.
//!
//! | Module | Content |
//! |---|---|
//! | `key`, `catalog`, `time` | keys and values of columns, definitions of tables, the store's clock |
//! | `queue`, `evaluate`, `frame`, `commit` | requests, their changes, frames of the journal, the commit thread |
//! | `memtable`, `table`, `manifest`, `tree` | cells in memory and in files, the list of files, versions |
//! | `merge`, `read`, `prefixes`, `row_store` | one view of all sources, rows, ranges without rows |
//! | `core`, `store` | the state that operations and threads share; opening, flushing and closing |
//! | `background`, `expiry` | flushes, merges, expired columns |
//! | `set_aside`, `snapshot` | damage, copies |
//!
//! # Crash recovery
//!
//! Frames that no table has are replayed: all of a group or nothing of it. They are made durable before the first read,
//! since the previous process may have ended after a failed sync. A failed sync never makes a group visible; see
//! `commit`.
//!
//! # Damage
//!
//! A damaged block of a table costs its keys: its range is recorded, and everything else is read, merged and served; see
//! `tree`. A table that is absent is noticed by the manifest and costs its range of keys. Damage of the journal or
//! of the manifest prevents opening, unless [`CellConfig::accept_losses`] is set; damage of the definitions always does.

mod background;
mod catalog;
mod commit;
mod config;
mod core;
mod evaluate;
mod expiry;
mod folder;
mod frame;
#[cfg(test)]
mod histories;
mod key;
mod manifest;
mod memtable;
mod merge;
mod prefixes;
mod queue;
mod read;
mod row_store;
mod set_aside;
mod snapshot;
mod store;
mod table;
mod time;
mod tree;

pub use self::config::{CellConfig, CellStats};
pub use self::store::CellStore;
