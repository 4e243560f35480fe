//! The memory budget of writes (`--max-writes-mib`): for batches from before they are built until the store has
//! confirmed them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::WriteError;

/// Bytes of a batch for each permit of the semaphore.
const PERMIT_BYTES: usize = 1024;

/// How long a call waits for a permit.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The budget. Cloning is cheap, clones share it.
#[derive(Clone, Debug)]
pub(super) struct WriteBudget {
    semaphore: Arc<Semaphore>,
    limit: u32,
}

impl WriteBudget {
    /// A budget of `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        let limit = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX);
        Self {
            semaphore: Arc::new(Semaphore::new(limit as usize)),
            limit,
        }
    }

    /// Reserves `bytes`, waiting without a limit. A batch larger than the budget reserves all of it.
    pub(super) fn permit(&self, bytes: usize) -> impl Future<Output = WritePermit> + Send + use<> {
        let semaphore = Arc::clone(&self.semaphore);
        let permits = u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX);
        let permits = permits.min(self.limit);
        async move { WritePermit(semaphore.acquire_many_owned(permits).await.ok()) }
    }

    /// As [`WriteBudget::permit`], with a limit of the wait.
    ///
    /// # Errors
    ///
    /// [`WriteError::DeadlineExceeded`] at the deadline; [`WriteError::Overloaded`] after the longest wait.
    pub(super) async fn permit_in_time(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<WritePermit, WriteError> {
        let began = Instant::now();
        let limit = began + PERMIT_TIMEOUT;
        let deadline = deadline.filter(|deadline| *deadline < limit);
        let until = deadline.unwrap_or(limit);
        let permit = tokio::time::timeout_at(until.into(), self.permit(bytes)).await;
        permit.map_err(|_elapsed| match deadline {
            Some(_) => WriteError::DeadlineExceeded,
            None => WriteError::Overloaded {
                limit_bytes: self.limit as usize * PERMIT_BYTES,
                waited: began.elapsed(),
            },
        })
    }
}

/// A reserved part of the budget. Dropping it releases the bytes.
#[derive(Debug)]
pub struct WritePermit(
    /// `None` would mean a closed semaphore; this one is never closed.
    Option<OwnedSemaphorePermit>,
);

impl WritePermit {
    /// Releases the permits beyond a batch of `bytes`.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        if let Some(permit) = &mut self.0 {
            let spare = permit.num_permits().saturating_sub(bytes.div_ceil(PERMIT_BYTES));
            drop(permit.split(spare));
        }
    }
}
