//! File descriptors that the store keeps in hand.
//!
//! Connections take whatever descriptors the process may have. So those that a flush or a
//! compaction needs for new files are held open meanwhile, and are given back for just as long as
//! it runs; the next segment of the journal is open ahead of need (see `journal`).

use std::fs::File;
use std::path::PathBuf;

/// What a flush opens at a time beside table files that it reads: a table file that is written, the
/// list of table files, its successor, a folder that is synced.
pub(super) const FLUSH: usize = 4;
/// What a compaction opens at a time: the same, and the runs that it merges.
pub(super) const COMPACTION: usize = 12;
/// What is always open: the lock, the segments of the journal and their folder, and the engine's
/// lock, journal and settings.
pub(super) const ALWAYS: usize = 10;
/// What a repair opens at a time.
pub(super) const REPAIR: usize = 6;

/// Spare descriptors of a thread.
#[derive(Debug)]
pub(super) struct Spare {
    /// A file that is sure to be there.
    file: PathBuf,
    count: usize,
    held: Vec<File>,
}

impl Spare {
    /// Holds so many descriptors of a file.
    pub(super) fn new(file: PathBuf, count: usize) -> Self {
        let mut spare = Self {
            file,
            count,
            held: Vec::with_capacity(count),
        };
        spare.refill();
        spare
    }

    /// Runs work that opens files, with the descriptors free.
    pub(super) fn lend<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.held.clear();
        let done = work();
        self.refill();
        done
    }

    /// Takes as many as there are; those that cannot be had now are taken next time.
    fn refill(&mut self) {
        while self.held.len() < self.count {
            match File::open(&self.file) {
                Ok(file) => self.held.push(file),
                Err(_) => return,
            }
        }
    }
}
