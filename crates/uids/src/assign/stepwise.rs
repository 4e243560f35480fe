//! Assignment on stores without multi-row commits: cell by cell, in an order that is safe to interrupt.
//!
//! ```text
//!   1  counter  + n               interrupted after it: n numbers are lost
//!   2  reverse  if absent         interrupted after it: an orphaned reverse mapping, never used
//!   3  forward  if absent         complete; or the race is lost: the winner's UID is valid, ours is deleted
//! ```
//!
//! One change of the counter reserves the numbers of a whole batch, and the cells of several names are
//! written concurrently. The change is an increment, as in OpenTSDB, which does not contend. Near the end of
//! the number space it is a compare-and-put, so that the counter does not pass the largest number. (An
//! increment could pass it only if other processes reserve [`NEAR_THE_END`] numbers, 16 full batches, between
//! our read and our increment. OpenTSDB's increments do pass it.) An increment is repeated if its response is
//! lost, which only skips numbers. `claim` puts the mappings.
//!
//! Source: OpenTSDB 2.4, `UniqueId.UniqueIdAllocator`; it has neither batches nor the deletion of orphans.

use std::collections::HashMap;

use futures::StreamExt as _;
use oxtsdb_row_store::{Retry, StoreError, WriteBatch};
use oxtsdb_schema::uid_table::{encode_counter, meta_qualifier};
use oxtsdb_schema::{AssignedUid, Uid, UidKind};
use tracing::warn;

use super::claim::{Claim, Claims};
use super::outcome::{ATTEMPTS, Outcome, already_there, back_off};
use super::random;
use crate::error::UidServiceError;
use crate::in_use::InUse;
use crate::meta::new_document;
use crate::reclaim::free::{FreeNumber, FreeNumbers};
use crate::table::{KindName, NAME, UidTable, counter_cell};

/// Distance from the largest number below which the counter is changed by compare-and-put.
const NEAR_THE_END: u64 = 1 << 16;

/// Numbers that are tried for a name while each one has a reverse mapping already. (OpenTSDB: 2.)
const ROUNDS: usize = 16;

/// The most names of a kind that are written concurrently. A store with fewer connections queues them.
const CONCURRENCY: usize = 128;

/// Attempts of an increment while its responses are lost. (OpenTSDB: 3.)
const INCREMENTS: u32 = 3;

pub(super) async fn assign(
    table: &UidTable,
    free: &FreeNumbers,
    in_use: &InUse,
    names: &[KindName],
) -> Vec<Outcome> {
    let results = table.uids(names).await;
    let (known, mut outcomes): (Vec<bool>, Vec<Outcome>) = results
        .into_iter()
        .zip(names)
        .map(|(result, key)| already_there(result, key))
        .unzip();
    // Kinds have separate counters and are assigned concurrently.
    let kinds = UidKind::ALL.map(|kind| {
        let missing = (0..names.len())
            .filter(|index| names[*index].0 == kind && !known[*index])
            .collect();
        assign_kind(table, (free, in_use), kind, names, missing)
    });
    for (index, outcome) in futures::future::join_all(kinds).await.concat() {
        outcomes[index] = outcome;
    }
    if table.layout().realtime_meta {
        put_documents(table, names, &outcomes).await;
    }
    outcomes
}

/// Puts the metadata of the UIDs that were assigned. A failure is logged only: the mappings are complete, and
/// `tsdb uid metasync` creates missing documents.
async fn put_documents(table: &UidTable, names: &[KindName], outcomes: &[Outcome]) {
    let mut batch = WriteBatch::new(table.name().clone());
    let family = batch.family(NAME);
    for ((kind, _), outcome) in names.iter().zip(outcomes) {
        if let Ok(AssignedUid { uid, created: true }) = outcome {
            batch
                .row(uid.as_bytes())
                .put(family, meta_qualifier(*kind), &new_document(*kind));
        }
    }
    if batch.is_empty() {
        return;
    }
    if let Err(error) = table.store().write(batch).await {
        warn!(%error, "failed to write the metadata of new UIDs");
    }
}

/// Assigns UIDs to the names at `missing`, all of one kind. Returns each outcome with its index.
async fn assign_kind(
    table: &UidTable,
    (free, in_use): (&FreeNumbers, &InUse),
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
    let mut taken = None;
    for _ in 0..rounds {
        if missing.is_empty() {
            return outcomes;
        }
        let (mut uids, shortage) = match reserve(table, free, in_use, kind, missing.len()).await {
            Ok(reserved) => reserved,
            Err(error) => {
                warn!(%kind, %error, "failed to reserve UIDs");
                (Vec::new(), error)
            }
        };
        let mut drawn = HashMap::new();
        if uids.len() < missing.len() && matches!(shortage, UidServiceError::SpaceExhausted { .. }) {
            match free.take(kind, missing.len() - uids.len()).await {
                Ok(taken) => {
                    uids.extend(taken.iter().map(FreeNumber::uid));
                    drawn.extend(taken.into_iter().map(|number| (number.uid(), number)));
                }
                Err(error) => warn!(%kind, %error, "failed to read reclaimed UIDs"),
            }
        }
        let without = missing.split_off(uids.len().min(missing.len()));
        outcomes.extend(without.into_iter().map(|index| (index, Err(shortage.clone()))));
        let claims = Claims::new(table.clone());
        let claimed: Vec<_> = missing
            .drain(..)
            .zip(uids)
            .map(|(index, uid)| {
                let (claims, key) = (claims.clone(), names[index].clone());
                async move { (index, uid, claims.claim(&key, uid).await) }
            })
            .collect();
        let claimed: Vec<_> = futures::stream::iter(claimed)
            .buffer_unordered(CONCURRENCY)
            .collect()
            .await;
        let mut unused = Vec::new();
        for (index, uid, claim) in claimed {
            let number = drawn.remove(&uid);
            let outcome = match claim {
                Ok(Claim::Ours) => Ok(AssignedUid { uid, created: true }),
                Ok(Claim::Theirs { uid, is_unused }) => {
                    unused.extend(number.filter(|_| is_unused));
                    Ok(AssignedUid { uid, created: false })
                }
                Ok(Claim::Untried(error)) => {
                    unused.extend(number);
                    Err(error.into())
                }
                Ok(Claim::InUse) => {
                    warn!(%kind, %uid, "a reserved UID is in use; check the table");
                    missing.push(index);
                    taken = Some(uid);
                    continue;
                }
                Err(error) => Err(error),
            };
            outcomes.push((index, outcome));
        }
        free.give_back(unused).await;
    }
    if let Some(last) = taken {
        let error = no_free_uid(table, kind, last);
        outcomes.extend(missing.into_iter().map(|index| (index, Err(error.clone()))));
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

/// Reserves `count` UIDs. Returns them, and the error of the names that get none if these are too few.
async fn reserve(
    table: &UidTable,
    free: &FreeNumbers,
    in_use: &InUse,
    kind: UidKind,
    count: usize,
) -> Result<(Vec<Uid>, UidServiceError), UidServiceError> {
    let width = table.layout().width(kind);
    if table.layout().kinds.get(kind).random {
        let uids = random::reserve(table, free, in_use, kind, count).await?;
        let draws = random::DRAWS;
        return Ok((uids, UidServiceError::NoFreeRandomUid { kind, draws }));
    }
    let max = width.max_number();
    let exhausted = UidServiceError::SpaceExhausted { kind, width, max };
    for attempt in 0..ATTEMPTS {
        let counter = table.counter(kind).await?;
        in_use.check(kind, counter.number)?;
        let left = max.saturating_sub(counter.number);
        let reserved = left.min(count as u64);
        if reserved == 0 {
            return Ok((Vec::new(), exhausted));
        }
        let end = if left - reserved >= NEAR_THE_END {
            increment(table, kind, reserved).await?
        } else {
            let end = counter.number + reserved;
            if !table
                .check_and_put(counter_cell(kind), counter.stored, &encode_counter(end))
                .await?
            {
                back_off(attempt).await;
                continue;
            }
            end
        };
        // Numbers beyond the largest one are no UIDs.
        let numbers = end - reserved + 1..=end;
        let uids = numbers
            .filter_map(|number| Uid::from_number(number, width).ok())
            .collect();
        return Ok((uids, exhausted));
    }
    Err(UidServiceError::Store(StoreError::Unavailable {
        detail: format!("the counter of {kind} is contended"),
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
                warn!(%kind, %error, "retrying the increment of the counter; numbers may be skipped");
                back_off(attempt).await;
            }
        }
    };
    match u64::try_from(number) {
        Ok(end) if end >= by => Ok(end),
        _ => Err(UidServiceError::CounterNegative { kind, number }),
    }
}
