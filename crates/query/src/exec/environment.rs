//! What all queries of an engine share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::context::admission::QueryResources;
use crate::context::limits::Limits;
use crate::storage::Storage;

/// Storage, limits and resources of an engine.
#[derive(Clone, Debug)]
pub(super) struct Environment {
    pub(super) storage: Storage,
    pub(super) limits: Limits,
    pub(super) resources: QueryResources,
    /// Points in memory from which on results are emitted before the scan ends.
    pub(super) emit_threshold: u64,
    /// Cells without points that all queries skipped.
    pub(super) skipped_cells: Arc<AtomicU64>,
}
