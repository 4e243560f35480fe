//! The context of one query.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{ClientId, ComputePool};
use tokio_util::sync::CancellationToken;

use crate::context::budget::Budget;
use crate::context::deadline::Deadline;
use crate::context::running::Registration;
use crate::error::QueryError;

/// The state that all stages of a query share. Every stage takes it: sub-queries, last-point look-ups and expressions.
/// Clones share one budget and one cancellation.
#[derive(Clone, Debug)]
pub struct QueryContext {
    client: ClientId,
    deadline: Deadline,
    cancellation: CancellationToken,
    budget: Budget,
    /// `None`: a query of a test or a tool, which is not listed.
    registration: Option<Arc<Registration>>,
}

impl QueryContext {
    /// The context of a registered query. It is cancelled with its registration.
    pub(crate) fn new(
        client: ClientId,
        deadline: Deadline,
        budget: Budget,
        registration: Registration,
    ) -> Self {
        Self {
            client,
            deadline,
            cancellation: registration.cancellation().child_token(),
            budget,
            registration: Some(Arc::new(registration)),
        }
    }

    /// The context of the same query when it starts again, with a budget of its own.
    pub(crate) fn started_again(&self, budget: Budget) -> Self {
        let registration = self.registration.clone();
        if let Some(registration) = &registration {
            registration.set_usage(Arc::clone(budget.usage()));
        }
        let cancellation = registration
            .as_ref()
            .map(|registration| registration.cancellation().child_token());
        Self {
            client: self.client,
            deadline: self.deadline,
            cancellation: cancellation.unwrap_or_default(),
            budget,
            registration,
        }
    }

    /// How long the query may wait for memory.
    pub(crate) fn longest_wait(&self) -> Duration {
        self.deadline.longest_wait()
    }

    /// A context without a deadline that is not registered, for tests and tools.
    pub fn unregistered(budget: Budget) -> Self {
        Self {
            client: ClientId::Local,
            deadline: Deadline::default(),
            cancellation: CancellationToken::new(),
            budget,
            registration: None,
        }
    }

    /// The threads of a pool for jobs of the query, which take turns with the jobs of other clients.
    pub fn compute(&self, pool: &ComputePool) -> ComputePool {
        pool.for_client(self.client)
    }

    /// The deadline; `None`: none.
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline.at()
    }

    /// The limits of the query and its usage.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Cancelled when an operator cancels the query, and when its future is dropped. Computations on other
    /// threads stop then.
    pub const fn cancellation(&self) -> &CancellationToken {
        &self.cancellation
    }

    /// Runs `work` until the deadline passes or an operator cancels the query.
    ///
    /// # Errors
    ///
    /// Errors of `work`, [`QueryError::DeadlineExceeded`], [`QueryError::TimedOut`], and
    /// [`QueryError::Cancelled`].
    pub async fn run<T, E: From<QueryError> + Display>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let result = tokio::select! {
            // The interruption first: work that was cancelled ends too, with an error of its own.
            biased;
            error = self.interrupted() => Err(error.into()),
            result = work => result,
        };
        if let (Err(error), Some(registration)) = (&result, &self.registration) {
            registration.failed(error);
        }
        result
    }

    /// Completes when the query must stop, with the reason as an error.
    pub async fn interrupted(&self) -> QueryError {
        let cancelled = async {
            match &self.registration {
                Some(registration) => registration.cancellation().cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.deadline.passed() => self.deadline.exceeded(),
            () = cancelled => QueryError::Cancelled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::context::limits::Limits;
    use crate::context::running::{QueryDescription, RunningQueries};

    #[tokio::test]
    async fn work_that_ends_because_of_a_cancellation_is_cancelled() {
        let running = RunningQueries::default();
        let registration = running.register(QueryDescription::default(), Arc::default());
        let id = running.list().first().expect("one query is registered").id;
        let context = QueryContext::new(
            ClientId::Local,
            Deadline::default(),
            Budget::from_limits(Limits::NONE),
            registration,
        );
        assert!(running.cancel(id));
        let stopped = context
            .run(ready(Err::<(), _>(QueryError::DeadlineExceeded)))
            .await;
        assert!(matches!(stopped, Err(QueryError::Cancelled)), "{stopped:?}");
    }
}
