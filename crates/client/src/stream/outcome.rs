//! The outcome of points.

use std::fmt;

use crate::{Rejection, SeriesName, Timestamp};

/// A point that is not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedPoint {
    /// Its number in the order in which points were given, from 0.
    pub index: u64,
    /// Its series.
    pub series: SeriesName,
    /// Its timestamp.
    pub timestamp: Timestamp,
    /// Whether the same point may be stored later without a change.
    pub retryable: bool,
    /// Why. `None` if the service rejected more points than it described; it describes the first.
    pub rejection: Option<Rejection>,
}

/// Points that the service has acknowledged: stored or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// The first of them; all points before it were acknowledged before.
    pub first_index: u64,
    /// How many.
    pub points: u64,
    /// How many of them are stored.
    pub written: u64,
    /// How many of them are not.
    pub failed: u64,
}

/// The outcome of written points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteReport {
    /// Points stored.
    pub written: u64,
    /// Points not stored.
    pub failed: u64,
    /// All points that are not stored.
    pub failures: Vec<FailedPoint>,
}

impl WriteReport {
    /// Whether all points are stored.
    pub fn is_complete(&self) -> bool {
        self.failed == 0
    }
}

/// Called with points as they fail.
pub(super) type OnFailure = Box<dyn FnMut(FailedPoint) + Send>;

/// Called with each acknowledgement, after its failures.
pub(super) type OnAcknowledged = Box<dyn FnMut(Acknowledged) + Send>;

/// Where outcomes go.
#[derive(Default)]
pub(super) struct Observers {
    pub(super) failure: Option<OnFailure>,
    pub(super) acknowledged: Option<OnAcknowledged>,
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").finish_non_exhaustive()
    }
}

impl Observers {
    /// Reports failures and an acknowledgement to the observers; to the report what has no observer.
    pub(super) fn report(
        &mut self,
        report: &mut WriteReport,
        failures: Vec<FailedPoint>,
        acknowledged: Acknowledged,
    ) {
        match &mut self.failure {
            Some(observer) => failures.into_iter().for_each(observer),
            None => report.failures.extend(failures),
        }
        report.written += acknowledged.written;
        report.failed += acknowledged.failed;
        if let Some(observer) = &mut self.acknowledged {
            observer(acknowledged);
        }
    }
}
