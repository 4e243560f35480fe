//! Assignment on a store without commits over several rows: cell by cell, in an order that leaves
//! nothing wrong wherever it ends.
//!
//! ```text
//!   1  counter  + n               ends here: n numbers are lost
//!   2  reverse  if absent         ends here: a UID with a name that does not know it, never used
//!   3  forward  if absent         done; or another one was faster: its UID counts, ours goes
//! ```
//!
//! One step on the counter reserves the numbers of all names of a batch, and the cells of several
//! names are written side by side. The step is an increment, as OpenTSDB's is, so that nobody waits
//! for anybody; only close to the end of the number space it is a compare-and-put, so that the
//! counter cannot pass the largest number. (An increment can carry it past only if others reserve
//! [`NEAR_THE_END`] numbers between our read and our increment: 16 full batches. OpenTSDB's own
//! increments carry it past always.) An increment whose answer was lost is made again: that costs
//! numbers, and nothing else. The puts are `claim`'s.
//!
//! Source: OpenTSDB 2.4, `UniqueId.UniqueIdAllocator`; batches and the removal of what a lost race
//! leaves are ours.

use std::collections::HashSet;

use futures::StreamExt as _;
use oxtsdb_row_store::{Retry, StoreError};
use oxtsdb_schema::uid_table::encode_counter;
use oxtsdb_schema::{Uid, UidKind};
use tracing::warn;

use super::claim::{Claim, Claims};
use super::outcome::{ATTEMPTS, Assigned, Outcome, already_there, back_off};
use super::random;
use crate::error::UidServiceError;
use crate::table::{KindName, UidTable, counter_cell};

/// Numbers before the largest one, from where on the counter moves by compare-and-put.
const NEAR_THE_END: u64 = 1 << 16;

/// Fresh numbers for a name whose first one had a reverse mapping already. (OpenTSDB: 2.)
const ROUNDS: usize = 16;

/// Names of a kind whose cells are written at the same time. A store with fewer connections lets
/// them wait in its queue.
const CONCURRENCY: usize = 32;

/// How often the counter is incremented while its answer is lost. (OpenTSDB: 3.)
const INCREMENTS: u32 = 3;

pub(super) async fn assign(table: &UidTable, names: &[KindName]) -> Vec<Outcome> {
    let found = table.uids(names).await;
    let (known, mut outcomes): (Vec<bool>, Vec<Outcome>) = found
        .into_iter()
        .zip(names)
        .map(|(found, key)| already_there(found, key))
        .unzip();
    // Each kind has numbers of its own, so they do not wait for each other.
    let kinds = UidKind::ALL.map(|kind| {
        let missing = (0..names.len())
            .filter(|place| names[*place].0 == kind && !known[*place])
            .collect();
        assign_kind(table, kind, names, missing)
    });
    for (place, outcome) in futures::future::join_all(kinds).await.concat() {
        outcomes[place] = outcome;
    }
    outcomes
}

/// Assigns the names at `missing`, all of one kind; the outcome of each with its place.
async fn assign_kind(
    table: &UidTable,
    kind: UidKind,
    names: &[KindName],
    mut missing: Vec<usize>,
) -> Vec<(usize, Outcome)> {
    let mut outcomes = Vec::with_capacity(missing.len());
    let rounds = if table.layout().kinds.get(kind).random {
        random::DRAWS
    } else {
        ROUNDS
    };
    let mut in_use = None;
    for _ in 0..rounds {
        if missing.is_empty() {
            return outcomes;
        }
        let (uids, short) = match reserve(table, kind, missing.len()).await {
            Ok(reserved) => reserved,
            Err(error) => {
                warn!(%kind, %error, "no UIDs can be reserved");
                (Vec::new(), error)
            }
        };
        let without = missing.split_off(uids.len().min(missing.len()));
        outcomes.extend(without.into_iter().map(|place| (place, Err(short.clone()))));
        let claims = Claims::new(table.clone());
        let claimed: Vec<_> = missing
            .drain(..)
            .zip(uids)
            .map(|(place, uid)| {
                let (claims, key) = (claims.clone(), names[place].clone());
                async move { (place, uid, claims.claim(&key, uid).await) }
            })
            .collect();
        let claimed: Vec<_> = futures::stream::iter(claimed)
            .buffered(CONCURRENCY)
            .collect()
            .await;
        for (place, uid, claim) in claimed {
            let outcome = match claim {
                Ok(Claim::Ours) => Ok(Assigned { uid, created: true }),
                Ok(Claim::Theirs(uid)) => Ok(Assigned { uid, created: false }),
                Ok(Claim::InUse) => {
                    warn!(%kind, %uid, "a reserved UID is in use; check the table");
                    missing.push(place);
                    in_use = Some(uid);
                    continue;
                }
                Err(error) => Err(error),
            };
            outcomes.push((place, outcome));
        }
    }
    if let Some(last) = in_use {
        let error = no_free_uid(table, kind, last);
        outcomes.extend(missing.into_iter().map(|place| (place, Err(error.clone()))));
    }
    outcomes
}

fn no_free_uid(table: &UidTable, kind: UidKind, last: Uid) -> UidServiceError {
    if table.layout().kinds.get(kind).random {
        UidServiceError::NoFreeRandomUid {
            kind,
            draws: random::DRAWS,
        }
    } else {
        UidServiceError::CounterBehind {
            kind,
            number: last.number(),
        }
    }
}

/// UIDs that nobody else is given, as many as asked for, or fewer and why.
async fn reserve(
    table: &UidTable,
    kind: UidKind,
    count: usize,
) -> Result<(Vec<Uid>, UidServiceError), UidServiceError> {
    let width = table.layout().width(kind);
    if table.layout().kinds.get(kind).random {
        let uids = random::draw(width, count, &HashSet::new());
        return Ok((
            uids,
            UidServiceError::NoFreeRandomUid {
                kind,
                draws: random::DRAWS,
            },
        ));
    }
    let max = width.max_number();
    let exhausted = UidServiceError::SpaceExhausted { kind, width, max };
    for attempt in 0..ATTEMPTS {
        let counter = table.counter(kind).await?;
        let left = max.saturating_sub(counter.number);
        let wanted = left.min(count as u64);
        if wanted == 0 {
            return Ok((Vec::new(), exhausted));
        }
        let end = if left - wanted >= NEAR_THE_END {
            increment(table, kind, wanted).await?
        } else {
            let end = counter.number + wanted;
            if !table
                .check_and_put(counter_cell(kind), counter.stored, &encode_counter(end))
                .await?
            {
                back_off(attempt).await;
                continue;
            }
            end
        };
        // What lies beyond the largest number is no UID.
        let numbers = end - wanted + 1..=end;
        let uids = numbers
            .filter_map(|number| Uid::from_number(number, width).ok())
            .collect();
        return Ok((uids, exhausted));
    }
    Err(UidServiceError::Store(StoreError::Unavailable {
        detail: format!("the counter of {kind} kept changing"),
    }))
}

async fn increment(table: &UidTable, kind: UidKind, by: u64) -> Result<u64, UidServiceError> {
    let amount = i64::try_from(by).unwrap_or(i64::MAX);
    let cell = counter_cell(kind);
    let mut attempt = 0;
    let number = loop {
        attempt += 1;
        match table.store().increment(table.name(), &cell, amount).await {
            Ok(number) => break number,
            Err(error) if error.retry() == Retry::Never || attempt == INCREMENTS => {
                return Err(error.into());
            }
            Err(error) => {
                warn!(%kind, %error, "numbers may be lost: the counter is incremented again");
                back_off(attempt).await;
            }
        }
    };
    match u64::try_from(number) {
        Ok(end) if end >= by => Ok(end),
        _ => Err(UidServiceError::CounterNegative { kind, number }),
    }
}
