//! The memory account of a process.
//!
//! ```text
//!   --memory-limit-mib
//!   ├── fixed        caches and the store: sized at startup, at most half of the limit
//!   ├── ingest pool  bodies and messages of writes between their arrival and their acknowledgement
//!   └── query pool   request bodies, rows, points, and results that wait for their client
//! ```
//!
//! The pools do not borrow from each other, so queries cannot starve writes. A component that holds memory on
//! behalf of a caller owns a [`Reservation`] of those bytes and releases them by dropping it.
//!
//! Growing an existing reservation never waits by default: holders that waited for each other to release memory
//! would deadlock. Only new work waits, for a bounded time and in order of arrival.

mod account;
mod pool;

pub use account::{FixedShare, MIN_LIMIT_BYTES, MemoryAccount};
pub use pool::{LIMIT_SETTING, MemoryError, MemoryPool, POOL_FIGURES, PoolUsage, Reservation};
