//! Random metric UIDs: they spread new metrics over the key space, where sequential ones all append to its end.
//!
//! The counter is neither read nor written. A number is free if it has no reverse mapping, no series uses it, and it is
//! not withheld: neither deleted nor released a short time ago.
//!
//! Source: OpenTSDB 2.4, `RandomUniqueId.getRandomUID`, `UniqueId.MAX_ATTEMPTS_ASSIGN_ID`.

use std::collections::HashSet;

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{Uid, UidKind, UidWidth};

use crate::in_use::InUse;
use crate::reclaim::free::FreeNumbers;
use crate::table::UidTable;

/// Maximum count of UIDs that are drawn for a name, as in OpenTSDB.
pub(super) const DRAWS: usize = 9;

/// Draws `count` free UIDs; fewer if the number space is nearly full.
pub(super) async fn reserve(
    table: &UidTable,
    released: &FreeNumbers,
    in_use: &InUse,
    kind: UidKind,
    count: usize,
) -> Result<Vec<Uid>, StoreError> {
    let width = table.layout().width(kind);
    let mut seen = HashSet::new();
    let mut free = Vec::with_capacity(count);
    for _ in 0..DRAWS {
        if free.len() == count {
            break;
        }
        let mut candidates = draw(width, count - free.len(), |uid| {
            seen.contains(&uid) || in_use.has_random(kind, uid)
        });
        seen.extend(candidates.iter().copied());
        // In this order: a delete records a UID before it removes the reverse mapping.
        let taken = table.taken(kind, &candidates).await?;
        retain(&mut candidates, &taken);
        let withheld = released.withheld(kind, &candidates).await?;
        retain(&mut candidates, &withheld);
        free.append(&mut candidates);
    }
    Ok(free)
}

/// Removes the candidates that are not free.
fn retain(candidates: &mut Vec<Uid>, taken: &[bool]) {
    let mut taken = taken.iter();
    candidates.retain(|_| taken.next() == Some(&false));
}

/// Draws `count` distinct UIDs without those that `avoid` rejects; fewer if the number space is nearly full.
pub(super) fn draw(width: UidWidth, count: usize, avoid: impl Fn(Uid) -> bool) -> Vec<Uid> {
    let mut drawn = HashSet::with_capacity(count);
    let mut uids = Vec::with_capacity(count);
    for _ in 0..count.saturating_mul(DRAWS) {
        if uids.len() == count {
            break;
        }
        // Zero is never assigned; OpenTSDB replaces it by 1.
        let number = rand::random_range(0..=width.max_number()).max(1);
        if let Ok(uid) = Uid::from_number(number, width)
            && !avoid(uid)
            && drawn.insert(uid)
        {
            uids.push(uid);
        }
    }
    uids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_distinct_and_never_zero() {
        let width = UidWidth::new(1).unwrap();
        let uids = draw(width, 200, |_| false);
        let distinct: HashSet<_> = uids.iter().collect();
        assert_eq!(distinct.len(), uids.len());
        assert!(uids.len() > 150 && uids.iter().all(|uid| uid.number() > 0));
        let avoid: HashSet<Uid> = (1..=255)
            .map(|number| Uid::from_number(number, width).unwrap())
            .collect();
        assert_eq!(draw(width, 3, |uid| avoid.contains(&uid)), [], "all are in use");
    }
}
