//! Names, UIDs and metadata of series: tables `tsdb-meta` and `tsdb-tree`, and the client of the UID service.
//!
//! ```text
//!   adapters ──► annotation · tree · lookup · text_search ──┐
//!   ingest ────► series_index ──────────────────────────────┼──► meta (tsdb-meta) ──► row store
//!                                                           └──► uids ──► UID service
//! ```
//!
//! No protocol: adapters decode requests and encode results. [`uids`] is the only client of the UID service.

pub mod annotation;
pub mod lookup;
pub mod meta;
pub mod references;
pub mod series_index;
pub mod text_search;
pub mod tree;
pub mod uids;
