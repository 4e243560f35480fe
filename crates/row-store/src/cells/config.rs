//! Configuration and statistics of a cell store.

use std::path::PathBuf;
use std::sync::Arc;

use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::real::RealDisk;

use crate::Clock;

/// The location and limits of a store.
#[derive(Clone, Debug)]
pub struct CellConfig {
    /// The folder; created if it does not exist. Only one process can open it at a time.
    pub path: PathBuf,
    /// The memory for cells that are not yet in table files, in bytes; a quarter of it is the size at which a flush
    /// starts.
    pub memory_bytes: u64,
    /// The memory for queued requests, in bytes.
    pub queue_bytes: u32,
    /// The size of the cache of blocks, in bytes.
    pub cache_bytes: u64,
    /// The source of cell timestamps.
    pub clock: Clock,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// Whether the store opens although acknowledged commits are lost, beyond the rows that [`CellStore::damage`]
    /// names. The losses are logged.
    ///
    /// [`CellStore::damage`]: crate::StoreControl::damage
    pub accept_losses: bool,
}

/// Tables at which writes wait for merges: each is an open file, and a read looks into all of them.
pub(super) const MAX_TABLES: usize = 48;
/// Other files of an open store: the lock, the journal, the outputs of a flush and of a merge, files that are replaced.
const OTHER_DESCRIPTORS: usize = 16;

impl CellConfig {
    /// A store in this folder with default limits: 64 MiB of unflushed cells, 32 MiB of requests, 64 MiB of cache.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            memory_bytes: 64 << 20,
            queue_bytes: 32 << 20,
            cache_bytes: 64 << 20,
            clock: Clock::system(),
            disk: Arc::new(RealDisk),
            accept_losses: false,
        }
    }

    /// Divides `bytes` of memory: a half for unflushed cells, a sixth for requests, a third for the cache.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Self {
        Self {
            memory_bytes: bytes / 2,
            queue_bytes: u32::try_from(bytes / 6).unwrap_or(u32::MAX).max(1 << 20),
            cache_bytes: bytes / 3,
            ..self
        }
    }

    /// The most file descriptors that an open store needs with up to `concurrent_reads` concurrent reads. A process
    /// must keep this many from its connections.
    pub fn max_descriptors(&self, concurrent_reads: usize) -> usize {
        // A read may hold files that a merge has replaced.
        2 * MAX_TABLES + concurrent_reads + OTHER_DESCRIPTORS
    }
}

/// Statistics of a store, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CellStats {
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Memory of the cells that are not yet being flushed, in bytes.
    pub memory_bytes: u64,
    /// Bytes of table files.
    pub table_bytes: u64,
    /// Committed groups since the store was opened, each with one sync.
    pub groups_committed: u64,
}
