//! The extent of a look-up, and the size of its batches.

/// Series in a batch, at most: each step of a batch on a thread of the runtime takes about a millisecond.
pub(super) const BATCH_SERIES: usize = 1024;

/// The series that a caller of a look-up reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    All,
    /// At most this number of the first.
    First(usize),
}
