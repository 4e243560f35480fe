//! Limits of one process: memory, threads for computation, concurrent queries, unread results.
//!
//! ```text
//!   memory      one account, split into a fixed share, an ingest pool and a query pool
//!   admission   concurrent queries; further ones wait in a bounded queue that is fair between clients
//!   compute     threads for CPU-bound work, fair between clients; a job never waits for another job
//!   durations   how long something took, as a histogram
//!   figure      names of counters and gauges: metrics, `/api/stats`, `tsdb top`
//!   outbox      results waiting for one client, bounded in bytes and in time
//! ```
//!
//! Every limit either rejects immediately or waits for a bounded time, and its error names the setting that
//! raises it. The crate has no knowledge of protocols, queries or stores.

pub mod admission;
pub mod compute;
pub mod durations;
mod fair_queue;
pub mod figure;
pub mod memory;
pub mod outbox;
pub mod timed_cache;

pub use admission::{
    Admission, AdmissionError, AdmissionLimits, ClientId, LentPermit, Permit, client_address,
};
pub use compute::{ComputePool, Panicked, yield_to_others};
pub use durations::{DurationCounts, Durations};
pub use figure::{Counter, Figure};
pub use memory::{FixedShare, MemoryAccount, MemoryError, MemoryPool, Reservation};
pub use outbox::{Inbox, Outbox, SendError};
pub use timed_cache::{EntryBytes, TimedCache};
