//! Metadata of series: table `tsdb-meta`.
//!
//! ```text
//!   writer ── tracking ─────────────► table ──► name:ts_ctr, name:ts_meta
//!   calls ──► names ──► documents ──────┤
//!   points' row keys ──► sync ──────────┤
//!                        purge ─────────┤
//!                                       ├─ a new document ──► new_series ──► subscribers (trees)
//!                                       └─ any change ──────► changes ─────► text search
//! ```
//!
//! [`MetaTable`] is the only access to documents and counts. [`new_series`] announces series whose document was
//! created.

pub(crate) mod changes;
mod counters;
mod documents;
mod listing;
pub(crate) mod names;
pub(crate) mod new_series;
mod purge;
mod sync;
mod table;

pub(crate) use documents::{MetaError, SeriesMeta};
pub(crate) use listing::Documents;
pub(crate) use names::SeriesError;
pub(crate) use purge::MetaPurge;
pub(crate) use sync::MetaSync;
pub(crate) use table::MetaTable;
