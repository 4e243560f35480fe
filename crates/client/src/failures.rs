//! Failed points of a response, as ranges of positions.

use oxtsdb_proto::data::v1::{Failures, PointError, PointRuns};

use crate::Rejection;

/// Consecutive points that failed for the same reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FailedRange {
    /// Position of the first point in its request or frame.
    pub(crate) first: u64,
    /// Position behind the last point.
    pub(crate) end: u64,
    /// Whether the same points may be stored later.
    pub(crate) retryable: bool,
    /// Why; `None` behind the errors that the server describes.
    pub(crate) rejection: Option<Rejection>,
}

/// All failed points, ascending. The server lists all of them as runs, and describes the first errors.
pub(crate) fn ranges(failures: Failures) -> Vec<FailedRange> {
    let Failures {
        permanent,
        retryable,
        mut errors,
    } = failures;
    errors.sort_by_key(|error| error.first);
    let mut ranges = Vec::new();
    for (runs, retryable) in [(permanent, false), (retryable, true)] {
        for (first, end) in bounds(&runs.unwrap_or_default()) {
            describe(first, end, retryable, &errors, &mut ranges);
        }
    }
    ranges.sort_by_key(|range| range.first);
    ranges
}

fn bounds(runs: &PointRuns) -> impl Iterator<Item = (u64, u64)> {
    let runs = runs.first.iter().zip(&runs.count);
    runs.map(|(first, count)| (*first, first.saturating_add(*count)))
}

/// Splits a run where its description changes.
fn describe(first: u64, end: u64, retryable: bool, errors: &[PointError], ranges: &mut Vec<FailedRange>) {
    let mut position = first;
    let mut push = |first: u64, end: u64, rejection: Option<Rejection>| {
        if first < end {
            ranges.push(FailedRange {
                first,
                end,
                retryable,
                rejection,
            });
        }
    };
    let skipped = errors.partition_point(|error| end_of(error) <= first);
    let overlapping = errors.iter().skip(skipped).take_while(|error| error.first < end);
    for error in overlapping {
        push(position, error.first, None);
        let (from, to) = (position.max(error.first), end.min(end_of(error)));
        push(from, to, error.error.clone().map(Rejection::from));
        position = position.max(to);
    }
    push(position, end, None);
}

fn end_of(error: &PointError) -> u64 {
    error.first.saturating_add(error.count)
}

#[cfg(test)]
mod tests {
    use oxtsdb_proto::common::v1::ItemError;

    use super::*;

    fn runs(runs: &[(u64, u64)]) -> Option<PointRuns> {
        Some(PointRuns {
            first: runs.iter().map(|run| run.0).collect(),
            count: runs.iter().map(|run| run.1).collect(),
        })
    }

    fn error(first: u64, count: u64, message: &str) -> PointError {
        let error = ItemError {
            message: message.to_owned(),
            ..ItemError::default()
        };
        PointError {
            first,
            count,
            error: Some(error),
        }
    }

    /// First, end, whether retryable, message.
    fn found(failures: Failures) -> Vec<(u64, u64, bool, Option<String>)> {
        let of = |range: FailedRange| {
            let message = range.rejection.map(|rejection| rejection.message);
            (range.first, range.end, range.retryable, message)
        };
        ranges(failures).into_iter().map(of).collect()
    }

    #[test]
    fn runs_are_split_where_the_description_changes() {
        let failures = Failures {
            permanent: runs(&[(0, 5), (10, 2)]),
            retryable: runs(&[(6, 3)]),
            errors: vec![error(1, 2, "a"), error(3, 1, "b"), error(6, 3, "later")],
        };
        let some = |message: &str| Some(message.to_owned());
        let expected = [
            (0, 1, false, None),
            (1, 3, false, some("a")),
            (3, 4, false, some("b")),
            (4, 5, false, None),
            (6, 9, true, some("later")),
            (10, 12, false, None),
        ];
        assert_eq!(found(failures), expected);
    }

    #[test]
    fn no_failures_are_no_ranges() {
        assert_eq!(found(Failures::default()), []);
    }
}
