//! Errors of assignments and look-ups. The UID service maps each to a gRPC code.

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::document::DocumentError;
use oxtsdb_schema::uid_table::CounterError;
use oxtsdb_schema::{Name, Uid, UidKind, UidWidth};

use crate::policy::Scope;

/// The error of one name or UID.
#[derive(Clone, Debug, thiserror::Error)]
pub enum UidServiceError {
    /// The name has no UID.
    #[error("no such name for `{kind}`: `{name}`")]
    NameNotFound {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// The UID has no name.
    #[error("no such UID for `{kind}`: {uid}")]
    UidNotFound {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// The UID in a request does not have the configured width.
    #[error("UID {uid} of `{kind}` has {} bytes, this deployment's have {expected}", .uid.width())]
    UidWidth {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The width of the kind.
        expected: UidWidth,
    },
    /// The stored UID does not have the configured width: a width was changed.
    #[error(
        "`{name}` of `{kind}` has a stored UID of {bytes} bytes, but the configured width is \
         {configured}: a width must never change while there is data"
    )]
    StoredWidth {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// Bytes of the stored value.
        bytes: usize,
        /// The width of the kind.
        configured: UidWidth,
    },
    /// The name is unknown, and writes do not assign UIDs of its kind.
    #[error("no such name for `{kind}`: `{name}`, and names of this kind are not created on first use")]
    AutoCreateDisabled {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// A rule of the deployment denies the name a UID.
    #[error("`{name}` of `{kind}`{} is not assigned a UID: denied by `{rule}`", tag_key_suffix(tag_key.as_deref()))]
    AssignmentRejected {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// The tag key that a tag value was to be assigned for.
        tag_key: Option<String>,
        /// The name of the rule.
        rule: String,
    },
    /// A quota of names is used up.
    #[error("the quota of {limit} {scope} is used up ({setting})")]
    QuotaExceeded {
        /// The names that the quota counts.
        scope: Scope,
        /// The most names.
        limit: u64,
        /// Its place in the rules file.
        setting: String,
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
    /// Every random UID that was drawn is in use. Another attempt draws others.
    #[error("{draws} random UIDs of `{kind}` in a row were in use")]
    NoFreeRandomUid {
        /// The kind.
        kind: UidKind,
        /// How many were drawn.
        draws: usize,
    },
    /// The counter is behind UIDs that are in use. Each attempt advances it, so a later one succeeds.
    #[error(
        "the counter of `{kind}` lies behind UIDs that are in use, up to number {number}; check the table"
    )]
    CounterBehind {
        /// The kind.
        kind: UidKind,
        /// The last number that was tried.
        number: u64,
    },
    /// The counter is below a UID that series use: the table was lost or replaced by an older copy.
    #[error(
        "`{kind}` assigns no UIDs: its counter is {counter}, series use UIDs up to {in_use}; restore the table of UIDs, \
         or run `tsdb uid recover`"
    )]
    CounterBelowUse {
        /// The kind.
        kind: UidKind,
        /// The counter.
        counter: u64,
        /// The highest UID in use.
        in_use: u64,
    },
    /// The table is not the one that the caller's points were written with.
    #[error(
        "table {table_id:016x} of UIDs is not the one that the points were written with, {expected:016x}: the folder \
         of UIDs was removed, or belongs to another deployment"
    )]
    OtherTable {
        /// The identity in the request.
        expected: u64,
        /// The identity of the table.
        table_id: u64,
    },
    /// Data services use more random UIDs than the service remembers.
    #[error("data services use more than {limit} random UIDs of `{kind}`")]
    TooManyInUse {
        /// The kind.
        kind: UidKind,
        /// The limit.
        limit: usize,
    },
    /// The counter cell does not hold 8 bytes.
    #[error("no UID can be assigned to `{kind}`: {source}")]
    CounterUnreadable {
        /// The kind.
        kind: UidKind,
        /// The decoding error.
        source: CounterError,
    },
    /// The counter cell holds a negative number.
    #[error("no UID can be assigned to `{kind}`: its counter is {number}, which no assignment can have left")]
    CounterNegative {
        /// The kind.
        kind: UidKind,
        /// The value.
        number: i64,
    },
    /// A reverse mapping is empty.
    #[error("the reverse mapping of `{kind}` {uid} holds no name")]
    EmptyName {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// Other processes kept changing the same cells. A retry succeeds once they stop.
    #[error("`{name}` of `{kind}` was not assigned: other writers kept changing the table")]
    Contended {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// The stored metadata is not the document that the etag names.
    #[error("the metadata of `{kind}` {uid} has another etag: `{stored}`")]
    EtagMismatch {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The etag of the stored document; empty: there is none.
        stored: String,
    },
    /// Stored metadata cannot be decoded.
    #[error("the metadata of `{kind}` {uid} is damaged: {source}")]
    CorruptMeta {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The decoding error.
        source: DocumentError,
    },
    /// Other processes kept changing the metadata.
    #[error("the metadata of `{kind}` {uid} was not changed: other writers kept changing it")]
    MetaContended {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// Metadata that is larger than what is written.
    #[error("the document has {bytes} bytes, limit is {max_bytes}")]
    DocumentTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// The documents of a batch are larger than a response.
    #[error("the documents before this one have {max_bytes} bytes, which is the limit of a response")]
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// The new name has a UID.
    #[error("`{name}` of `{kind}` is taken: it has the UID {uid}")]
    NameTaken {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// Its UID.
        uid: Uid,
    },
    /// The name has another UID than the caller expected.
    #[error("`{name}` of `{kind}` has the UID {uid}, expected {expected}")]
    UidMismatch {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// Its UID.
        uid: Uid,
        /// The UID in the request.
        expected: Uid,
    },
    /// Another change of one of the names or of the UID is not complete.
    #[error("a rename or delete of `{name}` of `{kind}` is in progress")]
    InProgress {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// Another program changed the mapping while it was renamed or deleted.
    #[error("another program has changed the mapping of `{name}` of `{kind}` meanwhile")]
    ChangedMeanwhile {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
    },
    /// The reverse mapping of the name's UID holds a third name.
    #[error("`{name}` of `{kind}` has the UID {uid}, but the name of {uid} is `{other}`; check the table")]
    OneWay {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// Its UID.
        uid: Uid,
        /// The name in the reverse mapping.
        other: Name,
    },
    /// Other processes kept changing the counter. A retry succeeds once they stop.
    #[error("the counter of `{kind}` was not raised: other writers kept changing it")]
    CounterContended {
        /// The kind.
        kind: UidKind,
    },
    /// A check of the table is running in this process.
    #[error("a check of the table is running on this server, at most 1 is allowed")]
    CheckRunning,
    /// The events after a resume token are not available.
    #[error("the events after this resume token are no longer available: watch without a token")]
    ResumeTokenExpired,
    /// A text is not a resume token.
    #[error("resume_token: is not a token of this call")]
    InvalidResumeToken,
    /// Too many watches are open.
    #[error("{limit} watches are open, which is the limit (--max-uid-watches)")]
    TooManyWatches {
        /// The limit.
        limit: usize,
    },
    /// The queue of names to assign is full.
    #[error("the queue of names to assign is full, limit is {limit} bytes")]
    Overloaded {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The task of the assignment terminated early: a bug.
    #[error("the assignment was interrupted")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn tag_key_suffix(tag_key: Option<&str>) -> String {
    tag_key.map_or_else(String::new, |tag_key| format!(" for tag key `{tag_key}`"))
}
