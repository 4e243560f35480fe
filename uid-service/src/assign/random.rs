//! Random metric UIDs: they spread new metrics over the key space, where sequential ones all append to its end.
//!
//! The counter is neither read nor written. A number is free if it has no reverse mapping, and no series uses it.
//!
//! Source: OpenTSDB 2.4, `RandomUniqueId.getRandomUID`, `UniqueId.MAX_ATTEMPTS_ASSIGN_ID`.

use std::collections::HashSet;

use oxtsdb_schema::{Uid, UidWidth};

/// Maximum count of UIDs that are drawn for a name, as in OpenTSDB.
pub(super) const DRAWS: usize = 9;

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
