//! File descriptors that the store holds in reserve.
//!
//! Connections can take every descriptor that the process may have. A flush or compaction therefore keeps the
//! descriptors for its new files open while idle, and frees them just for the time it runs. The next segment of
//! the journal is opened ahead of need (see `journal`).

use std::fs::File;
use std::path::PathBuf;

/// Files that a flush opens beside the table files it reads: the new table file, the list of table files, its
/// successor, a folder to sync.
pub(super) const FLUSH: usize = 4;
/// Files that a compaction opens: those of a flush, and the runs that it merges.
pub(super) const COMPACTION: usize = 12;
/// Files that are always open: the lock, the segments of the journal and their folder, and the engine's lock,
/// journal and settings.
pub(super) const ALWAYS: usize = 10;
/// Files that a repair opens.
pub(super) const REPAIR: usize = 6;

/// Descriptors held in reserve by a thread.
#[derive(Debug)]
pub(super) struct Spare {
    /// A file that always exists.
    file: PathBuf,
    count: usize,
    held: Vec<File>,
}

impl Spare {
    /// Holds `count` descriptors of a file.
    pub(super) fn new(file: PathBuf, count: usize) -> Self {
        let mut spare = Self {
            file,
            count,
            held: Vec::with_capacity(count),
        };
        spare.refill();
        spare
    }

    /// Runs work that opens files, with the reserved descriptors free.
    pub(super) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.held.clear();
        let done = work();
        self.refill();
        done
    }

    /// Reopens as many descriptors as possible; the rest follow next time.
    fn refill(&mut self) {
        while self.held.len() < self.count {
            match File::open(&self.file) {
                Ok(file) => self.held.push(file),
                Err(_) => return,
            }
        }
    }
}
