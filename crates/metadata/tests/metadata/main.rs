//! Names and metadata over both services and a store in memory.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod listed_queries;
mod series_index;
mod tree;
mod uids;
