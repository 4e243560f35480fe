//! State shared by the compaction thread and the threads that request compactions.

use parking_lot::{Condvar, Mutex};

use crate::StoreError;

/// Requests to the compaction thread, and the result of its last compaction.
#[derive(Debug, Default)]
pub(super) struct CompactionState {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) requested: bool,
    pub(super) stopping: bool,
    /// Why the last compaction failed.
    pub(super) error: Option<StoreError>,
    /// The thread ended without having been stopped.
    died: bool,
}

impl CompactionState {
    /// Requests a compaction.
    pub(super) fn request(&self) {
        self.state.lock().requested = true;
        self.changed.notify_all();
    }

    /// Stops the thread after the current compaction.
    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Whether the thread is running.
    ///
    /// # Errors
    ///
    /// If it ended: reads slow down with each flush.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let state = self.state.lock();
        if !state.died {
            return Ok(());
        }
        Err(StoreError::Io {
            place: "compaction thread".to_owned(),
            detail: match &state.error {
                Some(error) => format!("it stopped, after {error}"),
                None => "it stopped".to_owned(),
            },
        })
    }
}

/// Records the end of the compaction thread when it is dropped, also by a panic.
pub(super) struct Ended<'a>(&'a CompactionState);

impl<'a> Ended<'a> {
    pub(super) fn of(compaction: &'a CompactionState) -> Self {
        Self(compaction)
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.died = !state.stopping;
    }
}
