//! A thread pool for CPU-bound work, fair between clients.
//!
//! Decoding rows, aggregating, rendering and compressing results take milliseconds to seconds and would block
//! the runtime's threads. Jobs run to completion without waiting for other jobs, channels or callers; a fixed
//! number of them runs at a time and therefore serves any number of jobs.
//!
//! ```text
//!   spawn, run ──► queue of the client ──► slot free: client with the least used time ──► job ──► end: charge its time
//!                       ▲                                                                  │
//!                       └── another client with less used time waits: pause ◄── yield_to_others, every 2 ms
//! ```
//!
//! Clients share the threads by time, not by jobs: see `FairQueue`. A client with a thousand jobs delays the first job of
//! another client until one thread is free. So that this takes milliseconds, a job that may be long calls
//! [`yield_to_others`] now and then. If a client that has used less time waits, the job pauses: its thread sleeps, another
//! thread continues with the other client's job, and the paused job is the next one of its own client. A job must hold
//! no lock there. Nothing pauses while no other client waits.
//!
//! The threads have a lower priority than the runtime's threads, which receive, answer and write: while all processors compute,
//! a small request would otherwise wait for the system's next time slice at each of its steps.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::ClientId;
use crate::fair_queue::{FairQueue, ItemId};

/// How long a job runs before it may pause: longer than a switch of threads takes, and shorter than a caller notices.
const CHUNK: Duration = Duration::from_millis(2);

/// Paused jobs for each thread, at most; each keeps a sleeping thread. Each client pauses as many jobs as there are
/// threads. Beyond, jobs run to their end.
const PAUSED_PER_THREAD: usize = 4;

/// By how much the threads are nicer than the process. A thread has a tenth of the time of a runtime's thread on its
/// processor then, and yields to it at once when it wakes.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// A pool of threads. Clones share it; the threads end when the last one is dropped.
#[derive(Clone)]
pub struct ComputePool {
    handle: Arc<Handle>,
    /// The client that this handle queues jobs for.
    client: ClientId,
}

/// Ends the threads when it is dropped.
struct Handle {
    queue: Arc<Queue>,
    /// Jobs that run at a time.
    slots: usize,
}

/// State shared by the threads. A thread without a job sleeps: one that polls for the next job takes processor time
/// from the runtime's threads, about as much as a small query itself.
struct Queue {
    slots: usize,
    state: Mutex<QueueState>,
    /// Signalled for each job, and at the end.
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Jobs that have not started, and paused ones.
    jobs: FairQueue<Job>,
    /// Jobs that run.
    running: usize,
    /// Jobs that are paused. There is a thread for each, beside one for each slot.
    paused: usize,
    threads: usize,
    is_closed: bool,
}

enum Job {
    Start(Box<dyn FnOnce() + Send>),
    /// Wakes the thread of a paused job.
    Resume(mpsc::Sender<()>),
}

/// The job of a thread.
struct Current {
    queue: Arc<Queue>,
    client: ClientId,
    /// When it started or resumed.
    since: Instant,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

impl fmt::Debug for ComputePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ComputePool")
            .field("threads", &self.threads())
            .field("client", &self.client)
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
    /// Starts a thread.
    fn start_thread(self: &Arc<Self>, index: usize) -> std::io::Result<()> {
        let queue = Arc::clone(self);
        let thread = std::thread::Builder::new().name(format!("oxtsdb-compute-{index}"));
        thread.spawn(move || queue.work()).map(drop)
    }

    /// Performs jobs until the pool is dropped.
    fn work(self: Arc<Self>) {
        // Of this thread alone, which is Linux's meaning of it. A system that refuses it has slower small requests.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::nice(NICENESS);
        while let Some((client, job)) = self.next_job() {
            match job {
                // The slot is the paused job's now. Its thread waits for nothing else, so it receives this.
                Job::Resume(resume) => drop(resume.send(())),
                Job::Start(job) => {
                    let since = Instant::now();
                    CURRENT.set(Some(Current {
                        queue: Arc::clone(&self),
                        client,
                        since,
                    }));
                    job();
                    let since = CURRENT.take().map_or(since, |current| current.since);
                    let mut state = self.state.lock();
                    state.jobs.charge(client, since.elapsed());
                    state.jobs.end(client);
                    state.running -= 1;
                }
            }
        }
    }

    /// Waits for a slot and a job; `None`: the pool was dropped, and other threads perform the jobs that are left.
    fn next_job(&self) -> Option<(ClientId, Job)> {
        let mut state = self.state.lock();
        loop {
            if state.running < self.slots
                && let Some((client, job)) = state.jobs.pop()
            {
                state.running += 1;
                state.paused -= usize::from(matches!(job, Job::Resume(_)));
                return Some((client, job));
            }
            if state.is_closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Charges the time that the job of this thread took, and pauses it while clients that have used less time wait.
    fn yield_to_others(self: &Arc<Self>, client: ClientId, time: Duration) {
        let mut state = self.state.lock();
        state.jobs.charge(client, time);
        if state.is_closed || !state.jobs.has_priority_over(client) || !self.has_spare_thread(&mut state) {
            return;
        }
        let (resume, resumed) = mpsc::channel();
        state.jobs.push_front(client, Job::Resume(resume));
        state.jobs.end(client);
        state.running -= 1;
        state.paused += 1;
        drop(state);
        self.changed.notify_one();
        // A thread that takes the entry from the queue sends this.
        let _ = resumed.recv();
    }

    /// Whether all slots have a thread while one more job is paused; starts the thread if it may.
    fn has_spare_thread(self: &Arc<Self>, state: &mut QueueState) -> bool {
        if state.paused >= PAUSED_PER_THREAD * self.slots {
            return false;
        }
        if state.threads > self.slots + state.paused {
            return true;
        }
        let is_started = self.start_thread(state.threads).is_ok();
        state.threads += usize::from(is_started);
        is_started
    }
}

/// Lets other clients' jobs run, if this thread performs a job of a pool: pauses the job if it has run for two milliseconds
/// and a client that has used less time waits. Jobs that take long call it now and then, while they hold no lock.
pub fn yield_to_others() {
    let due = CURRENT.with_borrow(|current| {
        let current = current.as_ref()?;
        let time = current.since.elapsed();
        (time >= CHUNK).then(|| (Arc::clone(&current.queue), current.client, time))
    });
    let Some((queue, client, time)) = due else { return };
    queue.yield_to_others(client, time);
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current {
            current.since = Instant::now();
        }
    });
}

/// A job panicked; the panic hook has already reported it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a computation panicked: {message}")]
pub struct Panicked {
    /// The message of the panic.
    pub message: String,
}

impl ComputePool {
    /// A pool that runs `threads` jobs at a time, at least one.
    ///
    /// # Errors
    ///
    /// If the system cannot create a thread.
    pub fn new(threads: usize) -> std::io::Result<Self> {
        let slots = threads.max(1);
        let queue = Arc::new(Queue {
            slots,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let pool = Self {
            handle: Arc::new(Handle {
                queue: Arc::clone(&queue),
                slots,
            }),
            client: ClientId::Local,
        };
        for index in 0..slots {
            queue.start_thread(index)?;
        }
        queue.state.lock().threads = slots;
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

    /// The pool for the jobs of a client.
    #[must_use]
    pub fn for_client(&self, client: ClientId) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            client,
        }
    }

    /// The number of jobs that run at a time.
    pub fn threads(&self) -> usize {
        self.handle.slots
    }

    /// Queues a job and resolves to its result. The job must not block. Dropping the future removes a job that has not
    /// started, with all that it holds; one that runs continues.
    ///
    /// # Errors
    ///
    /// If the job panics.
    pub fn run<T: Send + 'static, J: FnOnce() -> T + Send + 'static>(
        &self,
        job: J,
    ) -> impl Future<Output = Result<T, Panicked>> + Send + use<T, J> {
        let (sender, receiver) = oneshot::channel();
        let id = self.push(move || {
            let result = catch_unwind(AssertUnwindSafe(job));
            // The caller may have dropped the future.
            let _ = sender.send(result);
        });
        let queued = QueuedJob {
            queue: Arc::clone(&self.handle.queue),
            client: self.client,
            id: Some(id),
        };
        async move {
            let received = receiver.await;
            queued.has_ended();
            match received {
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
    fn push(&self, job: impl FnOnce() + Send + 'static) -> ItemId {
        let queue = &self.handle.queue;
        let mut state = queue.state.lock();
        let id = state.jobs.push(self.client, Job::Start(Box::new(job)));
        let has_slot = state.running < queue.slots;
        drop(state);
        // A thread that ends a job looks for the next one itself.
        if has_slot {
            queue.changed.notify_one();
        }
        id
    }
}

/// A job that a future waits for. Dropping it removes the job from the queue if it has not started.
struct QueuedJob {
    queue: Arc<Queue>,
    client: ClientId,
    /// `None` once the job has ended.
    id: Option<ItemId>,
}

impl QueuedJob {
    /// Nothing is left to remove.
    fn has_ended(mut self) {
        self.id = None;
    }
}

impl Drop for QueuedJob {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let job = self.queue.state.lock().jobs.remove(self.client, id);
            // Frees what the job holds after the lock.
            drop(job);
        }
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
mod tests;
