//! The UID service on each store: assignment, changes, watches, repairs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod claims;
mod crashes;
mod embedded;
mod fsck;
mod hbase;
mod meta;
mod policy;
mod program;
mod races;
mod reclaim;
mod service;
mod support;
mod vectors;
mod watches;
