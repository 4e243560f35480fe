//! The store: opening, its threads, flushing and closing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use parking_lot::RwLock;

use super::background;
use super::commit;
use super::config::{CellConfig, CellStats};
use super::core::Core;
use super::queue::{Queue, closed};
use crate::StoreError;

/// A [`RowStore`](crate::RowStore) in a local folder.
///
/// Dropping it stops its threads; nothing has to be written for that.
#[derive(Debug)]
pub struct CellStore {
    opened: RwLock<Option<Opened>>,
}

#[derive(Debug)]
pub(super) struct Opened {
    core: Arc<Core>,
    queue: Arc<Queue>,
    commit: JoinHandle<()>,
    background: [JoinHandle<()>; 2],
}

impl CellStore {
    /// Opens a store, creating it if necessary. Blocks while the journal is replayed.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] if another process has it open.
    /// - [`StoreError::Invalid`] if it has another format.
    /// - [`StoreError::Corrupt`] with the place of the damage, unless it is isolated in a table, or
    ///   [`CellConfig::accept_losses`] is set. An incomplete frame at the end of the journal is no damage: it is cut off.
    /// - [`StoreError::Io`] and [`StoreError::Full`] from the operating system.
    pub fn open(config: CellConfig) -> Result<Self, StoreError> {
        let queue = Arc::new(Queue::new(config.queue_bytes));
        let (core, journal) = Core::open(config)?;
        let core = Arc::new(core);
        let commit = spawn("oxtsdb-commit", {
            let (core, queue) = (core.clone(), queue.clone());
            move || commit::run(&core, &queue, journal)
        })?;
        let background = |name: &str, run: fn(&Core)| {
            let core = core.clone();
            spawn(name, move || run(&core))
        };
        let background = [
            background("oxtsdb-flush", background::flush)?,
            background("oxtsdb-merge", background::merge)?,
        ];
        Ok(Self {
            opened: RwLock::new(Some(Opened {
                core,
                queue,
                commit,
                background,
            })),
        })
    }

    /// Writes all cells in memory to table files and waits until that is done.
    ///
    /// # Errors
    ///
    /// If they cannot be written; no data is lost.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        queue.flush().await?;
        tokio::task::spawn_blocking(move || core.wait_for_flush())
            .await
            .map_err(|error| StoreError::Io {
                place: "flush".to_owned(),
                detail: error.to_string(),
            })?
    }

    /// The losses that opening the store has accepted, because [`CellConfig::accept_losses`] is set; rows that are
    /// known to be lost are in [`StoreControl::damage`](crate::StoreControl::damage).
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the store is closed.
    pub fn losses(&self) -> Result<Vec<StoreError>, StoreError> {
        Ok(self.opened()?.0.losses.clone())
    }

    /// Statistics for metrics.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the store is closed.
    pub fn stats(&self) -> Result<CellStats, StoreError> {
        let (core, _) = self.opened()?;
        let version = core.tree.version();
        Ok(CellStats {
            journal_bytes: core.journal.byte_len(),
            memory_bytes: version.active.byte_len(),
            table_bytes: version.tables.iter().map(|table| table.table.byte_len()).sum(),
            groups_committed: core.groups.load(Ordering::Relaxed),
        })
    }

    pub(super) fn opened(&self) -> Result<(Arc<Core>, Arc<Queue>), StoreError> {
        match &*self.opened.read() {
            Some(opened) => Ok((opened.core.clone(), opened.queue.clone())),
            None => Err(closed()),
        }
    }

    /// Closes the store for further calls.
    pub(super) fn take(&self) -> Option<Opened> {
        self.opened.write().take()
    }
}

impl Opened {
    /// Stops the threads after the queued requests. Files are closed once the last reader is done.
    pub(super) fn stop(self) {
        self.queue.close();
        join(self.commit);
        {
            let _state = self.core.background.lock();
            self.core.stopping.store(true, Ordering::Relaxed);
            self.core.background_changed.notify_all();
        }
        self.background.into_iter().for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

impl Drop for CellStore {
    fn drop(&mut self) {
        if let Some(opened) = self.take() {
            opened.stop();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| StoreError::Io {
            place: format!("thread {name}"),
            detail: error.to_string(),
        })
}
