//! The two cells of a mapping, put by one of several who may want the same name at the same time.
//!
//! A put whose answer was lost is tried again, and what the cell holds then tells whose it is:
//!
//! - the reverse cell with our name is ours: the number was reserved for us (or was drawn at random
//!   by another one too, for the same name; then both put the same forward cell, and either may);
//! - the forward cell with our UID is ours, with another UID it is the winner's.
//!
//! When a race for the name is lost, our reverse cell is removed, so that it does not stay as an
//! orphan. It is removed only
//!
//! - when no put of the forward cell can be under way any more. While the fate of one is unknown the
//!   reverse cell stays: should the put arrive after all, because the winner's name was deleted
//!   meanwhile, the UID has its name;
//! - if it still holds our name, and then no version newer than the one that was read. So a delete
//!   that arrives late, or twice, cannot take a random UID from the name that has drawn it since.
//!
//! A process that dies between the lost race and the removal leaves an orphan; it is harmless: its
//! number is never handed out again (or, drawn at random again, found in use).

use std::sync::{Arc, OnceLock};

use oxtsdb_row_store::{CellAddress, Retry, StoreError};
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use super::outcome::{ATTEMPTS, back_off};
use crate::error::UidServiceError;
use crate::table::{KindName, UidTable, forward_cell, is_uncertain, reverse_cell};

/// How often a put is tried while its answer is lost.
const UNKNOWN_TRIES: u32 = 3;

/// How often a put or delete is tried while the store refuses it for the moment.
const REFUSED_TRIES: u32 = 8;

/// What became of a name and the UID that was reserved for it.
pub(super) enum Claim {
    /// The name has it.
    Ours,
    /// Another one assigned this UID to the name meanwhile.
    Theirs(Uid),
    /// The UID has a name.
    InUse,
}

/// The claims of a batch. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Claims {
    table: UidTable,
    /// Why the store fails. Then what has not begun does not begin: else each name would wait for
    /// its own time-out, and whoever comes next for all of them.
    failed: Arc<OnceLock<StoreError>>,
}

/// A put that took place only if the cell was absent.
struct Put {
    /// Whether it took place; `false` also when an earlier try of it may have.
    done: bool,
    /// The answer to an earlier try was lost.
    unknown: bool,
}

/// A put that was given up.
struct Failed {
    error: StoreError,
    /// A try of it may have been done, or may yet be.
    unknown: bool,
}

impl Claims {
    pub(super) fn new(table: UidTable) -> Self {
        Self {
            table,
            failed: Arc::default(),
        }
    }

    /// Steps 2 and 3 for a name and its reserved UID.
    pub(super) async fn claim(&self, key: &KindName, uid: Uid) -> Result<Claim, UidServiceError> {
        let (kind, name) = (key.0, &key.1);
        if let Some(error) = self.failed.get() {
            return Err(error.clone().into());
        }
        let reverse = self
            .put_if_absent(reverse_cell(kind, uid), name.as_bytes())
            .await
            .map_err(|failed| failed.error)?;
        let ours = reverse.done || (reverse.unknown && self.name_of(kind, uid).await?.as_ref() == Some(name));
        if !ours {
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
                Ok(Some(found)) if found == uid => return Ok(Claim::Ours),
                Ok(Some(theirs)) => {
                    outcome = Ok(Claim::Theirs(theirs));
                    break;
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
                // There was a forward cell and now there is none: an operator deleted the name.
                Ok(None) => back_off(attempt).await,
            }
        }
        if in_flight {
            warn!(%kind, %name, %uid, "a reverse mapping stays: the store did not tell whether its name has this UID");
        } else {
            self.remove_orphan(kind, name, uid).await;
        }
        outcome
    }

    async fn uid_of(&self, key: &KindName) -> Result<Option<Uid>, UidServiceError> {
        let found = self.table.uids(std::slice::from_ref(key)).await.pop();
        found.unwrap_or(Ok(None))
    }

    async fn name_of(&self, kind: UidKind, uid: Uid) -> Result<Option<Name>, UidServiceError> {
        let found = self.table.names(&[(kind, uid)]).await.pop();
        found.unwrap_or(Ok(None))
    }

    async fn put_if_absent(&self, cell: CellAddress, value: &[u8]) -> Result<Put, Failed> {
        let mut tries = Tries::default();
        loop {
            match self.table.check_and_put(cell.clone(), None, value).await {
                Ok(done) => {
                    return Ok(Put {
                        done,
                        unknown: tries.unknown > 0,
                    });
                }
                Err(error) if tries.again(&error) && self.failed.get().is_none() => {
                    back_off(tries.count()).await;
                }
                Err(error) => {
                    // Others can still be served when only this cell cannot.
                    if error.retry() != Retry::Never {
                        self.failed.get_or_init(|| error.clone());
                    }
                    return Err(Failed {
                        error,
                        unknown: tries.unknown > 0,
                    });
                }
            }
        }
    }

    async fn remove_orphan(&self, kind: UidKind, name: &Name, uid: Uid) {
        let mut tries = Tries::default();
        loop {
            match self.table.remove_reverse(kind, uid, name).await {
                Ok(()) => return,
                Err(error) if tries.again(&error) && self.failed.get().is_none() => {
                    back_off(tries.count()).await;
                }
                Err(error) => {
                    warn!(%kind, %name, %uid, %error, "a reverse mapping that is not used stays behind");
                    return;
                }
            }
        }
    }
}

/// How often something was tried in vain.
#[derive(Debug, Default)]
struct Tries {
    /// The store did not say whether it was done.
    unknown: u32,
    /// The store did not do it.
    refused: u32,
}

impl Tries {
    /// Takes note of a failure; whether to try once more.
    fn again(&mut self, error: &StoreError) -> bool {
        if is_uncertain(error) {
            self.unknown += 1;
            self.unknown < UNKNOWN_TRIES
        } else {
            self.refused += 1;
            // A full disk stays full for a while.
            error.is_transient() && error.retry() == Retry::Safe && self.refused < REFUSED_TRIES
        }
    }

    fn count(&self) -> u32 {
        self.unknown + self.refused
    }
}
