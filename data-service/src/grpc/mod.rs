//! gRPC's door: `oxtsdb.data.v1.DataService`. What the calls mean stands in the `.proto` files.

mod explain;
mod expressions;
mod handler;
mod last;
mod query;
mod results;
mod running;
mod scan;
mod service;
pub(crate) mod status;
mod write;
mod write_stream;

pub use handler::DataServiceHandler;
