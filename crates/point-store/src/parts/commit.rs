//! The commit thread makes appends durable; the apply thread makes them visible.
//!
//! ```text
//!   queue ─► commit: one frame of the journal and one sync for all waiting batches
//!        ─► apply:  points into the head, then acknowledged        (the next group is being written meanwhile)
//! ```
//!
//! Both keep the order of the queue. A head is frozen between two groups, where the journal begins another segment:
//! the segments before it have exactly the points of that head and of earlier ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use super::core::{Core, FlushJob};
use super::head::Head;
use super::journal::{EncodedBatch, Journal};
use super::queue::{Queue, Reply, Request};
use super::throttle::Resource;
use crate::{PointBatch, PointStoreError, SeriesNumber};

/// Bytes of the journal at which a group ends.
const GROUP_BYTES: usize = 4 << 20;

/// How often the thread looks for other work while no requests arrive.
const IDLE: Duration = Duration::from_secs(1);

/// New series of a frame of the journal: bounds the memory of their keys.
const FRAME_SERIES: u32 = 1 << 16;

/// Groups that may wait between the threads.
pub(super) const GROUPS_AHEAD: usize = 1;

/// Work of the apply thread.
#[derive(Debug)]
pub(super) enum Apply {
    /// Durable batches, to be added to the head and acknowledged.
    Group(Vec<(PointBatch, Reply)>),
    /// Freeze the head, if it has points; then do the job.
    Freeze {
        segment: u64,
        /// The last frame of the journal up to there.
        cut: u64,
        series: u32,
        then: Option<FlushJob>,
    },
}

/// Makes requests durable until the queue is closed. `logged` is the number of series that the journal has, or that are
/// saved.
pub(super) fn run(core: &Core, journal: Journal, logged: u32, apply: &SyncSender<Apply>) {
    // Callers must not wait for a thread that has ended, not even after a panic.
    let _abandon = Abandon(&core.queue);
    let mut committer = Committer {
        core,
        journal,
        apply,
        logged,
        head_since: Instant::now(),
        paid_at: Instant::now(),
        head_per_kib: 1 << 10,
    };
    while let Some(requests) = core.queue.take(Instant::now() + IDLE) {
        let mut group = Group::default();
        for request in requests {
            match request {
                Request::Append {
                    batch,
                    encoded,
                    reply,
                } => {
                    group.bytes += encoded.byte_len();
                    group.encoded.push(encoded);
                    group.batches.push((batch, reply));
                    if group.bytes >= GROUP_BYTES {
                        committer.commit(std::mem::take(&mut group));
                    }
                }
                Request::Delete { series, range, reply } => {
                    committer.commit(std::mem::take(&mut group));
                    committer.flush_before(FlushJob::Delete { series, range, reply });
                }
                Request::Flush { snapshot, reply } => {
                    committer.commit(std::mem::take(&mut group));
                    committer.flush_before(FlushJob::Done { snapshot, reply });
                }
            }
        }
        committer.commit(group);
        committer.flush_if_due();
    }
}

struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Batches that become durable together.
#[derive(Default)]
struct Group {
    batches: Vec<(PointBatch, Reply)>,
    encoded: Vec<EncodedBatch>,
    bytes: usize,
}

struct Committer<'a> {
    core: &'a Core,
    journal: Journal,
    apply: &'a SyncSender<Apply>,
    /// Series with lower numbers are in the journal, or saved.
    logged: u32,
    /// When the active head began.
    head_since: Instant,
    /// Until when the last group takes its time.
    paid_at: Instant,
    /// Memory of the last head for 1,024 bytes of its journal.
    head_per_kib: u64,
}

impl Committer<'_> {
    fn commit(&mut self, group: Group) {
        if group.batches.is_empty() {
            return;
        }
        let written = self
            .wait_for_capacity()
            .and_then(|()| self.check_reserve())
            .and_then(|()| self.write(&group.encoded));
        self.core.errors.lock().write = written.as_ref().err().cloned();
        match written {
            Ok(()) => {
                self.core.counters.frames.add(1);
                self.send(Apply::Group(group.batches));
                self.flush_if_due();
            }
            Err(error) => {
                for (_, reply) in group.batches {
                    // The caller may have dropped the receiver.
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }

    /// Writes and syncs one frame, with the series that the journal does not have yet.
    fn write(&mut self, encoded: &[EncodedBatch]) -> Result<(), PointStoreError> {
        // A batch was queued after its series got their numbers.
        let end = self.core.series.len();
        let before = self.journal.byte_len();
        let mut logged = self.logged;
        loop {
            let first = logged;
            logged = end.min(first.saturating_add(FRAME_SERIES));
            let mut new = Vec::new();
            for series in (first..logged).map(SeriesNumber) {
                let mut key = Vec::new();
                self.core.series.key(series, &mut key);
                new.push((series, key));
            }
            if logged < end {
                self.journal.append(&new, &[])?;
            } else {
                self.journal.append(&new, encoded)?;
                break;
            }
        }
        let begun = Instant::now();
        self.journal.sync()?;
        self.core.timings.sync.observe_since(begun);
        self.logged = end;
        self.core.durable_series.store(end, Ordering::Release);
        let bytes = self.journal.byte_len().saturating_sub(before);
        self.pay(bytes);
        self.core.counters.journal_bytes.add(bytes);
        Ok(())
    }

    /// Memory and journal, which a flush gives back.
    fn resources(&self) -> [Resource; 2] {
        let config = &self.core.config;
        let used = [
            self.core.heads.read().byte_len() as u64,
            self.core.journal.byte_len(),
        ];
        let limits = [config.head_bytes as u64, config.journal_bytes];
        std::array::from_fn(|index| Resource {
            used: used[index],
            limit: limits[index],
        })
    }

    /// Waits until memory and journal have capacity, and for the time that the group before takes while a flush runs.
    ///
    /// # Errors
    ///
    /// The error of the flush thread, if it cannot free capacity.
    fn wait_for_capacity(&self) -> Result<(), PointStoreError> {
        let mut flush = self.core.flush.state.lock();
        while !flush.jobs.is_empty() {
            let now = Instant::now();
            let is_full = self.resources().iter().any(Resource::is_full);
            if !is_full && now >= self.paid_at {
                break;
            }
            if is_full && let Some(error) = &self.core.errors.lock().flush {
                return Err(error.clone());
            }
            let deadline = if is_full { now + IDLE } else { self.paid_at };
            self.core.flush.changed.wait_until(&mut flush, deadline);
        }
        Ok(())
    }

    /// Accounts for the bytes of the journal that a group took.
    fn pay(&mut self, bytes: u64) {
        let flush = self.core.flush.state.lock();
        self.paid_at = Instant::now();
        if let Some(progress) = flush.progress.as_ref() {
            let taken = [bytes.saturating_mul(self.head_per_kib) >> 10, bytes];
            let resources = self.resources().into_iter().zip(taken);
            let delays = resources.map(|(resource, taken)| resource.delay(taken, progress));
            self.paid_at += delays.max().unwrap_or_default();
        }
    }

    /// Fails if the disk's reserve is reached: flushing the points in memory needs the rest.
    fn check_reserve(&self) -> Result<(), PointStoreError> {
        let config = &self.core.config;
        let free = config.disk.free_bytes(&config.path);
        let free = free.map_err(|error| PointStoreError::io(config.path.display(), &error))?;
        let least = config.reserve_bytes / 2;
        if free < least {
            return Err(PointStoreError::Full(format!(
                "{free} bytes are free, {least} are reserved"
            )));
        }
        Ok(())
    }

    fn flush_if_due(&mut self) {
        let config = &self.core.config;
        let is_due = self.core.heads.read().active.byte_len() >= config.head_bytes / 2
            || self.journal.byte_len() >= config.journal_bytes / 2
            || self.head_since.elapsed() >= config.flush_after;
        if is_due && self.journal.byte_len() > 0 {
            // The next group finds the error, if there is one.
            if let Err((error, _)) = self.begin_head(None) {
                tracing::warn!(%error, "cannot begin another segment of the journal");
            }
        }
    }

    /// Freezes the head, then does a job that needs all earlier points in parts.
    fn flush_before(&mut self, job: FlushJob) {
        if let Err((error, Some(FlushJob::Delete { reply, .. } | FlushJob::Done { reply, .. }))) =
            self.begin_head(Some(job))
        {
            drop(reply.send(Err(error)));
        }
    }

    fn begin_head(&mut self, then: Option<FlushJob>) -> Result<(), (PointStoreError, Option<FlushJob>)> {
        self.head_since = Instant::now();
        let head = self.core.heads.read().active.byte_len() as u64;
        self.head_per_kib = (head << 10) / self.journal.byte_len().max(1);
        let segment = match self.journal.rotate() {
            Ok(segment) => segment,
            Err(error) => return Err((error, then)),
        };
        self.send(Apply::Freeze {
            segment,
            cut: self.journal.durable(),
            series: self.logged,
            then,
        });
        Ok(())
    }

    fn send(&self, work: Apply) {
        // The apply thread ends after this one, unless it panicked; then the replies are dropped.
        drop(self.apply.send(work));
    }
}

/// Adds points to the head and acknowledges them, until the commit thread ends.
pub(super) fn apply(core: &Core, work: &Receiver<Apply>) {
    while let Ok(work) = work.recv() {
        match work {
            Apply::Group(batches) => {
                let active = Arc::clone(&core.heads.read().active);
                for (batch, reply) in batches {
                    active.append(&batch);
                    core.counters.points.add(batch.len() as u64);
                    // The caller may have dropped the receiver.
                    drop(reply.send(Ok(())));
                }
            }
            Apply::Freeze {
                segment,
                cut,
                series,
                then,
            } => {
                freeze(core, segment, cut, series);
                if let Some(job) = then {
                    core.flush.push(job);
                }
            }
        }
    }
}

fn freeze(core: &Core, segment: u64, cut: u64, series: u32) {
    let head = {
        let mut heads = core.heads.write();
        if heads.active.is_empty() {
            return;
        }
        let head = std::mem::replace(&mut heads.active, Arc::new(Head::new(core.config.shards)));
        heads.frozen.push(Arc::clone(&head));
        head
    };
    core.flush.push(FlushJob::Head {
        head,
        segment,
        cut,
        series,
    });
}
