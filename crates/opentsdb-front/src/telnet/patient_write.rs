//! Writes that are retried while the store or the UID service is unavailable.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_ingest::{NewPoint, PointError, PointErrorReason, WriteError, WriteOutcome, Writer};
use tokio::time::Instant;

use super::datum::DatumKind;

/// How long points wait for an unavailable store or UID service.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The pause before the first retry; each further pause is twice as long, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The attempts of a write.
struct Attempts {
    deadline: Instant,
    /// The pause before the next attempt.
    pause: Duration,
}

impl Attempts {
    fn new() -> Self {
        Self {
            deadline: Instant::now() + PATIENCE,
            pause: FIRST_PAUSE,
        }
    }

    /// The deadline of each attempt.
    fn deadline(&self) -> Option<std::time::Instant> {
        Some(self.deadline.into_std())
    }

    /// Pauses before another attempt; `false`, without a pause, if the deadline is too near for one.
    async fn pause(&mut self) -> bool {
        if Instant::now() + self.pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

/// Writes points, and retries points that failed for a transient reason: all points if the write failed, else the
/// points with unresolved series.
pub(super) async fn write(writer: &Writer, points: &[NewPoint<'_>]) -> Result<WriteOutcome, WriteError> {
    let mut attempts = Attempts::new();
    let mut outcome = WriteOutcome::default();
    let mut missing: Cow<'_, [NewPoint<'_>]> = Cow::Borrowed(points);
    // The indexes of the missing points in `points`; empty while all are missing.
    let mut indexes: Vec<usize> = Vec::new();
    loop {
        match writer.write(&missing, attempts.deadline()).await {
            Ok(written) => {
                outcome.written += written.written;
                let index_of = |index: usize| indexes.get(index).copied().unwrap_or(index);
                let errors = written.errors.into_iter().map(|error| PointError {
                    index: index_of(error.index),
                    ..error
                });
                let (again, failed): (Vec<_>, Vec<_>) = errors.partition(|error| error.reason.is_transient());
                outcome.errors.extend(failed);
                if again.is_empty() || !attempts.pause().await {
                    outcome.errors.extend(again);
                    return Ok(outcome);
                }
                indexes = again.iter().map(|error| error.index).collect();
                missing = indexes
                    .iter()
                    .filter_map(|index| points.get(*index).copied())
                    .collect();
            }
            Err(error) if error.is_transient() && attempts.pause().await => {}
            // Some points are stored; the missing ones fail because their series could not be resolved.
            Err(WriteError::Uids(error)) if outcome.written > 0 => {
                let reason = Arc::new(PointErrorReason::Unresolved(error));
                outcome.errors.extend(indexes.into_iter().map(|index| PointError {
                    index,
                    reason: Arc::clone(&reason),
                }));
                return Ok(outcome);
            }
            Err(error) => return Err(error),
        }
    }
}

/// As [`write()`], of other data. All are written again if some failed for a transient reason: a datum that is written
/// twice is stored once. Returns the last result.
pub(super) async fn write_data<K: DatumKind>(
    kind: &K,
    lines: &[&K::Line<'_>],
) -> Result<WriteOutcome, WriteError> {
    let mut attempts = Attempts::new();
    loop {
        let written = kind.write(lines, attempts.deadline()).await;
        let is_transient = match &written {
            Ok(outcome) => outcome.errors.iter().any(|error| error.reason.is_transient()),
            Err(error) => error.is_transient(),
        };
        if !is_transient || !attempts.pause().await {
            return written;
        }
    }
}
