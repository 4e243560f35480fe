//! The steps of a change, on both kinds of store.
//!
//! Every step is conditional on what it replaces, and is skipped if it was taken already. So the steps of one change
//! can be taken again from the start, by this replica or by another one, after a crash between any two of them.

mod delete;
mod rename;

use oxtsdb_row_store::{CellAddress, ColumnSelection, StoreError};
use oxtsdb_schema::{Name, Uid};

use super::entry::{Change, Entry};
use super::log::Claim;
use crate::error::UidServiceError;
use crate::table::{KindUid, UidTable, is_uncertain};

/// How the steps of a change ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The change is made.
    Made,
    /// The new name has a UID. Nothing is changed.
    Taken(Uid),
    /// Another program has changed the mapping. The steps that were taken are undone.
    Changed,
}

/// Why the steps were not all taken. The change stays pending.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Interrupted {
    /// The store failed. No request is on its way to it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A put failed that may still reach the store. A change that is made after this one must not meet it.
    #[error(transparent)]
    InFlight(StoreError),
    /// A cell cannot be used.
    #[error(transparent)]
    Cell(Box<UidServiceError>),
    /// The time of the claim is over.
    #[error("its time is over")]
    Expired,
}

/// Takes the steps of a claimed change.
pub(super) async fn take(table: &UidTable, claim: &Claim) -> Result<Outcome, Interrupted> {
    let Entry { uid, change, .. } = claim.entry();
    match change {
        Change::Rename { from, to } => rename::take(table, *uid, from, to, claim).await,
        Change::Delete { name } => delete::take(table, *uid, name, claim).await,
    }
}

/// Fails if no further step may be taken.
fn check(claim: &Claim) -> Result<(), Interrupted> {
    if claim.is_valid() {
        Ok(())
    } else {
        Err(Interrupted::Expired)
    }
}

/// Puts a cell if it has the expected value. If it does not, the next read shows so.
async fn put(
    table: &UidTable,
    cell: CellAddress,
    expected: Option<Vec<u8>>,
    value: &[u8],
) -> Result<(), Interrupted> {
    match table.check_and_put(cell.clone(), expected, value).await {
        Ok(_) => Ok(()),
        Err(error) if is_uncertain(&error) => {
            let column = (cell.family.clone(), cell.qualifier.clone());
            let columns = ColumnSelection::Columns(vec![column]);
            let row = table.store().get(table.name(), &cell.row, &columns).await;
            let is_put = row.is_ok_and(|row| {
                let stored = row
                    .as_ref()
                    .and_then(|row| row.get(&cell.family, &cell.qualifier));
                stored.is_some_and(|stored| stored.value == value)
            });
            if is_put {
                Ok(())
            } else {
                Err(Interrupted::InFlight(error))
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// The UID in a name's forward mapping, as it is stored.
async fn forward(table: &UidTable, uid: KindUid, name: &Name) -> Result<Option<Uid>, Interrupted> {
    let result = table
        .uids(&[(uid.0, name.clone())])
        .await
        .pop()
        .unwrap_or(Ok(None));
    result.map_err(interrupted)
}

/// The name in a UID's reverse mapping.
async fn reverse(table: &UidTable, uid: KindUid) -> Result<Option<Name>, Interrupted> {
    let result = table.names(&[uid]).await.pop().unwrap_or(Ok(None));
    result.map_err(interrupted)
}

fn interrupted(error: UidServiceError) -> Interrupted {
    match error {
        UidServiceError::Store(error) => Interrupted::Store(error),
        error => Interrupted::Cell(Box::new(error)),
    }
}
