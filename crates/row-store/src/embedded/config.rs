//! What an embedded store is opened with, and its figures.

use std::path::PathBuf;

use super::descriptors;
use crate::Clock;

/// Where a store is, and its limits.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// The folder; it is made if there is none. One process has it at a time.
    pub path: PathBuf,
    /// The journal that may gather before a flush begins, in bytes; what a crash left counts. Twice
    /// as much may be on disk, while a flush is going on, and is what a start after a crash has to
    /// read.
    pub journal_bytes: u64,
    /// The memory for rows that may gather before a flush begins, in bytes. Twice as much may be
    /// in use, while a flush is going on.
    pub memory_bytes: usize,
    /// The memory for requests that wait to be committed, in bytes.
    pub queue_bytes: u32,
    /// The memory for row blocks that were read, in bytes.
    pub cache_bytes: u64,
    /// Files of row blocks that stay open, at least 10. A read of another one opens it, and closes
    /// the one that was not read for longest.
    pub table_descriptors: usize,
    /// Dates cells.
    pub clock: Clock,
}

impl EmbeddedConfig {
    /// A store in a folder, with the limits that are right for most: 64 MiB of journal, 128 MiB of
    /// memory, 64 MiB of requests, 64 MiB of cache, 256 open files of row blocks.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            journal_bytes: 64 << 20,
            memory_bytes: 128 << 20,
            queue_bytes: 64 << 20,
            cache_bytes: 64 << 20,
            table_descriptors: 256,
            clock: Clock::system(),
        }
    }

    /// The same with limits that take so many bytes of memory together: a third is for the rows that
    /// gather, as much for those that are being flushed, and the last third for requests and blocks.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        let third = bytes / 3;
        Self {
            memory_bytes: usize::try_from(third).unwrap_or(usize::MAX),
            queue_bytes: u32::try_from(third / 2).unwrap_or(u32::MAX).max(1 << 20),
            cache_bytes: third / 2,
            ..self
        }
    }

    /// The file descriptors that an open store needs, at most, when no more than
    /// `concurrent_reads` reads are under way. A process keeps so many from its connections.
    pub fn max_descriptors(&self, concurrent_reads: usize) -> usize {
        // A read may hold a file that has been closed for the others.
        let files = self.table_descriptors.max(MIN_TABLE_DESCRIPTORS) + concurrent_reads;
        files + descriptors::ALWAYS + descriptors::FLUSH + descriptors::COMPACTION + descriptors::REPAIR
    }
}

/// Figures of a store, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedStats {
    /// Bytes of journal that are not flushed yet.
    pub journal_bytes: u64,
    /// Memory of rows that are not flushed yet, in bytes.
    pub memory_bytes: u64,
    /// Rows that are not flushed yet; one that is written to during a flush counts twice.
    pub rows_in_memory: u64,
    /// Bytes of row blocks on disk.
    pub block_bytes: u64,
    /// Flushes since the store was opened.
    pub flushes: u64,
    /// Groups that were committed since the store was opened: one sync each.
    pub groups_committed: u64,
}

/// The engine's own least number of files that stay open.
pub(super) const MIN_TABLE_DESCRIPTORS: usize = 10;
