//! The data service: it owns table `tsdb`, writes points into it and runs queries over them.
//!
//! ```text
//!   grpc ──────────────┐            ┌ write ── uids ──► UID service
//!   listener ─┬ http ──┼─ adapters ─┤            │
//!             └ telnet ┘            └ query ─────┴────► row store
//! ```
//!
//! The front ends gRPC, HTTP and telnet decode requests, call [`write`] or `oxtsdb_query`, and encode the results.
//! Neither of the two depends on a protocol. [`uids`] is the only client of the UID service. [`assemble()`] builds
//! the service from a store and a client of the UID service.

mod annotation;
pub mod assemble;
mod compaction;
mod delete;
mod front;
pub(crate) mod fsck;
pub mod grpc;
mod http;
mod layout_check;
mod listener;
mod lookup;
pub(crate) mod meta;
mod metrics;
mod points;
mod references;
mod rollup;
mod row_rewrite;
pub mod series_index;
pub mod settings;
pub mod store_admin;
#[cfg(test)]
mod stored_rows;
mod telnet;
#[cfg(test)]
pub(crate) mod test_stack;
pub mod text_search;
pub mod tree;
pub mod uids;
pub mod write;

pub use assemble::{DataService, assemble, open_tables, points_part, store_part};
pub use grpc::{DataServiceHandler, SeriesMetaHandler, StoreAdminHandler, TreeServiceHandler};
pub use listener::HttpTelnetServer;
pub use points::PointsPart;
pub use settings::{ClientAccess, DataSettings, UidAccess, WriteForm};
pub use uids::{Uids, UidsError};
pub use write::{NewPoint, PointError, PointErrorReason, WriteError, WriteOutcome, Writer};
