//! What queries take of the process, and what a query has of it once it is admitted.
//!
//! ```text
//!   register ──► admit: a permit, in turn ──► reserve memory ──► run ──► keep only what is held
//!   (listed, can be ended)                                       │  ▲
//!                                            client reads nothing│  │and reads again
//!                                                                ▼  │
//!                                            permit and spare memory go to other queries
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{Admission, AdmissionLimits, ClientId, ComputePool, MemoryPool, Permit};

use crate::error::QueryError;
use crate::exec::budget::{Budget, Limits, Usage};

/// Queries that wait for a permit at most, unless a setting says otherwise.
const DEFAULT_QUEUE: usize = 1024;

/// The memory without which no query begins.
const LEAST_BYTES: u64 = 1 << 20;

/// How long a query waits for that once it has its permit.
const MEMORY_WAIT: Duration = Duration::from_secs(10);

/// How long results wait for the client before their query lets others run meanwhile.
pub const PAUSE_AFTER: Duration = Duration::from_millis(100);

/// Whose query it is, and until when it is to be answered.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestContext {
    /// The client, for fairness.
    pub client: ClientId,
    /// The deadline that the client gave; `None`: the query time-out alone holds.
    pub deadline: Option<Instant>,
}

impl RequestContext {
    /// Of this process, with a deadline.
    pub const fn local(deadline: Option<Instant>) -> Self {
        Self {
            client: ClientId::Local,
            deadline,
        }
    }
}

/// What all queries share.
#[derive(Clone, Debug)]
pub struct QueryResources {
    /// Their memory.
    pub memory: MemoryPool,
    /// How many run at a time.
    pub admission: Admission,
    /// Where they compute.
    pub compute: ComputePool,
    /// Where expressions are computed, which may take minutes in one piece and must not hold up rows.
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
    /// If the system gives no threads.
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

    /// The deadline of a query that begins now.
    pub fn deadline(&self, requested: Option<Instant>) -> Option<Instant> {
        let ceiling = self.timeout.map(|timeout| Instant::now() + timeout);
        requested.into_iter().chain(ceiling).min()
    }

    /// Waits until a query may run, and reserves what it may hold.
    ///
    /// # Errors
    ///
    /// [`QueryError::NotAdmitted`] and [`QueryError::NoMemory`]: it was not begun.
    pub async fn admit(
        &self,
        client: ClientId,
        limits: Limits,
        usage: Arc<Usage>,
    ) -> Result<Admitted, QueryError> {
        let permit = self.admission.admit(client).await?;
        // What every running query can have, unless results that wait for their clients have it. One that
        // needs more, and may have it, takes it as far as it is free.
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
        Ok(Admitted {
            permit,
            budget,
            initial,
        })
    }
}

/// A query that may run.
#[derive(Debug)]
pub struct Admitted {
    permit: Permit,
    budget: Budget,
    initial: u64,
}

impl Admitted {
    /// Its budget.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Lets other queries have its permit and the memory that it does not hold.
    pub fn pause(&mut self) {
        self.permit.pause();
        self.budget.keep_only_what_is_held();
    }

    /// Goes on after [`Admitted::pause`], when it is its turn.
    pub async fn resume(&mut self) {
        self.permit.resume().await;
        self.budget.reserve_again(self.initial);
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        // What is held now are results, which the client has yet to take.
        self.budget.keep_only_what_is_held();
    }
}
