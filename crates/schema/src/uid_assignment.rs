//! Values of the assignment of UIDs.

use crate::uid::{Uid, UidKind};

/// A UID that a name has or was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedUid {
    /// The UID.
    pub uid: Uid,
    /// Whether this call assigned it. False in a retry, if the first response was lost.
    pub created: bool,
}

/// The state of a kind with sequential UIDs: whether it assigns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindState {
    /// Name space.
    pub kind: UidKind,
    /// The counter when it was read last.
    pub counter: u64,
    /// The highest UID in use, of all reports; 0: none.
    pub highest_in_use: u64,
}

impl KindState {
    /// Whether no UID is assigned, because it may be in use.
    pub const fn is_blocked(&self) -> bool {
        self.counter < self.highest_in_use
    }
}
