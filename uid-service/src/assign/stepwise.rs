//! Assignment on a store without commits over several rows: cell by cell, in an order that leaves
//! nothing wrong wherever it ends.
//!
//! ```text
//!   1  counter  + n               ends here: n numbers are lost
//!   2  reverse  if absent         ends here: a UID with a name that does not know it, never used
//!   3  forward  if absent         done; or another one was faster: its UID counts, ours goes
//! ```
//!
//! One step on the counter reserves the numbers of all names of a batch. It is an increment, as
//! OpenTSDB's is, so that nobody waits for anybody; only close to the end of the number space it is
//! a compare-and-put, so that the counter cannot pass the largest number. (An increment can carry
//! it past only if others reserve [`NEAR_THE_END`] numbers between our read and our increment: 16
//! full batches. OpenTSDB's own increments carry it past always.)
//!
//! When a race for a name is lost, our reverse cell is removed. Nobody else can have written it: the
//! number was reserved for us, or, if drawn at random, our compare-and-put claimed it. If it is
//! unknown whether the forward cell was written, the reverse cell stays.
//!
//! Source: OpenTSDB 2.4, `UniqueId.UniqueIdAllocator`; batches and the removal are ours.

use std::collections::HashSet;

use futures::StreamExt as _;
use oxtsdb_schema::uid_table::encode_counter;
use oxtsdb_schema::{Uid, UidKind};
use tracing::warn;

use super::{ATTEMPTS, Assigned, Outcome, already_there, back_off, random};
use crate::error::UidServiceError;
use crate::table::{KindName, UidTable, counter_cell, forward_cell, is_uncertain, reverse_cell};

/// Numbers before the largest one, from where on the counter moves by compare-and-put.
const NEAR_THE_END: u64 = 1 << 16;

/// Fresh numbers for a name whose first one had a reverse mapping already. (OpenTSDB: 2.)
const ROUNDS: usize = 16;

/// Names whose cells are written at the same time.
const CONCURRENCY: usize = 32;

pub(super) async fn assign(table: &UidTable, names: &[KindName]) -> Vec<Outcome> {
    let found = table.uids(names).await;
    let (known, mut outcomes): (Vec<bool>, Vec<Outcome>) = found
        .into_iter()
        .zip(names)
        .map(|(found, key)| already_there(found, key))
        .unzip();
    for kind in UidKind::ALL {
        let mut missing: Vec<usize> = (0..names.len())
            .filter(|place| names[*place].0 == kind && !known[*place])
            .collect();
        let rounds = if table.layout().kinds.get(kind).random {
            random::DRAWS
        } else {
            ROUNDS
        };
        for _ in 0..rounds {
            if missing.is_empty() {
                break;
            }
            missing = assign_kind(table, kind, names, missing, &mut outcomes).await;
        }
    }
    outcomes
}

/// Tries one number for each name at `missing`; the names whose number was in use are left.
async fn assign_kind(
    table: &UidTable,
    kind: UidKind,
    names: &[KindName],
    missing: Vec<usize>,
    outcomes: &mut [Outcome],
) -> Vec<usize> {
    let (uids, short) = match reserve(table, kind, missing.len()).await {
        Ok(reserved) => reserved,
        Err(error) => {
            warn!(%kind, %error, "no UIDs can be reserved");
            (Vec::new(), error)
        }
    };
    for place in missing.iter().skip(uids.len()) {
        outcomes[*place] = Err(short.clone());
    }
    let claims: Vec<_> = missing
        .into_iter()
        .zip(uids)
        .map(|(place, uid)| {
            let (table, key) = (table.clone(), names[place].clone());
            async move { (place, uid, claim(&table, key, uid).await) }
        })
        .collect();
    let mut claims = futures::stream::iter(claims).buffered(CONCURRENCY);
    let mut left = Vec::new();
    while let Some((place, uid, claim)) = claims.next().await {
        outcomes[place] = match claim {
            Ok(Claim::Ours) => Ok(Assigned { uid, created: true }),
            Ok(Claim::Theirs(uid)) => Ok(Assigned { uid, created: false }),
            Ok(Claim::InUse) => {
                warn!(%kind, %uid, "a reserved UID is in use; check the table");
                left.push(place);
                Err(no_free_uid(table, kind, uid))
            }
            Err(error) => Err(error),
        };
    }
    left
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
    Err(UidServiceError::Store(
        oxtsdb_row_store::StoreError::Unavailable {
            detail: format!("the counter of {kind} kept changing"),
        },
    ))
}

async fn increment(table: &UidTable, kind: UidKind, by: u64) -> Result<u64, UidServiceError> {
    let amount = i64::try_from(by).unwrap_or(i64::MAX);
    let number = table
        .store()
        .increment(table.name(), &counter_cell(kind), amount)
        .await?;
    match u64::try_from(number) {
        Ok(end) if end >= by => Ok(end),
        _ => Err(UidServiceError::CounterNegative { kind, number }),
    }
}

enum Claim {
    Ours,
    /// Another one assigned this UID to the name meanwhile.
    Theirs(Uid),
    /// The UID has a name.
    InUse,
}

/// Steps 2 and 3 for one name and its reserved UID.
async fn claim(table: &UidTable, (kind, name): KindName, uid: Uid) -> Result<Claim, UidServiceError> {
    if !table
        .check_and_put(reverse_cell(kind, uid), None, name.as_bytes())
        .await?
    {
        return Ok(Claim::InUse);
    }
    let key = (kind, name);
    for attempt in 0..ATTEMPTS {
        let put = table
            .check_and_put(forward_cell(kind, &key.1), None, uid.as_bytes())
            .await;
        match &put {
            Ok(true) => return Ok(Claim::Ours),
            Err(error) if !is_uncertain(error) => return Err(error.clone().into()),
            Ok(false) | Err(_) => {}
        }
        let found = table
            .uids(std::slice::from_ref(&key))
            .await
            .pop()
            .unwrap_or(Ok(None));
        match (found, put) {
            (Ok(Some(found)), _) if found == uid => return Ok(Claim::Ours),
            (Ok(Some(theirs)), _) => {
                remove_orphan(table, kind, uid).await;
                return Ok(Claim::Theirs(theirs));
            }
            // It may still arrive: the reverse cell must be there then.
            (_, Err(error)) => return Err(error.into()),
            (Err(error), Ok(_)) => {
                remove_orphan(table, kind, uid).await;
                return Err(error);
            }
            // There was a forward cell and now there is none: an operator deleted the name.
            (Ok(None), Ok(_)) => back_off(attempt).await,
        }
    }
    remove_orphan(table, kind, uid).await;
    Err(UidServiceError::Contended { kind, name: key.1 })
}

async fn remove_orphan(table: &UidTable, kind: UidKind, uid: Uid) {
    if let Err(error) = table.remove_reverse(kind, uid).await {
        warn!(%kind, %uid, %error, "a reverse mapping that is not used stays behind");
    }
}
