//! Failed points as messages.
//!
//! All failed points of a million can be 500,000 runs, about 2 MiB. A response to a call has them in one
//! message; on a stream they are split over several acks.

use oxtsdb_ingest::columns::{ErrorRun, Failures, Run};
use oxtsdb_proto::data::v1::{self as pb, PointError, PointRuns};
use prost::Message as _;
use prost::encoding::encoded_len_varint;

use crate::grpc::status;

/// Bytes that the errors of a message may take.
const ERRORS_BYTES: usize = 512 << 10;

/// The bytes of an element beside its content: tag and length.
const ELEMENT_BYTES: usize = 8;

/// The failures of a response; `None` if there are none.
pub(in crate::grpc) fn failures_message(failures: Failures) -> Option<pb::Failures> {
    (failures.failed() > 0).then(|| {
        let mut remaining = RemainingFailures::new(failures);
        remaining.next_part(usize::MAX).message
    })
}

/// Failures that are sent in parts.
#[derive(Debug)]
pub(in crate::grpc) struct RemainingFailures {
    failures: Failures,
    errors: usize,
    errors_bytes: usize,
    permanent: usize,
    retryable: usize,
}

/// A part of failures.
#[derive(Debug)]
pub(in crate::grpc) struct FailuresPart {
    pub(in crate::grpc) message: pb::Failures,
    /// Points in its runs.
    pub(in crate::grpc) points: u64,
    /// About the encoded size.
    pub(in crate::grpc) bytes: usize,
}

impl RemainingFailures {
    pub(in crate::grpc) fn new(failures: Failures) -> Self {
        Self {
            failures,
            errors: 0,
            errors_bytes: 0,
            permanent: 0,
            retryable: 0,
        }
    }

    /// Whether all are sent.
    pub(in crate::grpc) fn is_empty(&self) -> bool {
        self.errors == self.failures.errors().len()
            && self.permanent == self.failures.permanent().len()
            && self.retryable == self.failures.retryable().len()
    }

    /// Bytes that the remaining ones take in memory, about.
    pub(in crate::grpc) fn byte_len(&self) -> usize {
        let runs = self.failures.permanent().len() + self.failures.retryable().len();
        runs.saturating_sub(self.permanent + self.retryable) * size_of::<Run>()
            + self.failures.errors().len().saturating_sub(self.errors) * size_of::<ErrorRun>()
    }

    /// The next ones that fit `budget` bytes, which is at least the budget of all errors.
    pub(in crate::grpc) fn next_part(&mut self, budget: usize) -> FailuresPart {
        let mut bytes = 0;
        let errors = self.take_errors(budget, &mut bytes);
        let mut points = 0;
        let mut take_runs = |runs: &[Run], sent: &mut usize| {
            let mut message = PointRuns::default();
            for run in runs.get(*sent..).unwrap_or_default() {
                let run_bytes = encoded_len_varint(run.first.into()) + encoded_len_varint(run.count.into());
                if bytes + run_bytes > budget {
                    break;
                }
                bytes += run_bytes;
                points += u64::from(run.count);
                *sent += 1;
                message.first.push(run.first.into());
                message.count.push(run.count.into());
            }
            (!message.first.is_empty()).then_some(message)
        };
        let permanent = take_runs(self.failures.permanent(), &mut self.permanent);
        let retryable = take_runs(self.failures.retryable(), &mut self.retryable);
        FailuresPart {
            message: pb::Failures {
                permanent,
                retryable,
                errors,
            },
            points,
            bytes,
        }
    }

    fn take_errors(&mut self, budget: usize, bytes: &mut usize) -> Vec<PointError> {
        let mut errors = Vec::new();
        while let Some(error) = self.failures.errors().get(self.errors) {
            let error = point_error(error);
            let error_bytes = error.encoded_len() + ELEMENT_BYTES;
            if self.errors_bytes + error_bytes > ERRORS_BYTES {
                // The others are listed, but not described.
                self.errors = self.failures.errors().len();
                break;
            }
            if *bytes + error_bytes > budget {
                break;
            }
            *bytes += error_bytes;
            self.errors_bytes += error_bytes;
            self.errors += 1;
            errors.push(error);
        }
        errors
    }
}

fn point_error(error: &ErrorRun) -> PointError {
    PointError {
        first: error.run.first.into(),
        count: error.run.count.into(),
        error: Some(status::point_item_error(&error.reason)),
    }
}
