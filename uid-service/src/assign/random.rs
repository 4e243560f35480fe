//! Random metric UIDs: new metrics spread over the key space in place of meeting at its end.
//!
//! The counter is neither read nor written. Whether a number is free says its reverse mapping.
//!
//! Source: OpenTSDB 2.4, `RandomUniqueId.getRandomUID`, `UniqueId.MAX_ATTEMPTS_ASSIGN_ID`.

use std::collections::HashSet;

use oxtsdb_schema::{Uid, UidWidth};

/// How many UIDs are drawn for a name; OpenTSDB gives up after as many.
pub(super) const DRAWS: usize = 9;

/// So many UIDs, none of them twice nor one of `avoid`. Fewer if the space is too small for that.
pub(super) fn draw(width: UidWidth, count: usize, avoid: &HashSet<Uid>) -> Vec<Uid> {
    let mut drawn = HashSet::with_capacity(count);
    let mut uids = Vec::with_capacity(count);
    for _ in 0..count.saturating_mul(DRAWS) {
        if uids.len() == count {
            break;
        }
        // Zero is never assigned; OpenTSDB takes 1 for it.
        let number = rand::random_range(0..=width.max_number()).max(1);
        if let Ok(uid) = Uid::from_number(number, width)
            && !avoid.contains(&uid)
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
        let uids = draw(width, 200, &HashSet::new());
        let distinct: HashSet<_> = uids.iter().collect();
        assert_eq!(distinct.len(), uids.len());
        assert!(uids.len() > 150 && uids.iter().all(|uid| uid.number() > 0));
        let avoid: HashSet<Uid> = (1..=255)
            .map(|number| Uid::from_number(number, width).unwrap())
            .collect();
        assert_eq!(draw(width, 3, &avoid), [], "all are in use");
    }
}
