//! Writing points.
//!
//! ```text
//!   points ──► series (cache; misses in one call to the UID service) ──► row key, qualifier, value
//!          ──► one batch, points of one row that follow each other together ──► store ──► done
//! ```
//!
//! Points fail one by one, by their index; the call fails when the store or the UID service does.
//! `Ok` means that every point without an error is in the store's log.

pub(crate) mod columns;
mod error;
mod point;
mod resolve;
mod writer;

pub use error::{NamePlace, PointErrorReason, WriteError};
pub use point::{NewPoint, PointError, WriteOutcome};
pub(crate) use point::{PointRef, timestamp};
pub use writer::Writer;
pub(crate) use writer::{Room, Rows};
