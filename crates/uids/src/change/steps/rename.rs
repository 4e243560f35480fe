//! The steps of a rename.
//!
//! ```text
//!   step                                      afterwards `from` is   `to` is    the UID is
//!   1  put forward mapping of `to`, if absent the UID                the UID    `from`
//!   2  reverse mapping: `from` becomes `to`   the UID                the UID    `to`
//!   3  delete forward mapping of `from`       unknown                the UID    `to`
//! ```
//!
//! Step 1 decides: if the name is taken, by an assignment too, nothing has happened yet. From then on the change can
//! be completed and is, because nothing else changes its cells: the log excludes other renames and deletes of the
//! names and of the UID, and an assignment never overwrites a cell. Points that are written meanwhile under either
//! name get the UID. The reverse order of 1 and 2, which is OpenTSDB's, would show readers a name that an assignment
//! may still give another UID.
//!
//! OpenTSDB takes no part in this: its rename puts without conditions. If it changes the reverse mapping between two
//! steps, step 2 fails, and step 1 is undone. If it overwrites a cell after that, two names have the UID, and its own
//! `uid fsck`, or ours, finds them.
//!
//! Where the store commits several rows atomically, the three steps are one commit.
//!
//! Source of OpenTSDB's order: OpenTSDB 2.4, `UniqueId.rename`.

use oxtsdb_row_store::{AtomicCommit, Condition, WriteBatch};
use oxtsdb_schema::{Name, Uid};

use super::{Claim, Interrupted, Outcome, check, forward, put, reverse};
use crate::table::{ID, KindUid, NAME, UidTable, forward_cell, reverse_cell};

pub(super) async fn take(
    table: &UidTable,
    uid: KindUid,
    from: &Name,
    to: &Name,
    claim: &Claim,
) -> Result<Outcome, Interrupted> {
    let rename = Rename { table, uid, from, to };
    loop {
        check(claim)?;
        let cells = rename.read().await?;
        if let Some(outcome) = rename.decide(&cells) {
            return Ok(outcome);
        }
        match table.store().atomic() {
            Some(commit) => {
                if rename.commit(commit, &cells).await? {
                    return Ok(Outcome::Made);
                }
            }
            None => {
                if let Some(outcome) = rename.step(&cells, claim).await? {
                    return Ok(outcome);
                }
            }
        }
    }
}

struct Rename<'a> {
    table: &'a UidTable,
    uid: KindUid,
    from: &'a Name,
    to: &'a Name,
}

/// The cells that a rename concerns.
struct Found {
    /// The UID of the old name.
    from: Option<Uid>,
    /// The UID of the new name.
    to: Option<Uid>,
    /// The name of the UID.
    reverse: Option<Name>,
}

impl Rename<'_> {
    async fn read(&self) -> Result<Found, Interrupted> {
        Ok(Found {
            from: forward(self.table, self.uid, self.from).await?,
            to: forward(self.table, self.uid, self.to).await?,
            reverse: reverse(self.table, self.uid).await?,
        })
    }

    /// The outcome, if it is certain from the cells.
    fn decide(&self, cells: &Found) -> Option<Outcome> {
        let uid = Some(self.uid.1);
        let renamed = cells.reverse.as_ref() == Some(self.to);
        match cells.to {
            Some(other) if Some(other) != uid => Some(Outcome::Taken(other)),
            Some(_) if renamed && cells.from != uid => Some(Outcome::Made),
            // Another program has deleted or renamed it before the first step.
            None if cells.from != uid => Some(Outcome::Changed),
            _ => None,
        }
    }

    /// Whether the reverse mapping can become the new name. A missing one is repaired by the rename.
    fn is_ours(&self, reverse: Option<&Name>) -> bool {
        reverse.is_none_or(|name| name == self.from || name == self.to)
    }

    /// Takes all steps at once; false if a cell has changed since it was read.
    async fn commit(&self, commit: &dyn AtomicCommit, cells: &Found) -> Result<bool, Interrupted> {
        let (kind, uid) = self.uid;
        let bytes = |uid: Uid| uid.as_bytes().to_vec();
        let conditions = [
            Condition {
                cell: forward_cell(kind, self.from),
                expected: cells.from.map(bytes),
            },
            Condition {
                cell: forward_cell(kind, self.to),
                expected: cells.to.map(bytes),
            },
            Condition {
                cell: reverse_cell(kind, uid),
                expected: cells.reverse.as_ref().map(|name| name.as_bytes().to_vec()),
            },
        ];
        let mut batch = WriteBatch::new(self.table.name().clone());
        let (id, name) = (batch.family(ID), batch.family(NAME));
        let qualifier = kind.qualifier();
        batch.row(self.to.as_bytes()).put(id, qualifier, uid.as_bytes());
        batch.row(uid.as_bytes()).put(name, qualifier, self.to.as_bytes());
        if cells.from == Some(uid) {
            batch.row(self.from.as_bytes()).delete_column(id, qualifier);
        }
        Ok(commit.commit_if(&conditions, batch).await?)
    }

    /// Takes the next step. Returns the outcome if it is certain without another read.
    async fn step(&self, cells: &Found, claim: &Claim) -> Result<Option<Outcome>, Interrupted> {
        let (kind, uid) = self.uid;
        if !self.is_ours(cells.reverse.as_ref()) {
            if cells.to == Some(uid) {
                check(claim)?;
                self.table.remove_forward(kind, self.to, uid).await?;
            }
            return Ok(Some(Outcome::Changed));
        }
        check(claim)?;
        if cells.to.is_none() {
            let cell = forward_cell(kind, self.to);
            // If another writer put it first, the next read shows the owner.
            put(self.table, cell, None, uid.as_bytes()).await?;
        } else if cells.reverse.as_ref() != Some(self.to) {
            let cell = reverse_cell(kind, uid);
            let expected = cells.reverse.as_ref().map(|name| name.as_bytes().to_vec());
            put(self.table, cell, expected, self.to.as_bytes()).await?;
        } else {
            self.table.remove_forward(kind, self.from, uid).await?;
        }
        Ok(None)
    }
}
