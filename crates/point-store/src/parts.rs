//! The embedded engine: a journal, a head in memory, immutable parts by day.
//!
//! ```text
//!   append ─► journal (one sync for a group of batches) ─► head ─► acknowledged
//!                                                           │ memory limit or age
//!                                                           ▼
//!   <folder>/2026-11-22/00000017-00000017.part   immutable, sorted by metric, series, time
//!                       00000018-00000031.part   merged from neighbours
//!                       MANIFEST                 the files that must be there
//!   read ─► days that overlap ─► parts, oldest first ─► head ─► newest wins
//! ```
//!
//! | Module | Content |
//! |---|---|
//! | [`folder`] | the folder of a store |
//! | [`series`] | the series catalogue: numbers, keys, metrics, tags |
//! | [`journal`] | points that are in no part yet |
//! | [`head`] | points in memory that are in no part yet |
//! | `codec` | columns of times, kinds and values as few bytes |
//! | [`part`] | the part file: writer, reader, cache of pages, checks |
//! | [`days`] | partitions by UTC day: parts, merges, tombstones, retention |
//! | [`snapshot`] | copies of a store: making and verifying them |
//! | `clock_watch`, `clock_record` | the clock of retention, and its record across restarts |
//! | `store`, `queue`, `commit`, `flush`, `background`, `read`, `last` | the store: its threads and reads |

mod background;
mod clock_record;
mod clock_watch;
mod codec;
mod commit;
mod config;
mod core;
pub mod days;
mod flush;
pub mod folder;
pub mod head;
pub mod journal;
mod last;
pub mod part;
mod queue;
mod read;
pub mod series;
pub mod snapshot;
mod store;
mod throttle;

pub use clock_watch::ClockStats;
pub use config::PartsConfig;
pub use store::{PartsStats, PartsStore};
