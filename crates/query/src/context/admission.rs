//! Admission control: a query runs once it has a permit and its share of the memory pool.
//!
//! ```text
//!   register ──► admit: a permit, in turn ──► reserve memory ──► run ──► keep only memory in use
//!   (listed, can be cancelled)                                  │  ▲
//!                                          client reads nothing │  │ client reads again
//!                                                               ▼  │
//!                                          permit and spare memory go to other queries
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{Admission, AdmissionLimits, ClientId, ComputePool, MemoryPool, Permit};
use tokio_util::sync::DropGuard;

use crate::context::budget::{Budget, Usage};
use crate::context::deadline::Deadline;
use crate::context::limits::Limits;
use crate::context::query_context::QueryContext;
use crate::context::running::Registration;
use crate::error::QueryError;

/// Most queries that wait for a permit, unless a setting changes it.
const DEFAULT_QUEUE: usize = 1024;

/// The memory that every query reserves before it starts.
const LEAST_BYTES: u64 = 1 << 20;

/// How long a query with a permit waits for this memory.
const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// How long results wait for the client before their query releases its permit.
pub const PAUSE_AFTER: Duration = Duration::from_millis(100);

/// The client of a query, and the deadline it requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// The client, for fairness.
    pub client: ClientId,
    /// The deadline that the client requested; `None`: only the query time-out applies.
    pub deadline: Option<Instant>,
}

impl RequestContext {
    /// A request of this process, with a deadline.
    pub const fn local(deadline: Option<Instant>) -> Self {
        Self {
            client: ClientId::Local,
            deadline,
        }
    }
}

/// Resources that all queries share.
#[derive(Clone, Debug)]
pub struct QueryResources {
    /// The memory pool.
    pub memory: MemoryPool,
    /// Admission control.
    pub admission: Admission,
    /// The compute pool.
    pub compute: ComputePool,
    /// The pool that evaluates expressions; one job can take minutes and must not delay the decoding of rows.
    pub expressions: ComputePool,
    /// Default and ceiling of deadlines; `None`: no limit.
    pub timeout: Option<Duration>,
    /// How long a client may read nothing of a result.
    pub client_timeout: Duration,
}

impl QueryResources {
    /// Without a limit of memory and time, for tests and tools.
    ///
    /// # Errors
    ///
    /// If the system has no threads left.
    pub fn unlimited() -> std::io::Result<Self> {
        Ok(Self {
            memory: MemoryPool::unlimited("query"),
            admission: Admission::new(AdmissionLimits {
                running: 16,
                queued: DEFAULT_QUEUE,
                wait: Duration::from_secs(60),
            }),
            compute: ComputePool::with_default_threads()?,
            expressions: ComputePool::new(1)?,
            timeout: None,
            client_timeout: Duration::from_secs(30),
        })
    }

    /// Waits for a permit, and reserves memory.
    pub(crate) async fn reserve(
        &self,
        client: ClientId,
        limits: Limits,
        usage: Arc<Usage>,
    ) -> Result<Reserved, QueryError> {
        let permit = self.admission.admit(client).await?;
        // The share that every running query can have, unless results that wait for their clients hold it. A
        // query that needs more, and may have it, takes it as far as it is free.
        let share = self.memory.limit_bytes() / self.admission.limits().running as u64;
        let initial = if self.memory.limit_bytes() == u64::MAX {
            0
        } else {
            limits.memory.most.min(share)
        };
        let least = initial.min(LEAST_BYTES);
        let reservation = self.memory.reserve(least, MEMORY_WAIT).await?;
        let budget = Budget::new(limits, usage, reservation);
        budget.reserve_again(initial);
        Ok(Reserved {
            permit,
            budget,
            initial,
        })
    }
}

/// A permit and the memory that was reserved with it.
#[derive(Debug)]
pub(crate) struct Reserved {
    permit: Permit,
    budget: Budget,
    initial: u64,
}

/// An admitted query. Dropping it cancels the query's context.
#[derive(Debug)]
pub struct Admitted {
    permit: Permit,
    initial: u64,
    context: QueryContext,
    _cancel: DropGuard,
}

impl Admitted {
    pub(crate) fn new(reserved: Reserved, deadline: Deadline, registration: Registration) -> Self {
        let context = QueryContext::new(deadline, reserved.budget, registration);
        Self {
            permit: reserved.permit,
            initial: reserved.initial,
            _cancel: context.cancellation().clone().drop_guard(),
            context,
        }
    }

    /// The context of the query.
    pub const fn context(&self) -> &QueryContext {
        &self.context
    }

    /// Its budget.
    pub const fn budget(&self) -> &Budget {
        self.context.budget()
    }

    /// Releases the permit, and the memory that the query does not hold, to other queries.
    pub fn pause(&mut self) {
        self.permit.pause();
        self.budget().keep_only_what_is_held();
    }

    /// Waits for the permit again, after [`Admitted::pause`].
    pub async fn resume(&mut self) {
        self.permit.resume().await;
        self.context.budget().reserve_again(self.initial);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        // Only results that the client has yet to read hold memory now.
        self.budget().keep_only_what_is_held();
    }
}
