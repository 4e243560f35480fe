//! The steps of a delete.
//!
//! ```text
//!   step                                                  afterwards the name is   the UID is
//!   1  delete the forward mapping, if it holds the UID    unknown                  the name
//!   2  delete the UID's metadata                          unknown                  the name
//!   3  delete the reverse mapping, if it holds the name   unknown                  unknown
//! ```
//!
//! After step 1 the name can be assigned again, which gives it another UID. A crash leaves a reverse mapping without
//! a forward one, which OpenTSDB's `uid fsck` removes with its metadata, and so completes the delete.
//!
//! Where the store commits several rows atomically, the three steps are one commit.

use oxtsdb_row_store::{AtomicCommit, Condition, WriteBatch};
use oxtsdb_schema::uid_table::meta_qualifier;
use oxtsdb_schema::{Name, Uid};

use super::{Claim, Interrupted, Outcome, check, forward, reverse};
use crate::table::{ID, KindUid, NAME, UidTable, forward_cell, reverse_cell};

pub(super) async fn take(
    table: &UidTable,
    uid: KindUid,
    name: &Name,
    claim: &Claim,
) -> Result<Outcome, Interrupted> {
    loop {
        check(claim)?;
        let stored_uid = forward(table, uid, name).await?;
        let named = reverse(table, uid).await?;
        // The UID was renamed between the look-up and the entry, and the process that took the entry over cannot know.
        if stored_uid != Some(uid.1) && named.as_ref().is_some_and(|other| other != name) {
            return Ok(Outcome::Changed);
        }
        if let Some(commit) = table.store().atomic() {
            if delete_at_once(table, commit, uid, name, (stored_uid, named)).await? {
                return Ok(Outcome::Made);
            }
            continue;
        }
        let (kind, uid) = uid;
        if stored_uid == Some(uid) {
            table.remove_forward(kind, name, uid).await?;
        }
        // If another program has renamed the UID meanwhile, it keeps its metadata.
        if named.as_ref().is_none_or(|stored_name| stored_name == name) {
            check(claim)?;
            table.remove_meta(kind, uid).await?;
            check(claim)?;
            table.remove_reverse(kind, uid, name).await?;
        }
        return Ok(Outcome::Made);
    }
}

/// Takes all steps; false if a mapping has changed since it was read.
async fn delete_at_once(
    table: &UidTable,
    commit: &dyn AtomicCommit,
    (kind, uid): KindUid,
    name: &Name,
    (stored_uid, named): (Option<Uid>, Option<Name>),
) -> Result<bool, Interrupted> {
    let conditions = [
        Condition {
            cell: forward_cell(kind, name),
            expected: stored_uid.map(|uid| uid.as_bytes().to_vec()),
        },
        Condition {
            cell: reverse_cell(kind, uid),
            expected: named.as_ref().map(|name| name.as_bytes().to_vec()),
        },
    ];
    let mut batch = WriteBatch::new(table.name().clone());
    let (id_family, name_family) = (batch.family(ID), batch.family(NAME));
    if stored_uid == Some(uid) {
        batch
            .row(name.as_bytes())
            .delete_column(id_family, kind.qualifier());
    }
    if named.as_ref().is_none_or(|stored_name| stored_name == name) {
        batch
            .row(uid.as_bytes())
            .delete_column(name_family, kind.qualifier())
            .delete_column(name_family, meta_qualifier(kind));
    }
    if batch.is_empty() {
        return Ok(true);
    }
    Ok(commit.commit_if(&conditions, batch).await?)
}
