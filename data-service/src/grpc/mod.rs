//! The gRPC front end: `oxtsdb.data.v1.DataService`. The `.proto` files document the calls.

mod annotation;
mod compaction;
mod delete;
mod explain;
mod expressions;
mod fsck;
mod handler;
mod histograms;
mod last;
mod query;
mod references;
mod results;
mod rollup_writes;
mod rollups;
mod running;
mod scan;
mod series;
mod series_meta;
mod service;
pub(crate) mod status;
mod store_admin;
mod tree;
mod write;
mod write_stream;

pub use expressions::function_message;
pub use handler::DataServiceHandler;
pub use references::ReferenceServiceHandler;
pub use series_meta::SeriesMetaHandler;
pub use store_admin::StoreAdminHandler;
pub use tree::TreeServiceHandler;
