//! Admission control: a query runs once it has a permit and the memory that it needs.
//!
//! ```text
//!   register ──► admit: a permit, in turn ──► plan ──► reserve memory, in turn ──► run ──► keep only memory in use
//!   (listed, can be cancelled)                              ▲                     │ │  ▲
//!                                                           └── start again ◄─────┘ │  │ client reads again
//!                                                       memory runs out, nothing    ▼  │
//!                                                       was sent yet       client reads nothing: permit and
//!                                                                          spare memory go to other queries
//! ```
//!
//! A query waits for memory only while it holds none, so no two queries wait for each other. The amount is an estimate:
//! if memory runs out nevertheless, the query drops the points that it has read, reserves the whole limit of a query,
//! and starts again. No query needs more than the limit, so it starts again only once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{Admission, AdmissionLimits, ClientId, ComputePool, MemoryPool, Permit};
use tokio_util::sync::DropGuard;

use crate::context::budget::{Budget, Usage};
use crate::context::deadline::Deadline;
use crate::context::demand::Demand;
use crate::context::limits::Limits;
use crate::context::query_context::QueryContext;
use crate::context::running::Registration;
use crate::error::QueryError;

/// Most queries that wait for a permit, unless a setting changes it.
const DEFAULT_QUEUE: usize = 1024;

/// The memory that every query reserves before it starts.
const LEAST_BYTES: u64 = 1 << 20;

/// How long results wait for the client before their query releases its permit.
pub const PAUSE_AFTER: Duration = Duration::from_millis(100);

/// The client of a query, and the deadline it requested.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// The client, with which the query shares permits, memory and threads.
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

    /// Waits for a permit, and then until the deadline for a little memory.
    pub(crate) async fn reserve(
        &self,
        client: ClientId,
        limits: Limits,
        usage: Arc<Usage>,
        deadline: &Deadline,
    ) -> Result<Reserved, QueryError> {
        let permit = self.admission.admit(client).await?;
        // The share that every running query can have. A query that needs more, and may have it, takes it as far as it
        // is free.
        let share = self.memory.limit_bytes() / self.admission.limits().running as u64;
        let share = if self.memory.limit_bytes() == u64::MAX {
            0
        } else {
            limits.memory.most.min(share)
        };
        let reservation = {
            let _lent = permit.lend();
            let least = share.min(LEAST_BYTES);
            // Small queries of other clients find memory, whatever this client's queries hold.
            let memory = self.memory.for_client(client);
            memory.reserve(least, deadline.longest_wait()).await?
        };
        Ok(Reserved {
            client,
            permit,
            budget: Budget::new(limits, usage, reservation),
            share,
        })
    }
}

/// A permit and the memory that was reserved with it.
#[derive(Debug)]
pub(crate) struct Reserved {
    client: ClientId,
    permit: Permit,
    budget: Budget,
    share: u64,
}

/// An admitted query. Dropping it cancels the query's context.
#[derive(Debug)]
pub struct Admitted {
    permit: Permit,
    /// The memory that is reserved again when the query resumes, in bytes.
    share: u64,
    /// Whether the query has all the memory that it may have: it started again.
    has_all: bool,
    /// Whether the client received a part of the result.
    has_sent: bool,
    /// Whether results of earlier queries in the same context are kept.
    keeps_results: bool,
    context: QueryContext,
    _cancel: DropGuard,
}

impl Admitted {
    pub(crate) fn new(reserved: Reserved, deadline: Deadline, registration: Registration) -> Self {
        let context = QueryContext::new(reserved.client, deadline, reserved.budget, registration);
        Self {
            permit: reserved.permit,
            share: reserved.share,
            has_all: false,
            has_sent: false,
            keeps_results: false,
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
        self.reserve_share();
    }

    /// Reserves the share of the query, as far as it is free: for requests that are no queries of points.
    pub(crate) fn reserve_share(&self) {
        self.budget().reserve_again(self.share);
    }

    /// Reserves memory for a query before it reads, as far as it is free. Returns the bytes that the query has to wait for;
    /// none if it keeps earlier results: another query might wait for their memory.
    pub(crate) fn reserve_free(&mut self, demand: Demand) -> Option<u64> {
        let (budget, pool) = (self.budget().clone(), self.budget().pool());
        if self.has_all || pool.limit_bytes() == u64::MAX {
            return None;
        }
        let running = self.permit.admission().limits().running;
        let (least, wanted) = demand.within(&pool, running, self.most_bytes(&pool));
        self.share = wanted;
        budget.return_unused_above(LEAST_BYTES);
        let reserved = budget.reserved_bytes();
        if wanted <= reserved {
            return None;
        }
        let granted = wanted.min(pool.free_bytes().saturating_add(reserved));
        let is_free = granted >= least && !pool.has_waiting_requests() && budget.try_reserve(granted);
        (!is_free && !self.keeps_results).then_some(least)
    }

    /// Waits until `bytes` of memory are reserved, behind other queries that wait. Meanwhile it holds nothing that one of
    /// them could need.
    ///
    /// # Errors
    ///
    /// [`QueryError::NoMemory`] shortly before the deadline.
    pub(crate) async fn wait_for_memory(&self, bytes: u64) -> Result<(), QueryError> {
        self.budget().return_unused_above(0);
        let _lent = self.permit.lend();
        let wait = self.context.longest_wait();
        self.budget().wait_for(bytes, wait).await
    }

    /// The most memory that a query reserves: its limit. Requests that wait hold a little of the pool.
    fn most_bytes(&self, pool: &MemoryPool) -> u64 {
        let limit = self.budget().limits().memory.most;
        limit.min(pool.most_bytes() / 8 * 7)
    }

    /// Notes that the client receives a part of the result.
    pub(crate) const fn note_sent(&mut self) {
        self.has_sent = true;
    }

    /// Notes that a result was collected: it is kept, or its parts have been dropped after an error.
    pub(crate) const fn note_collected(&mut self, is_kept: bool) {
        self.has_sent = false;
        self.keeps_results |= is_kept;
    }

    /// Whether the query can start again after an error: memory ran out, and the client has received nothing.
    pub(crate) fn can_start_again(&self, error: &QueryError) -> bool {
        match error {
            QueryError::NoMemory(error) => {
                // After a wait for memory no time remains.
                let has_time = error.waited.is_zero() && !self.context.longest_wait().is_zero();
                let can_drop_all = !self.has_sent && !self.keeps_results;
                has_time && can_drop_all && !error.is_final() && !self.has_all
            }
            _ => false,
        }
    }

    /// Drops the budget of an attempt that has ended, and waits for all the memory that the query may have.
    ///
    /// # Errors
    ///
    /// [`QueryError::NoMemory`] at the deadline.
    pub(crate) async fn start_again(&mut self) -> Result<(), QueryError> {
        let old = self.budget().clone();
        let pool = old.pool();
        old.abandon();
        let budget = Budget::new(*old.limits(), Arc::default(), pool.empty_reservation());
        self.context = self.context.started_again(budget);
        // Cancels jobs of the old attempt.
        self._cancel = self.context.cancellation().clone().drop_guard();
        self.share = self.most_bytes(&pool);
        self.has_all = true;
        self.has_sent = false;
        self.wait_for_memory(self.share).await
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        // Only results that the client has yet to read hold memory now.
        self.budget().keep_only_what_is_held();
    }
}
