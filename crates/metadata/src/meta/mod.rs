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
//! [`MetaTable`] is the only access to documents and counts. [`new_series`] announces series when their document
//! is created.

pub(crate) mod changes;
mod counters;
mod documents;
mod listing;
pub mod names;
pub mod new_series;
mod purge;
mod sync;
mod table;

pub use documents::{MetaError, SeriesMeta};
pub use listing::Documents;
pub use names::SeriesError;
pub use purge::MetaPurge;
pub use sync::MetaSync;
pub use table::MetaTable;
