//! The memory that a query needs, known before it reads.
//!
//! ```text
//!   whole   reads everything at once
//!   fixed   cannot be cut: series, and points of sub-queries that need all of them together
//!   slices  the rest, in time slices that are as small as the memory
//! ```
//!
//! A query reserves between `fixed` plus small slices and `whole`: what is free, but no more than its share while other
//! queries need memory. If even the least is in use, it waits, in order of arrival and until its deadline, while it
//! holds nothing that another query could wait for.

use oxtsdb_resources::MemoryPool;

/// Memory of time slices below which a query would read the same blocks too often.
const SLICED_BYTES: u64 = 8 << 20;

/// The memory that a query needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// The part that cannot be cut into slices.
    pub(crate) fixed: u64,
    /// The memory to read everything at once, at least `fixed`; `None`: not known.
    pub(crate) whole: Option<u64>,
}

impl Demand {
    /// The demand of a query that reads nothing.
    pub(crate) const NOTHING: Self = Self {
        fixed: 0,
        whole: Some(0),
    };

    /// The demand of a query that reads one after the other.
    pub(crate) fn or(self, next: Self) -> Self {
        Self {
            fixed: self.fixed.max(next.fixed),
            whole: self.whole.zip(next.whole).map(|(whole, next)| whole.max(next)),
        }
    }

    /// The demand of a query that reads both and keeps the results.
    pub(crate) fn and(self, next: Self) -> Self {
        Self {
            fixed: self.fixed.saturating_add(next.fixed),
            whole: self
                .whole
                .zip(next.whole)
                .map(|(whole, next)| whole.saturating_add(next)),
        }
    }

    /// The least memory to reserve, and the memory to reserve if it is free, of a pool that `running` queries share. Both
    /// are at most `limit`.
    pub(crate) fn within(self, pool: &MemoryPool, running: usize, limit: u64) -> (u64, u64) {
        let share = pool.most_bytes() / running.max(1) as u64;
        let least = self.fixed.saturating_add(SLICED_BYTES.min(share));
        let (least, most) = match self.whole {
            // Half of the free memory is left to queries that come next.
            Some(whole) => (least.min(whole), whole.min(share.max(pool.free_bytes() / 2))),
            None => (least, share),
        };
        (least.min(limit), most.max(least).min(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn takes_half_of_the_free_memory_or_its_share() {
        let pool = MemoryPool::new("query", 400 * MIB);
        let sliced = Demand {
            fixed: MIB,
            whole: Some(1000 * MIB),
        };
        assert_eq!(sliced.within(&pool, 4, 300 * MIB), (9 * MIB, 200 * MIB));
        let _others = pool.try_reserve(380 * MIB).unwrap();
        assert_eq!(sliced.within(&pool, 4, 300 * MIB), (9 * MIB, 100 * MIB));
        let uncut = Demand {
            fixed: 1000 * MIB,
            ..sliced
        };
        assert_eq!(uncut.within(&pool, 4, 300 * MIB), (300 * MIB, 300 * MIB));
        let small = Demand {
            whole: Some(2 * MIB),
            ..sliced
        };
        assert_eq!(small.within(&pool, 4, 300 * MIB), (2 * MIB, 2 * MIB));
        let unknown = Demand {
            whole: None,
            ..sliced
        };
        assert_eq!(unknown.within(&pool, 4, 300 * MIB), (9 * MIB, 100 * MIB));
    }

    #[test]
    fn sub_queries_run_one_after_the_other() {
        let one = Demand {
            fixed: 3,
            whole: Some(10),
        };
        let other = Demand {
            fixed: 5,
            whole: Some(6),
        };
        assert_eq!(
            one.or(other),
            Demand {
                fixed: 5,
                whole: Some(10)
            }
        );
        assert_eq!(
            one.and(other),
            Demand {
                fixed: 8,
                whole: Some(16)
            }
        );
        assert_eq!(
            one.or(Demand {
                fixed: 0,
                whole: None
            })
            .whole,
            None
        );
        assert_eq!(Demand::NOTHING.or(one), one);
    }
}
