//! The points of a batch that are not stored: all of them as runs, and the errors of the first.

use std::sync::Arc;

use crate::{PointErrorReason, RejectionKind};

/// Consecutive points. A batch has far fewer than 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The number of the first point.
    pub first: u32,
    /// At least 1.
    pub count: u32,
}

/// Consecutive points that failed for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorRun {
    /// The points that failed.
    pub run: Run,
    /// Shared by all points of the run.
    pub reason: Arc<PointErrorReason>,
}

/// The points that failed for one kind of reason, and the first of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejected {
    /// The kind of all reasons that are counted here.
    pub kind: RejectionKind,
    /// The number of points that failed.
    pub points: u64,
    /// The number of the first point.
    pub(crate) first: usize,
    /// The reason of the first point.
    pub reason: Arc<PointErrorReason>,
    /// The first point as text, if it was described.
    pub point: String,
}

/// Points that failed. They are added in ascending order.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    failed: u64,
    permanent: Vec<Run>,
    retryable: Vec<Run>,
    max_errors: usize,
    errors: Vec<ErrorRun>,
    rejected: Vec<Rejected>,
}

impl Failures {
    /// None so far. Keeps at most `max_errors` errors.
    pub fn new(max_errors: usize) -> Self {
        Self {
            max_errors,
            ..Self::default()
        }
    }

    /// The number of points that failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Points that fail again, unless they or the deployment change.
    pub fn permanent(&self) -> &[Run] {
        &self.permanent
    }

    /// Points that may succeed later without a change.
    pub fn retryable(&self) -> &[Run] {
        &self.retryable
    }

    /// The first errors.
    pub fn errors(&self) -> &[ErrorRun] {
        &self.errors
    }

    /// The points by kind of reason.
    pub fn rejected(&self) -> &[Rejected] {
        &self.rejected
    }

    /// Describes the first point of each kind.
    pub fn describe(&mut self, point: impl Fn(usize) -> String) {
        for rejected in &mut self.rejected {
            rejected.point = point(rejected.first);
        }
    }

    /// Adds a point that fails permanently, with an error of its own.
    #[cold]
    pub(super) fn add(&mut self, point: usize, reason: PointErrorReason) {
        self.failed += 1;
        let run = run(point, 1);
        push(&mut self.permanent, run);
        let kind = RejectionKind::from(&reason);
        let known = self.rejected.iter_mut().find(|rejected| rejected.kind == kind);
        let is_known = known.map(|rejected| rejected.points += 1).is_some();
        if is_known && self.errors.len() >= self.max_errors {
            return;
        }
        let reason = Arc::new(reason);
        if !is_known {
            self.add_kind(point, 1, &reason);
        }
        if self.errors.len() < self.max_errors {
            self.errors.push(ErrorRun { run, reason });
        }
    }

    fn add_kind(&mut self, first: usize, points: u64, reason: &Arc<PointErrorReason>) {
        let kind = RejectionKind::from(&**reason);
        match self.rejected.iter_mut().find(|rejected| rejected.kind == kind) {
            Some(rejected) => rejected.points += points,
            None => self.rejected.push(Rejected {
                kind,
                points,
                first,
                reason: Arc::clone(reason),
                point: String::new(),
            }),
        }
    }

    /// Adds points that share a reason.
    #[cold]
    pub fn add_run(&mut self, first: usize, count: usize, reason: &Arc<PointErrorReason>) {
        if count == 0 {
            return;
        }
        self.failed += count as u64;
        self.add_kind(first, count as u64, reason);
        let run = run(first, count);
        let runs = if reason.is_transient() {
            &mut self.retryable
        } else {
            &mut self.permanent
        };
        push(runs, run);
        let continues = |last: &&mut ErrorRun| {
            last.run.first + last.run.count == run.first && Arc::ptr_eq(&last.reason, reason)
        };
        if let Some(last) = self.errors.last_mut().filter(continues) {
            last.run.count += run.count;
        } else if self.errors.len() < self.max_errors {
            self.errors.push(ErrorRun {
                run,
                reason: Arc::clone(reason),
            });
        }
    }
}

fn run(first: usize, count: usize) -> Run {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Run {
        first: number(first),
        count: number(count),
    }
}

/// Appends a run, or extends the last one if `run` continues it.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.first + last.count == run.first => last.count += run.count,
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oxtsdb_metadata::uids::UidsError;

    #[test]
    fn merges_adjacent_points_into_runs() {
        let permanent = Arc::new(PointErrorReason::NoTags);
        let retryable = Arc::new(PointErrorReason::Unresolved(UidsError::DeadlineExceeded));
        let mut failures = Failures::new(3);
        failures.add_run(0, 2, &permanent);
        failures.add_run(2, 1, &permanent);
        failures.add_run(3, 1, &retryable);
        failures.add(4, PointErrorReason::NoSeries);
        failures.add(5, PointErrorReason::NoSeries);
        failures.add_run(7, 1, &permanent);
        failures.add_run(8, 0, &permanent);
        assert_eq!(failures.failed(), 7);
        let runs = |runs: &[(u32, u32)]| -> Vec<Run> {
            let run = |(first, count): &(u32, u32)| Run {
                first: *first,
                count: *count,
            };
            runs.iter().map(run).collect()
        };
        assert_eq!(failures.permanent(), runs(&[(0, 3), (4, 2), (7, 1)]));
        assert_eq!(failures.retryable(), runs(&[(3, 1)]));
        let errors: Vec<Run> = failures.errors().iter().map(|error| error.run).collect();
        assert_eq!(errors, runs(&[(0, 3), (3, 1), (4, 1)]), "no more than requested");
        let kinds = failures.rejected().iter();
        let kinds: Vec<_> = kinds
            .map(|rejected| (rejected.kind, rejected.points, rejected.first))
            .collect();
        assert_eq!(
            kinds,
            [
                (RejectionKind::Tags, 4, 0),
                (RejectionKind::Unavailable, 1, 3),
                (RejectionKind::Series, 2, 4)
            ]
        );
    }

    #[test]
    fn lists_all_points_without_errors() {
        let mut failures = Failures::new(0);
        failures.add(1, PointErrorReason::NoSeries);
        assert_eq!((failures.permanent().len(), failures.errors().len()), (1, 0));
    }
}
