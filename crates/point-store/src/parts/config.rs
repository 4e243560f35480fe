//! Limits and places of a store.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_row_store::Clock;
use oxtsdb_schema::UidWidths;

use oxtsdb_storage_file::disk::Disk;

/// The folder of a store, and its limits. The defaults suit 2 cores and 2 GiB.
#[derive(Clone, Debug)]
pub struct PartsConfig {
    /// The folder.
    pub path: PathBuf,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// Widths of the UIDs in the keys of series. An existing folder must have the same widths.
    pub widths: UidWidths,
    /// Whether the store is opened although it has lost acknowledged points that it cannot name: commits of the
    /// journal, or the list of its days. [`PartsStore::losses`](super::PartsStore::losses) reports them.
    pub accept_losses: bool,
    /// Shards of the head.
    pub shards: usize,
    /// Memory of points that are not in parts. At half of it they are written as parts while appends
    /// slow down; at all of it appends wait.
    pub head_bytes: usize,
    /// Journal that is not in parts, treated likewise: it bounds the time to replay it at a start.
    pub journal_bytes: u64,
    /// Points are in parts after this time, however few they are.
    pub flush_after: Duration,
    /// Memory of pages of parts.
    pub cache_bytes: u64,
    /// Parts' files that are kept open.
    pub open_files: usize,
    /// Bytes that merges write per second.
    pub merge_bytes_per_second: u64,
    /// Free bytes below which merges stop; below half of them appends are rejected.
    pub reserve_bytes: u64,
    /// Days that end earlier than this before now are dropped; `None`: none.
    pub retention: Option<Duration>,
    /// The operator confirms that it is this time at most: retention follows the clock up to it, however far it is ahead of
    /// the time at which the store was last open.
    pub clock_confirmed_ms: Option<i64>,
    /// The time for retention and ages.
    pub clock: Clock,
    /// A time that is never set, by which jumps of `clock` are noticed.
    pub uptime: Clock,
}

impl PartsConfig {
    /// A store in a folder, with default limits: 128 MiB of head, 256 MiB of journal, 64 MiB of cache, 256 files,
    /// merges of 64 MiB/s, a reserve of 1 GiB, no retention.
    pub fn new(path: impl Into<PathBuf>, disk: Arc<dyn Disk>) -> Self {
        Self {
            path: path.into(),
            disk,
            widths: UidWidths::default(),
            accept_losses: false,
            shards: 4,
            head_bytes: 128 << 20,
            journal_bytes: 256 << 20,
            flush_after: Duration::from_secs(3600),
            cache_bytes: 64 << 20,
            open_files: 256,
            merge_bytes_per_second: 64 << 20,
            reserve_bytes: 1 << 30,
            retention: None,
            clock_confirmed_ms: None,
            clock: Clock::system(),
            uptime: uptime(),
        }
    }
}

/// Milliseconds since now, whatever the system's clock is set to.
fn uptime() -> Clock {
    let start = Instant::now();
    Clock::new(move || i64::try_from(start.elapsed().as_millis()).unwrap_or(i64::MAX))
}
