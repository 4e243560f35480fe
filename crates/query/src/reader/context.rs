//! The context of a read of points.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_resources::ComputePool;

use crate::context::budget::Budget;
use crate::context::query_context::QueryContext;
use crate::names::NameDirectory;
use crate::series_index::SeriesIndex;

/// Names, the index of series, threads, and the context of the query. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadContext {
    /// Resolves names and UIDs.
    pub directory: Arc<dyn NameDirectory>,
    /// Lists the series of metrics; `None`: no index.
    pub index: Option<Arc<dyn SeriesIndex>>,
    /// The computation threads.
    pub compute: ComputePool,
    /// Deadline, cancellation and budget.
    pub query: QueryContext,
}

impl ReadContext {
    /// The deadline; `None`: none.
    pub const fn deadline(&self) -> Option<Instant> {
        self.query.deadline()
    }

    /// The limits of the query and its usage.
    pub const fn budget(&self) -> &Budget {
        self.query.budget()
    }
}
