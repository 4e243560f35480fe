//! Continuous samples of the memory of a running server.
//!
//! A server that exceeds [`KILL_BYTES`] is killed: a failing test must not exhaust the
//! machine.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// A server with more resident memory than this is killed.
pub const KILL_BYTES: u64 = 3 << 30;

/// Time between samples: an allocation of gigabytes takes longer than this.
const INTERVAL: Duration = Duration::from_millis(10);

/// Samples are kept for the report at this interval.
const KEPT_INTERVAL: Duration = Duration::from_secs(1);

/// Samples the resident memory of a process in a thread of its own until it is dropped.
#[derive(Debug)]
pub struct MemoryWatch {
    shared: Arc<Shared>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    current: AtomicU64,
    peak: AtomicU64,
    killed: AtomicBool,
    kept: Mutex<Vec<(Duration, u64)>>,
}

impl MemoryWatch {
    /// Starts to sample a process.
    ///
    /// # Errors
    ///
    /// If the process does not run.
    pub fn start(process: u32) -> anyhow::Result<Self> {
        Self::start_with(process, KILL_BYTES)
    }

    /// As [`MemoryWatch::start`], with another bound in place of [`KILL_BYTES`].
    ///
    /// # Errors
    ///
    /// As [`MemoryWatch::start`].
    pub fn start_with(process: u32, kill_bytes: u64) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let first = resident_bytes(process)?;
        shared.record(first);
        let (stop, stopped) = mpsc::channel();
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let begun = Instant::now();
                let mut kept = None;
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    // The process may have ended, or be about to start again.
                    let Ok(bytes) = resident_bytes(process) else {
                        continue;
                    };
                    shared.record(bytes);
                    if kept.is_none_or(|at: Instant| at.elapsed() >= KEPT_INTERVAL) {
                        kept = Some(Instant::now());
                        let mut samples = shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
                        samples.push((begun.elapsed(), bytes));
                    }
                    if bytes > kill_bytes && !shared.killed.swap(true, Ordering::Relaxed) {
                        eprintln!("the server has {} MiB and is killed", bytes >> 20);
                        kill(process);
                    }
                }
            })
        };
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Resident bytes at the last sample.
    pub fn current(&self) -> u64 {
        self.shared.current.load(Ordering::Relaxed)
    }

    /// Returns the largest sample.
    pub fn peak(&self) -> u64 {
        self.shared.peak.load(Ordering::Relaxed)
    }

    /// A sample for each second, with its time since the start.
    pub fn samples(&self) -> Vec<(Duration, u64)> {
        let kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    /// Checks that no sample exceeds `most` bytes.
    ///
    /// # Errors
    ///
    /// If one does.
    pub fn check_below(&self, most: u64) -> anyhow::Result<()> {
        let peak = self.peak();
        ensure!(
            peak <= most,
            "the server had {} MiB, at most {} MiB are allowed",
            peak >> 20,
            most >> 20
        );
        Ok(())
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It only panics if a lock is poisoned, which is ignored above.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn record(&self, bytes: u64) {
        self.current.store(bytes, Ordering::Relaxed);
        self.peak.fetch_max(bytes, Ordering::Relaxed);
    }
}

fn resident_bytes(process: u32) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn kill(process: u32) {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(Err(error)) = pid.map(|pid| kill_process(pid, Signal::KILL)) {
        eprintln!("cannot kill process {process}: {error}");
    }
}
