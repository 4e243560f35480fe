//! Work on stored data beside writes and queries: checks and repairs of rows, compaction, deletion, rollups that are built from
//! points, snapshots of an embedded store.
//!
//! No protocol: adapters and the service's start call it.

pub mod compaction;
pub mod delete;
pub mod fsck;
pub mod layout_check;
pub mod rollup;
mod row_rewrite;
pub mod store_admin;
