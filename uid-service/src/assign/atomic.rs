//! Assignment in one commit of all cells: it takes place whole or not at all.
//!
//! Everything that was read is a condition of the commit, so it does not matter who else assigns at
//! the same time, stepwise or so: if one of these cells has changed, nothing is done and the batch
//! starts again.

use std::collections::HashSet;

use oxtsdb_row_store::{AtomicCommit, Condition, FamilyId, WriteBatch};
use oxtsdb_schema::uid_table::{COUNTER_ROW, encode_counter};
use oxtsdb_schema::{Uid, UidKind};
use tracing::warn;

use super::outcome::{ATTEMPTS, Assigned, MAX_PASSED_OVER, Outcome, already_there, back_off};
use super::random;
use crate::error::UidServiceError;
use crate::table::{self, KindName, UidTable, counter_cell, forward_cell, reverse_cell};

pub(super) async fn assign(table: &UidTable, commit: &dyn AtomicCommit, names: &[KindName]) -> Vec<Outcome> {
    let mut contended = Vec::new();
    for attempt in 0..ATTEMPTS {
        let mut plan = Plan::read(table, names).await;
        if plan.batch.is_empty() {
            return plan.outcomes;
        }
        match commit.commit_if(&plan.conditions, plan.batch).await {
            Ok(true) => return plan.outcomes,
            Ok(false) => {
                contended = plan.contended;
                back_off(attempt).await;
            }
            Err(error) => {
                warn!(%error, "new UIDs cannot be written");
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
    matches!(outcome, Ok(Assigned { created: true, .. }))
}

/// What a batch would write, on which conditions, and what would then have become of each name.
struct Plan {
    batch: WriteBatch,
    id: FamilyId,
    name: FamilyId,
    conditions: Vec<Condition>,
    outcomes: Vec<Outcome>,
    /// The outcomes if the commit does not take place.
    contended: Vec<Outcome>,
}

impl Plan {
    async fn read(table: &UidTable, names: &[KindName]) -> Self {
        let found = table.uids(names).await;
        let (known, outcomes): (Vec<bool>, Vec<Outcome>) = found
            .into_iter()
            .zip(names)
            .map(|(found, key)| already_there(found, key))
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
        };
        for kind in UidKind::ALL {
            let missing: Vec<usize> = (0..names.len())
                .filter(|place| names[*place].0 == kind && !known[*place])
                .collect();
            if missing.is_empty() {
                continue;
            }
            let reserved = if table.layout().kinds.get(kind).random {
                draw_free(table, kind, missing.len()).await
            } else {
                plan.count_up(table, kind, missing.len()).await
            };
            plan.give(kind, names, &missing, reserved);
        }
        plan
    }

    /// Free UIDs that follow the counter, and the counter's move. Fewer than asked for come with
    /// the reason why.
    async fn count_up(&mut self, table: &UidTable, kind: UidKind, count: usize) -> Reserved {
        let counter = table.counter(kind).await?;
        let width = table.layout().width(kind);
        let max = width.max_number();
        let mut next = counter.number;
        let mut free = Vec::with_capacity(count);
        let mut passed_over = 0;
        while free.len() < count && next < max && passed_over < MAX_PASSED_OVER {
            let end = next.saturating_add((count - free.len()) as u64).min(max);
            let candidates: Vec<Uid> = (next + 1..=end)
                .filter_map(|number| Uid::from_number(number, width).ok())
                .collect();
            next = end;
            for (uid, taken) in candidates.iter().zip(table.taken(kind, &candidates).await?) {
                if taken {
                    passed_over += 1;
                } else {
                    free.push(*uid);
                }
            }
        }
        if passed_over > 0 {
            warn!(%kind, passed_over, "the counter gave UIDs that are in use; check the table");
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
        let short = if next >= max {
            UidServiceError::SpaceExhausted { kind, width, max }
        } else {
            UidServiceError::CounterBehind { kind, number: next }
        };
        Ok((free, short))
    }

    /// Gives the names at `missing` their UIDs, and the reason to those that get none.
    fn give(&mut self, kind: UidKind, names: &[KindName], missing: &[usize], reserved: Reserved) {
        let (free, short) = match reserved {
            Ok(reserved) => reserved,
            Err(error) => (Vec::new(), error),
        };
        let mut free = free.into_iter();
        for place in missing {
            let Some(uid) = free.next() else {
                self.outcomes[*place] = Err(short.clone());
                self.contended[*place] = Err(short.clone());
                continue;
            };
            let name = &names[*place].1;
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
            self.batch
                .row(name.as_bytes())
                .put(self.id, kind.qualifier(), uid.as_bytes());
            self.outcomes[*place] = Ok(Assigned { uid, created: true });
        }
    }
}

/// Free UIDs, as many as were asked for, or fewer and why; or why there are none.
type Reserved = Result<(Vec<Uid>, UidServiceError), UidServiceError>;

async fn draw_free(table: &UidTable, kind: UidKind, count: usize) -> Reserved {
    let width = table.layout().width(kind);
    let mut seen = HashSet::new();
    let mut free = Vec::with_capacity(count);
    for _ in 0..random::DRAWS {
        if free.len() == count {
            break;
        }
        let candidates = random::draw(width, count - free.len(), &seen);
        for (uid, taken) in candidates.iter().zip(table.taken(kind, &candidates).await?) {
            seen.insert(*uid);
            if !taken {
                free.push(*uid);
            }
        }
    }
    Ok((
        free,
        UidServiceError::NoFreeRandomUid {
            kind,
            draws: random::DRAWS,
        },
    ))
}
