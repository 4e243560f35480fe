//! What can go wrong with a name or a UID. `grpc/status.rs` says which code each error gets.

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::uid_table::CounterError;
use oxtsdb_schema::{Name, Uid, UidKind, UidWidth};

/// Why a name got no UID, or a UID no name.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UidServiceError {
    /// Nobody has given this name a UID.
    #[error("no such name for `{kind}`: `{name}`")]
    NameNotFound {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// No name has this UID.
    #[error("no such UID for `{kind}`: {uid}")]
    UidNotFound {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// A UID was asked for that is no UID of this deployment.
    #[error("UID {uid} of `{kind}` has {} bytes, this deployment's have {expected}", .uid.width())]
    UidWidth {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The width of the kind.
        expected: UidWidth,
    },
    /// The name has a UID that is no UID of this deployment: a width was changed.
    #[error(
        "`{name}` of `{kind}` has a stored UID of {found} bytes, but the configured width is \
         {configured}: a width must never change while there is data"
    )]
    StoredWidth {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// Bytes of the stored value.
        found: usize,
        /// The width of the kind.
        configured: UidWidth,
    },
    /// The name is unknown and the deployment does not assign UIDs of its kind on write.
    #[error("no such name for `{kind}`: `{name}`, and names of this kind are not created on first use")]
    AutoCreateDisabled {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// The counter has reached the largest number of its width.
    #[error("all UIDs of `{kind}` are in use: {max} is the largest number of {width} bytes")]
    SpaceExhausted {
        /// The kind.
        kind: UidKind,
        /// Its width.
        width: UidWidth,
        /// The largest number.
        max: u64,
    },
    /// Every random UID that was drawn is in use. Another try may have more luck.
    #[error("{draws} random UIDs of `{kind}` in a row were in use")]
    NoFreeRandomUid {
        /// The kind.
        kind: UidKind,
        /// How many were drawn.
        draws: usize,
    },
    /// The counter lies behind UIDs in use. It has moved on: another try may succeed.
    #[error(
        "the counter of `{kind}` lies behind UIDs that are in use, up to number {number}; check the table"
    )]
    CounterBehind {
        /// The kind.
        kind: UidKind,
        /// The last number tried.
        number: u64,
    },
    /// The counter cell does not hold 8 bytes.
    #[error("no UID can be assigned to `{kind}`: {source}")]
    CounterUnreadable {
        /// The kind.
        kind: UidKind,
        /// What it holds.
        source: CounterError,
    },
    /// The counter cell holds a negative number.
    #[error("no UID can be assigned to `{kind}`: its counter is {number}, which no assignment can have left")]
    CounterNegative {
        /// The kind.
        kind: UidKind,
        /// What it holds.
        number: i64,
    },
    /// A reverse mapping is no name.
    #[error("the reverse mapping of `{kind}` {uid} holds no name")]
    EmptyName {
        /// The kind.
        kind: UidKind,
        /// Where it is.
        uid: Uid,
    },
    /// Others changed the same cells again and again. Another try will succeed when they are done.
    #[error("`{name}` of `{kind}` was not assigned: others kept changing the table meanwhile")]
    Contended {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// Too many names wait to be assigned.
    #[error("too many names wait to be assigned, {limit} bytes of names are allowed")]
    Overloaded {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The task that did the work ended early: a fault of ours.
    #[error("the assignment was interrupted")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
