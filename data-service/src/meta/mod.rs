//! Metadata of series: table `tsdb-meta`.
//!
//! ```text
//!   writer ── tracking ──► table ──► name:ts_ctr, name:ts_meta
//!                            └─ a new document ──► new_series ──► subscribers (trees)
//! ```
//!
//! [`MetaTable`] is the only access to documents and counts. [`new_series`] announces series whose document was
//! created.

mod counters;
pub(crate) mod new_series;
mod table;

pub(crate) use table::MetaTable;
