//! Assignment of a batch in one atomic commit.
//!
//! The first attempt reads only the counters: the caller has just not found the names, and the numbers after a counter
//! are normally free. Both are conditions of the commit. If one is not true, or another process has changed a counter,
//! the commit has no effect, and the next attempt reads all cells first.

use oxtsdb_row_store::{AtomicCommit, Condition, FamilyId, WriteBatch};
use oxtsdb_schema::uid_table::{COUNTER_ROW, encode_counter, meta_qualifier};
use oxtsdb_schema::{AssignedUid, Uid, UidKind};
use tracing::warn;

use super::outcome::{ATTEMPTS, MAX_SKIPPED, Outcome, already_there, back_off};
use super::random;
use crate::error::UidServiceError;
use crate::in_use::InUse;
use crate::meta::new_document;
use crate::reclaim::free::{FreeNumber, FreeNumbers};
use crate::table::{self, KindName, UidTable, counter_cell, forward_cell, is_uncertain, reverse_cell};

pub(super) async fn assign(
    table: &UidTable,
    free: &FreeNumbers,
    in_use: &InUse,
    commit: &dyn AtomicCommit,
    names: &[KindName],
) -> Vec<Outcome> {
    let mut contended = Vec::new();
    for attempt in 0..ATTEMPTS {
        let known = if attempt == 0 { Known::Assumed } else { Known::Read };
        let mut plan = Plan::new(table, free, in_use, names, known).await;
        if plan.batch.is_empty() {
            return plan.outcomes;
        }
        match commit.commit_if(&plan.conditions, plan.batch).await {
            Ok(true) => return plan.outcomes,
            Ok(false) => {
                free.give_back(plan.drawn).await;
                contended = plan.contended;
                back_off(attempt).await;
            }
            Err(error) => {
                warn!(%error, "failed to write new UIDs");
                if !is_uncertain(&error) {
                    free.give_back(plan.drawn).await;
                }
                for outcome in plan.outcomes.iter_mut().filter(|outcome| is_new(outcome)) {
                    *outcome = Err(error.clone().into());
                }
                return plan.outcomes;
            }
        }
    }
    contended
}

fn is_new(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(AssignedUid { created: true, .. }))
}

/// Where a plan has from which names have no UID and which numbers after the counter are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// All are assumed to be so.
    Assumed,
    /// The table.
    Read,
}

/// The commit of a batch, and the outcome of each name.
struct Plan {
    batch: WriteBatch,
    id: FamilyId,
    name: FamilyId,
    conditions: Vec<Condition>,
    /// The outcomes if the commit succeeds.
    outcomes: Vec<Outcome>,
    /// The outcomes if a condition fails.
    contended: Vec<Outcome>,
    /// The reclaimed numbers among those that it assigns.
    drawn: Vec<FreeNumber>,
}

impl Plan {
    async fn new(
        table: &UidTable,
        free: &FreeNumbers,
        in_use: &InUse,
        names: &[KindName],
        source: Known,
    ) -> Self {
        let results = match source {
            Known::Assumed => vec![Ok(None); names.len()],
            Known::Read => table.uids(names).await,
        };
        let (known, outcomes): (Vec<bool>, Vec<Outcome>) = results
            .into_iter()
            .zip(names)
            .map(|(result, key)| already_there(result, key))
            .unzip();
        let mut batch = WriteBatch::new(table.name().clone());
        let (id, name) = (batch.family(table::ID), batch.family(table::NAME));
        let contended = outcomes.clone();
        let mut plan = Self {
            batch,
            id,
            name,
            conditions: Vec::new(),
            outcomes,
            contended,
            drawn: Vec::new(),
        };
        for kind in UidKind::ALL {
            let missing: Vec<usize> = (0..names.len())
                .filter(|index| names[*index].0 == kind && !known[*index])
                .collect();
            if missing.is_empty() {
                continue;
            }
            let reserved = if table.layout().kinds.get(kind).random {
                reserve_random(table, free, in_use, kind, missing.len()).await
            } else {
                plan.reserve_sequential(table, (free, in_use), kind, missing.len(), source)
                    .await
            };
            plan.assign(kind, names, &missing, reserved, table.layout().realtime_meta);
        }
        plan
    }

    /// Selects the next free UIDs after the counter, and adds the counter's increment to the commit.
    async fn reserve_sequential(
        &mut self,
        table: &UidTable,
        (released, in_use): (&FreeNumbers, &InUse),
        kind: UidKind,
        count: usize,
        source: Known,
    ) -> Reserved {
        let counter = table.counter(kind).await?;
        in_use.check(kind, counter.number)?;
        let width = table.layout().width(kind);
        let max = width.max_number();
        let mut next = counter.number;
        let mut free = Vec::with_capacity(count);
        let mut skipped = 0;
        while free.len() < count && next < max && skipped < MAX_SKIPPED {
            let end = next.saturating_add((count - free.len()) as u64).min(max);
            let candidates: Vec<Uid> = (next + 1..=end)
                .filter_map(|number| Uid::from_number(number, width).ok())
                .collect();
            next = end;
            let taken = match source {
                Known::Assumed => vec![false; candidates.len()],
                Known::Read => table.taken(kind, &candidates).await?,
            };
            for (uid, taken) in candidates.iter().zip(taken) {
                if taken {
                    skipped += 1;
                } else {
                    free.push(*uid);
                }
            }
        }
        if skipped > 0 {
            warn!(%kind, skipped, "skipped UIDs that are in use; check the table");
        }
        if next > counter.number {
            self.conditions.push(Condition {
                cell: counter_cell(kind),
                expected: counter.stored,
            });
            self.batch
                .row(COUNTER_ROW)
                .put(self.id, kind.qualifier(), &encode_counter(next));
        }
        if next >= max && free.len() < count {
            self.draw(table, released, kind, count, &mut free).await?;
        }
        let shortage = if next >= max {
            UidServiceError::SpaceExhausted { kind, width, max }
        } else {
            UidServiceError::CounterBehind { kind, number: next }
        };
        Ok((free, shortage))
    }

    /// Adds reclaimed UIDs to the free ones, up to `count`.
    async fn draw(
        &mut self,
        table: &UidTable,
        released: &FreeNumbers,
        kind: UidKind,
        count: usize,
        free: &mut Vec<Uid>,
    ) -> Result<(), UidServiceError> {
        while free.len() < count {
            let drawn = released.take(kind, count - free.len()).await?;
            if drawn.is_empty() {
                return Ok(());
            }
            let uids: Vec<Uid> = drawn.iter().map(FreeNumber::uid).collect();
            for (number, taken) in drawn.into_iter().zip(table.taken(kind, &uids).await?) {
                // One that has a name is in use.
                if !taken {
                    free.push(number.uid());
                    self.drawn.push(number);
                }
            }
        }
        Ok(())
    }

    /// Assigns the reserved UIDs to the names at `missing`; the remaining names fail. With `has_meta` each UID gets a
    /// document of metadata.
    fn assign(
        &mut self,
        kind: UidKind,
        names: &[KindName],
        missing: &[usize],
        reserved: Reserved,
        has_meta: bool,
    ) {
        let (free, shortage) = match reserved {
            Ok(reserved) => reserved,
            Err(error) => (Vec::new(), error),
        };
        let document = has_meta.then(|| new_document(kind));
        let document = document.as_deref();
        let mut free = free.into_iter();
        for index in missing {
            let Some(uid) = free.next() else {
                self.outcomes[*index] = Err(shortage.clone());
                self.contended[*index] = Err(shortage.clone());
                continue;
            };
            let name = &names[*index].1;
            self.conditions.push(Condition {
                cell: reverse_cell(kind, uid),
                expected: None,
            });
            self.conditions.push(Condition {
                cell: forward_cell(kind, name),
                expected: None,
            });
            self.batch
                .row(uid.as_bytes())
                .put(self.name, kind.qualifier(), name.as_bytes());
            if let Some(document) = document {
                self.batch.put(self.name, meta_qualifier(kind), document);
            }
            self.batch
                .row(name.as_bytes())
                .put(self.id, kind.qualifier(), uid.as_bytes());
            self.outcomes[*index] = Ok(AssignedUid { uid, created: true });
        }
    }
}

/// Free UIDs, and the error of the names that get none if these are too few.
type Reserved = Result<(Vec<Uid>, UidServiceError), UidServiceError>;

async fn reserve_random(
    table: &UidTable,
    free: &FreeNumbers,
    in_use: &InUse,
    kind: UidKind,
    count: usize,
) -> Reserved {
    let uids = random::reserve(table, free, in_use, kind, count).await?;
    let draws = random::DRAWS;
    Ok((uids, UidServiceError::NoFreeRandomUid { kind, draws }))
}
