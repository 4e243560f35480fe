//! What a process may use, and how it is shared out.
//!
//! ```text
//!   memory      one account: caches and store | ingest pool | query pool
//!   admission   queries that run at a time; the others wait in a bounded queue, fair between clients
//!   compute     threads for work that would hold up the runtime; no job ever waits for another one
//!   outbox      results that wait for one client, bounded in bytes and in time
//! ```
//!
//! Every limit rejects or waits for a bounded time, and says which setting it comes from. The crate knows
//! nothing of protocols, queries or stores.

pub mod admission;
pub mod compute;
pub mod memory;
pub mod outbox;

pub use admission::{Admission, AdmissionError, AdmissionLimits, ClientId, Permit};
pub use compute::{ComputePool, Panicked};
pub use memory::{FixedShare, MemoryAccount, MemoryError, MemoryPool, Reservation};
pub use outbox::{Inbox, Outbox, SendError};
