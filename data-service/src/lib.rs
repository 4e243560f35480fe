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

pub mod assemble;
pub mod grpc;
mod metrics;
pub mod points;
#[cfg(test)]
mod stored_rows;
#[cfg(test)]
mod test_handlers;

pub use assemble::{DataService, assemble, open_tables, points_part, store_part};
pub use grpc::{DataServiceHandler, SeriesMetaHandler, StoreAdminHandler, TreeServiceHandler};
pub use oxtsdb_data_settings as settings;
pub use oxtsdb_data_settings::{ClientAccess, DataSettings, UidAccess, WriteForm};
pub use oxtsdb_opentsdb_front::HttpTelnetServer;
pub use points::PointsPart;
