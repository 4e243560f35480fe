//! Configuration and statistics of an embedded store.

use std::path::PathBuf;

use super::descriptors;
use crate::Clock;

/// The location and limits of a store.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// The folder; created if it does not exist. Only one process can open it at a time.
    pub path: PathBuf,
    /// The size of the journal at which a flush starts, in bytes; includes what a crash left. During a flush up to
    /// twice as much is on disk, which is also the most that recovery has to read.
    pub journal_bytes: u64,
    /// The size of the memtables at which a flush starts, in bytes. During a flush up to twice as much is in use.
    pub memory_bytes: usize,
    /// The memory for queued requests, in bytes.
    pub queue_bytes: u32,
    /// The size of the cache of row blocks, in bytes.
    pub cache_bytes: u64,
    /// The most open table files, at least 10. Reading another file closes the least recently used one.
    pub table_descriptors: usize,
    /// The source of cell timestamps.
    pub clock: Clock,
}

impl EmbeddedConfig {
    /// A store in this folder with default limits: 64 MiB of journal, 128 MiB of memtables, 64 MiB of requests, 64
    /// MiB of cache, 256 open table files.
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

    /// Divides `bytes` of memory: a third for active memtables, as much for memtables being flushed, and the last
    /// third for requests and the cache.
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

    /// The most file descriptors that an open store needs with up to `concurrent_reads` concurrent reads. A process
    /// must keep this many from its connections.
    pub fn max_descriptors(&self, concurrent_reads: usize) -> usize {
        // A read may hold a file that the cache has already closed.
        let files = self.table_descriptors.max(MIN_TABLE_DESCRIPTORS) + concurrent_reads;
        files + descriptors::ALWAYS + descriptors::FLUSH + descriptors::COMPACTION + descriptors::REPAIR
    }
}

/// Statistics of a store, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedStats {
    /// Unflushed journal, in bytes.
    pub journal_bytes: u64,
    /// Memtables, in bytes.
    pub memory_bytes: u64,
    /// Unflushed rows; a row written during a flush counts twice.
    pub rows_in_memory: u64,
    /// Bytes of row blocks on disk.
    pub block_bytes: u64,
    /// Flushes since the store was opened.
    pub flushes: u64,
    /// Committed groups since the store was opened, each with one sync.
    pub groups_committed: u64,
}

/// The engine's minimum of open files.
pub(super) const MIN_TABLE_DESCRIPTORS: usize = 10;
