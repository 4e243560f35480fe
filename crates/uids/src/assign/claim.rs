//! Puts the two cells of a mapping while other processes may assign the same name.
//!
//! A put is retried if its response is lost, by this process or unseen by HBase's Thrift server. So a put that finds the
//! cell present may have been executed before; the value shows the owner:
//!
//! - a reverse cell with our name is ours: the number was reserved for us. (A random number may also have been
//!   drawn for the same name elsewhere; then both processes put the same forward cell.)
//! - a forward cell with our UID is ours; with another UID, the other process won the race.
//!
//! The loser of a race deletes its reverse cell, which would otherwise remain as an orphan. It deletes the cell
//! only
//!
//! - if no put of the forward cell can be in flight. While the outcome of a put is unknown the reverse cell
//!   stays: if the winner's name is deleted and the put arrives after that, its UID has a name;
//! - if the cell still holds our name, and then only up to the version that was read. A delayed or duplicate
//!   delete thus cannot remove the cell of a name that has drawn the same random UID since.
//!
//! A crash between the lost race and the delete leaves an orphan, which is harmless: a sequential number is
//! never reserved again, and a random one is found in use.

use std::sync::{Arc, OnceLock};

use oxtsdb_row_store::{CellAddress, Retry, StoreError};
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use super::outcome::{ATTEMPTS, back_off};
use crate::error::UidServiceError;
use crate::table::{KindName, UidTable, forward_cell, is_uncertain, reverse_cell};

/// Attempts of a put while its responses are lost.
const UNKNOWN_ATTEMPTS: u32 = 3;

/// Attempts of a put or delete that the store rejects as transient.
const REJECTED_ATTEMPTS: u32 = 8;

/// The outcome for a name and the UID that was reserved for it.
pub(super) enum Claim {
    /// The name has the reserved UID.
    Ours,
    /// Another process has assigned a UID to the name.
    Theirs {
        /// The UID of the name.
        uid: Uid,
        /// Whether the reserved UID certainly has no mapping.
        is_unused: bool,
    },
    /// The reserved UID has another name.
    InUse,
    /// The store failed before the reserved UID got a mapping.
    Untried(StoreError),
}

/// The claims of a batch. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Claims {
    table: UidTable,
    /// The first failure of the store. Later claims fail with it immediately; otherwise the next batch would
    /// wait for the time-outs of all names of this one.
    failed: Arc<OnceLock<StoreError>>,
}

/// The result of a put under the condition that the cell is absent.
struct Put {
    /// Whether the last attempt was executed. If not, an earlier one may have been.
    done: bool,
    /// The response to an earlier attempt was lost.
    unknown: bool,
}

/// A put that failed after its last attempt.
struct Failed {
    error: StoreError,
    /// An attempt may have been executed, or may be in flight.
    unknown: bool,
}

impl Claims {
    pub(super) fn new(table: UidTable) -> Self {
        Self {
            table,
            failed: Arc::default(),
        }
    }

    /// Puts the reverse and the forward cell of a name and its reserved UID.
    pub(super) async fn claim(&self, key: &KindName, uid: Uid) -> Result<Claim, UidServiceError> {
        let (kind, name) = (key.0, &key.1);
        if let Some(error) = self.failed.get() {
            return Ok(Claim::Untried(error.clone()));
        }
        let reverse = self.put_if_absent(reverse_cell(kind, uid), name.as_bytes());
        let is_ours = match reverse.await {
            Ok(reverse) => reverse.done || self.name_of(kind, uid).await?.as_ref() == Some(name),
            Err(Failed {
                error,
                unknown: false,
            }) => return Ok(Claim::Untried(error)),
            Err(Failed { error, unknown: true }) => return Err(error.into()),
        };
        if !is_ours {
            return Ok(Claim::InUse);
        }
        let mut in_flight = false;
        let mut outcome = Err(UidServiceError::Contended {
            kind,
            name: name.clone(),
        });
        for attempt in 0..ATTEMPTS {
            let put = self.put_if_absent(forward_cell(kind, name), uid.as_bytes()).await;
            match put {
                Ok(Put { done: true, .. }) => return Ok(Claim::Ours),
                Ok(Put { unknown, .. }) => in_flight |= unknown,
                Err(Failed { error, unknown }) => {
                    in_flight |= unknown;
                    outcome = Err(error.into());
                    break;
                }
            }
            match self.uid_of(key).await {
                Ok(Some(stored_uid)) if stored_uid == uid => return Ok(Claim::Ours),
                Ok(Some(theirs)) => {
                    outcome = Ok(theirs);
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
                // The forward cell existed and does not any more: an operator deleted the name.
                Ok(None) => back_off(attempt).await,
            }
        }
        let is_unused = if in_flight {
            warn!(%kind, %name, %uid, "kept a reverse mapping: it is unknown whether its forward mapping was put");
            false
        } else {
            self.remove_orphan(kind, name, uid).await
        };
        outcome.map(|uid| Claim::Theirs { uid, is_unused })
    }

    async fn uid_of(&self, key: &KindName) -> Result<Option<Uid>, UidServiceError> {
        let result = self.table.uids(std::slice::from_ref(key)).await.pop();
        result.unwrap_or(Ok(None))
    }

    async fn name_of(&self, kind: UidKind, uid: Uid) -> Result<Option<Name>, UidServiceError> {
        let result = self.table.names(&[(kind, uid)]).await.pop();
        result.unwrap_or(Ok(None))
    }

    async fn put_if_absent(&self, cell: CellAddress, value: &[u8]) -> Result<Put, Failed> {
        let mut attempts = Attempts::default();
        loop {
            match self.table.check_and_put(cell.clone(), None, value).await {
                Ok(done) => {
                    return Ok(Put {
                        done,
                        unknown: attempts.unknown > 0,
                    });
                }
                Err(error) if attempts.retry_after(&error) && self.failed.get().is_none() => {
                    back_off(attempts.count()).await;
                }
                Err(error) => {
                    // A permanent error concerns this cell only.
                    if error.retry() != Retry::Never {
                        self.failed.get_or_init(|| error.clone());
                    }
                    return Err(Failed {
                        error,
                        unknown: attempts.unknown > 0,
                    });
                }
            }
        }
    }

    /// Removes the reverse mapping of a lost race. Returns whether it did.
    async fn remove_orphan(&self, kind: UidKind, name: &Name, uid: Uid) -> bool {
        let mut attempts = Attempts::default();
        loop {
            match self.table.remove_reverse(kind, uid, name).await {
                Ok(()) => return true,
                Err(error) if attempts.retry_after(&error) && self.failed.get().is_none() => {
                    back_off(attempts.count()).await;
                }
                Err(error) => {
                    warn!(%kind, %name, %uid, %error, "failed to delete an orphaned reverse mapping");
                    return false;
                }
            }
        }
    }
}

/// Failed attempts of one operation.
#[derive(Debug, Default)]
struct Attempts {
    /// Attempts with an unknown outcome.
    unknown: u32,
    /// Attempts without effect.
    rejected: u32,
}

impl Attempts {
    /// Counts a failure. Returns whether to retry.
    fn retry_after(&mut self, error: &StoreError) -> bool {
        if is_uncertain(error) {
            self.unknown += 1;
            self.unknown < UNKNOWN_ATTEMPTS
        } else {
            self.rejected += 1;
            // Some transient errors, such as a full disk, last too long for a retry.
            error.is_transient() && error.retry() == Retry::Safe && self.rejected < REJECTED_ATTEMPTS
        }
    }

    fn count(&self) -> u32 {
        self.unknown + self.rejected
    }
}
