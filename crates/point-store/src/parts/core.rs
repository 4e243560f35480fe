//! State that the threads of a store share.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use super::clock_watch::ClockWatch;
use super::config::PartsConfig;
use super::days::Days;
use super::days::pace::RatePacer;
use super::head::{Head, Heads};
use super::journal::JournalFiles;
use super::queue::{Queue, Reply};
use super::series::SeriesCatalogue;
use super::throttle::FlushProgress;
use crate::{Counters, DamagedPart, PointStoreError, SeriesNumber, TimeRange, Timings};

/// An open store.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: PartsConfig,
    pub(super) series: SeriesCatalogue,
    /// Series with lower numbers are durable.
    pub(super) durable_series: AtomicU32,
    pub(super) days: Days,
    pub(super) queue: Queue,
    /// Points that are not in parts. Held for writing while a flush or a delete becomes visible in `days`, so that a
    /// reader who takes both under the lock sees all points, and no deleted ones.
    pub(super) heads: RwLock<Heads>,
    pub(super) flush: FlushQueue,
    /// The files of the journal. The flush thread removes files with all their points in parts.
    pub(super) journal: Arc<JournalFiles>,
    /// Limits merges and checks, and ends them when the store stops.
    pub(super) pacer: RatePacer,
    pub(super) stop: Stop,
    pub(super) errors: Mutex<Errors>,
    /// The losses with which the store was opened.
    pub(super) losses: Vec<DamagedPart>,
    pub(super) counters: Counters,
    pub(super) timings: Arc<Timings>,
    pub(super) clock: ClockWatch,
    /// Points before this instant are dropped; [`i64::MIN`]: none.
    pub(super) retention_edge_ms: AtomicI64,
}

/// Whether the store stops.
#[derive(Debug, Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.is_set.lock()
    }

    /// Waits for `pause`; returns whether the store stops.
    pub(super) fn wait(&self, pause: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, pause);
        }
        *is_set
    }
}

/// The errors of the last attempts of the threads.
#[derive(Debug, Default)]
pub(super) struct Errors {
    pub(super) write: Option<PointStoreError>,
    pub(super) flush: Option<PointStoreError>,
    pub(super) merge: Option<PointStoreError>,
    pub(super) small_merge: Option<PointStoreError>,
}

/// A job of the flush thread. Jobs are done in order, so that a delete finds all earlier points in parts, and no
/// later ones.
#[derive(Debug)]
pub(super) enum FlushJob {
    /// Write a frozen head as parts.
    Head {
        head: Arc<Head>,
        /// The last segment of the journal that has its points, and the sequence number of the last frame there.
        segment: u64,
        cut: u64,
        /// The number of series that the journal has up to there.
        series: u32,
    },
    /// Delete points of earlier parts.
    Delete {
        series: Vec<SeriesNumber>,
        range: TimeRange,
        reply: Reply,
    },
    /// Link all parts to a folder, if there is one. They have the points of all earlier jobs, and no later ones.
    Done { snapshot: Option<PathBuf>, reply: Reply },
}

/// Jobs of the flush thread.
#[derive(Debug)]
pub(super) struct FlushQueue {
    pub(super) state: Mutex<FlushState>,
    /// A job was added, or done, or has failed.
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct FlushState {
    pub(super) jobs: VecDeque<FlushJob>,
    /// How far the first job is, if that is a head.
    pub(super) progress: Option<FlushProgress>,
    pub(super) stopping: bool,
}

impl FlushState {
    /// Fails the jobs that callers wait for, whatever is before them. Heads stay.
    pub(super) fn fail_callers(&mut self, error: &PointStoreError) {
        for job in std::mem::take(&mut self.jobs) {
            match job {
                FlushJob::Head { .. } => self.jobs.push_back(job),
                // The caller may have dropped the receiver.
                FlushJob::Delete { reply, .. } | FlushJob::Done { reply, .. } => {
                    drop(reply.send(Err(error.clone())));
                }
            }
        }
    }
}

impl FlushQueue {
    pub(super) fn new(state: FlushState) -> Self {
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Adds a job.
    pub(super) fn push(&self, job: FlushJob) {
        self.state.lock().jobs.push_back(job);
        self.changed.notify_all();
    }

    /// Ends the thread, with its jobs undone.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }
}
