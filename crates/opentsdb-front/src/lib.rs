//! OpenTSDB's two protocols on one port: HTTP with JSON, the page and pictures, and lines of telnet.
//!
//! Adapters: they decode requests, call `oxtsdb-ingest`, `oxtsdb-query` and `oxtsdb-metadata`, and encode the results.

mod front;
pub mod http;
pub mod listener;
mod telnet;

pub use http::running_queries;
pub use listener::HttpTelnetServer;
