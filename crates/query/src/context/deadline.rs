//! The deadline of a query: its request's deadline or the query time-out, whichever comes first.

use std::time::{Duration, Instant};

use crate::error::QueryError;

/// The deadline of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadline {
    at: Option<Instant>,
    /// Set if the query time-out passes before the deadline of the request.
    timeout: Option<Duration>,
}

impl Deadline {
    /// The deadline of a query that starts now.
    pub(crate) fn new(requested: Option<Instant>, timeout: Option<Duration>) -> Self {
        let ceiling = timeout.map(|timeout| Instant::now() + timeout);
        match (requested, ceiling) {
            (Some(requested), Some(ceiling)) if requested <= ceiling => Self {
                at: Some(requested),
                timeout: None,
            },
            (requested, None) => Self {
                at: requested,
                timeout: None,
            },
            (_, ceiling) => Self { at: ceiling, timeout },
        }
    }

    /// The instant; `None`: no deadline.
    pub(crate) const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// The error of a query that exceeds it.
    pub(crate) fn exceeded(&self) -> QueryError {
        match self.timeout {
            Some(timeout) => QueryError::TimedOut {
                seconds: timeout.as_secs(),
            },
            None => QueryError::DeadlineExceeded,
        }
    }

    /// How long a query may wait for memory: a little less than the time that remains, so that it is rejected for what it
    /// waited for.
    pub(crate) fn longest_wait(&self) -> Duration {
        let Some(at) = self.at else { return Duration::MAX };
        let remaining = at.saturating_duration_since(Instant::now());
        remaining - (remaining / 10).min(Duration::from_millis(100))
    }

    /// Completes when the deadline passes.
    pub(crate) async fn passed(&self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    }
}
