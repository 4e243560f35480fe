//! The data service as a whole: recorded vectors, overload, replicas of the UID service.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod directory;
mod incremental_results;
mod opentsdb_vectors;
mod overload;
mod quirks;
mod tsdb;
mod uid_replicas;
