//! The UIDs of a table on each store: assignment, changes, watches, repairs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod claims;
mod crashes;
mod embedded;
mod fsck;
mod hbase;
mod policy;
mod races;
mod reclaim;
mod watches;
