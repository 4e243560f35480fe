//! A thread pool for CPU-bound work.
//!
//! Decoding rows, aggregating, rendering and compressing results take milliseconds to seconds and would block
//! the runtime's threads. Jobs run to completion without waiting for other jobs, channels or callers; a fixed
//! number of threads therefore serves any number of jobs, in order of arrival.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

/// A pool of threads. Clones share it; the threads end when the last one is dropped.
#[derive(Clone)]
pub struct ComputePool(Arc<Handle>);

/// Ends the threads when it is dropped.
struct Handle {
    queue: Arc<Queue>,
    threads: usize,
}

/// State shared by the threads. A thread without a job sleeps: one that polls for the next job takes processor time
/// from the runtime's threads, about as much as a small query itself.
#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    /// Signalled for each job, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Jobs that have not started, in order of arrival.
    jobs: VecDeque<Job>,
    is_closed: bool,
}

type Job = Box<dyn FnOnce() + Send>;

impl fmt::Debug for ComputePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputePool")
            .field("threads", &self.threads())
            .finish_non_exhaustive()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // A thread may drop the last clone, so it waits for none.
        self.queue.state.lock().is_closed = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    /// Performs jobs until the pool is dropped.
    fn work(&self) {
        loop {
            let job = {
                let mut state = self.state.lock();
                loop {
                    if let Some(job) = state.jobs.pop_front() {
                        break job;
                    }
                    if state.is_closed {
                        return;
                    }
                    self.changed.wait(&mut state);
                }
            };
            job();
        }
    }
}

/// A job panicked; the panic hook has already reported it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked: {message}")]
pub struct Panicked {
    /// The message of the panic.
    pub message: String,
}

impl ComputePool {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let queue: Arc<Queue> = Arc::default();
        let pool = Self(Arc::new(Handle {
            queue: Arc::clone(&queue),
            threads: threads.max(1),
        }));
        for index in 0..pool.threads() {
            let queue = Arc::clone(&queue);
            let thread = std::thread::Builder::new().name(format!("oxtsdb-compute-{index}"));
            thread.spawn(move || queue.work())?;
        }
        Ok(pool)
    }

    /// A pool with one thread per available processor.
    ///
    /// # Errors
    ///
    /// As [`ComputePool::new`].
    pub fn with_default_threads() -> std::io::Result<Self> {
        Self::new(std::thread::available_parallelism().map_or(1, std::num::NonZero::get))
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.0.threads
    }

    /// Queues a job and resolves to its result. The job must not block; dropping the future does not cancel it.
    ///
    /// # Errors
    ///
    /// If the job panics.
    pub fn run<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
        &self,
        job: J,
    ) -> impl Future<Output = Result<T, Panicked>> + Send + use<T, J> {
        let (sender, receiver) = oneshot::channel();
        self.push(move || {
            let result = catch_unwind(AssertUnwindSafe(job));
            // The caller may have dropped the future.
            let _ = sender.send(result);
        });
        async move {
            match receiver.await {
                Ok(Ok(result)) => Ok(result),
                Ok(Err(panic)) => Err(Panicked {
                    message: panic_message(&*panic),
                }),
                Err(_) => Err(Panicked {
                    message: "the job was dropped".to_owned(),
                }),
            }
        }
    }

    /// Queues a job without a result. If it panics, the panic hook reports it and the pool continues.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.push(move || {
            // The panic hook has reported it; the thread continues.
            let _ = catch_unwind(AssertUnwindSafe(job));
        });
    }
}

impl ComputePool {
    /// Queues a job that does not panic, and wakes a thread.
    fn push(&self, job: impl FnOnce() + Send + 'static) {
        self.0.queue.state.lock().jobs.push_back(Box::new(job));
        self.0.queue.changed.notify_one();
    }
}

/// The message of a panic payload.
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn one_thread_runs_any_number_of_jobs() {
        let pool = ComputePool::new(1).unwrap();
        let jobs: Vec<_> = (0..1000_u64).map(|job| pool.run(move || job)).collect();
        let results = futures::future::join_all(jobs).await;
        let sum: u64 = results.into_iter().map(Result::unwrap).sum();
        assert_eq!(sum, 499_500);
    }

    #[tokio::test]
    async fn self_scheduling_jobs_do_not_starve_others() {
        fn forever(pool: &ComputePool, is_over: &Arc<AtomicBool>) {
            let (next, is_over) = (pool.clone(), Arc::clone(is_over));
            pool.spawn(move || {
                if !is_over.load(Ordering::Relaxed) {
                    forever(&next, &is_over);
                }
            });
        }
        let pool = ComputePool::new(1).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        for _ in 0..4 {
            forever(&pool, &is_over);
        }
        assert_eq!(pool.run(|| 1).await, Ok(1), "it runs in between");
        is_over.store(true, Ordering::Relaxed);
    }

    #[tokio::test]
    async fn threads_end_with_the_pool_after_all_jobs() {
        let pool = ComputePool::new(2).unwrap();
        let queue = Arc::downgrade(&pool.0.queue);
        let jobs: Vec<_> = (0..100_u64)
            .map(|job| {
                let clone = pool.clone();
                pool.run(move || {
                    drop(clone);
                    job
                })
            })
            .collect();
        drop(pool);
        let results = futures::future::join_all(jobs).await;
        assert!(results.iter().all(Result::is_ok));
        let ended = async {
            while queue.strong_count() > 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), ended)
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn panic_fails_only_its_job() {
        let pool = ComputePool::new(1).unwrap();
        let error = pool.run(|| -> () { panic!("of the job") }).await.unwrap_err();
        assert_eq!(error.to_string(), "a computation panicked: of the job");
        assert_eq!(pool.run(|| 1).await, Ok(1));
    }
}
