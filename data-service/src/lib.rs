//! The data service: it owns table `tsdb`, writes points into it and runs queries over them.
//!
//! ```text
//!   grpc ────────────────────┐  ┌ ingest ──────┐
//!   opentsdb-front ─┬ http ──┼──┼ query ───────┼─► metadata ─► UID service
//!                   └ telnet ┘  └ maintenance ─┴────► row store
//! ```
//!
//! This crate has the adapter of gRPC, the metrics, and [`assemble()`], which builds the service from a store and a client of
//! the UID service. Adapters decode requests, call the crates in the middle, and encode the results.

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
