//! The points of a batch that are not stored: all are counted, the first are described.

use std::sync::Arc;

use crate::write::PointErrorReason;

/// Adjacent points that failed for one reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorRun {
    /// The index of the first point.
    pub(crate) first: u64,
    /// Points in the run.
    pub(crate) count: u64,
    pub(crate) reason: Arc<PointErrorReason>,
}

/// Errors of points, of which a limited number is kept.
#[derive(Debug)]
pub(crate) struct PointErrors {
    max: usize,
    runs: Vec<ErrorRun>,
    failed: u64,
}

impl PointErrors {
    /// Keeps at most `max` runs.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            runs: Vec::new(),
            failed: 0,
        }
    }

    /// Points that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// The first runs.
    pub(crate) fn into_runs(self) -> Vec<ErrorRun> {
        self.runs
    }

    /// Adds a point with a reason of its own.
    #[cold]
    pub(crate) fn add(&mut self, point: u64, reason: impl FnOnce() -> PointErrorReason) {
        self.failed += 1;
        if self.runs.len() < self.max {
            self.runs.push(ErrorRun {
                first: point,
                count: 1,
                reason: Arc::new(reason()),
            });
        }
    }

    /// Adds points that share a reason. Extends the last run if it ends at `first` with that reason.
    #[cold]
    pub(crate) fn add_run(&mut self, first: u64, count: u64, reason: &Arc<PointErrorReason>) {
        self.failed += count;
        let continues =
            |last: &&mut ErrorRun| last.first + last.count == first && Arc::ptr_eq(&last.reason, reason);
        if let Some(last) = self.runs.last_mut().filter(continues) {
            last.count += count;
        } else if count > 0 && self.runs.len() < self.max {
            self.runs.push(ErrorRun {
                first,
                count,
                reason: Arc::clone(reason),
            });
        }
    }
}
