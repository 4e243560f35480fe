//! Resources shared by all queries of an engine.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use oxtsdb_schema::HistogramCodecs;

use crate::context::admission::QueryResources;
use crate::context::limits::Limits;
use crate::exec::totals::QueryTotals;
use crate::storage::Storage;

/// Storage, limits and resources of an engine.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) storage: Storage,
    pub(super) limits: Limits,
    pub(crate) resources: QueryResources,
    /// The codecs of histograms; `None`: their cells cannot be decoded.
    pub(crate) histograms: Option<HistogramCodecs>,
    /// Points in memory from which on results are emitted before the scan ends.
    pub(super) emit_threshold: u64,
    /// Cells without points that all queries skipped.
    pub(crate) skipped_cells: Arc<AtomicU64>,
    /// The totals of all queries.
    pub(crate) totals: Arc<QueryTotals>,
}
