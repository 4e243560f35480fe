//! The data service: it owns table `tsdb`, writes points into it and answers questions about them.
//!
//! ```text
//!   grpc ─┐            ┌ write ── uids ──► UID service
//!   http ─┼─ adapters ─┤            │
//! telnet ─┘            └ query ─────┴────► row store
//! ```
//!
//! The three doors decode, call, and encode; what they mean is in [`write`] and [`query`], which
//! know no transport. UIDs come from the UID service through [`uids`] and nowhere else.
//! [`assemble()`] builds all of it from a store and a client of the UID service.

pub mod assemble;
pub mod front;
pub mod grpc;
pub mod http;
mod layout_check;
mod query;
pub mod scan_rows;
pub mod series_index;
pub mod settings;
#[cfg(test)]
mod stored_rows;
pub mod telnet;
#[cfg(test)]
pub(crate) mod test_stack;
pub mod uids;
pub mod write;

pub use assemble::{DataService, assemble, store_part};
pub use grpc::DataServiceHandler;
pub use settings::{DataSettings, WriteForm};
pub use uids::{Uids, UidsError};
pub use write::{NewPoint, PointError, PointErrorReason, WriteError, WriteOutcome, Writer};
