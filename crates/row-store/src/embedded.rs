//! A store on a single machine: a journal with group commit, memtables, and row blocks on disk.
//!
//! ```text
//!   write ──► queue ──► commit thread ──► journal, one sync per group ──► memtable ──► response
//!                                                                           │ when full
//!   read ◄── merge ◄──┬── memtable                                       flush thread
//!                     └── row blocks ◄─────────────────────────────────────┘
//! ```
//!
//! The unit of storage is the row. Writes since the last flush are in the memtable, as one buffer per row, and
//! in the journal. A flush merges each of these rows with its stored block and writes the new block. A row
//! block is a fraction of the size of its cells; see `block`.
//!
//! # Crash recovery
//!
//! A write is acknowledged once its journal frame is synced. Opening the store replays the journal into the
//! memtables. A flush makes its blocks visible atomically and only then removes journal segments; replaying a
//! segment whose rows are already in blocks has no effect.

mod block;
pub(crate) mod blocks;
pub(crate) mod catalog;
mod commit;
mod compact;
mod compaction_state;
mod config;
mod core;
mod descriptors;
pub(crate) mod engine;
mod flush;
pub(crate) mod folder;
mod journal;
mod memtable;
mod merge;
mod packed;
pub(crate) mod queue;
mod read;
pub(crate) mod replacement;
mod row_buffer;
mod row_store;
pub(crate) mod salvage;
pub(crate) mod set_aside;
mod store;
pub(crate) mod table_file;
pub(crate) mod table_list;
mod varint;

pub use self::config::{EmbeddedConfig, EmbeddedStats};
pub use self::store::EmbeddedStore;
