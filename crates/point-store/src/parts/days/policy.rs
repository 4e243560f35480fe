//! The choice of merges: pure functions of the sizes of a day's parts, oldest first.
//!
//! A merge takes neighbours only, because the order of parts decides which point of an instant is the newest.
//!
//! - *By size*: a run of parts that together are [`MergePolicy::growth`] times as large as the largest of them. Each
//!   point is then rewritten about log(day / flush) / log(growth) times.
//! - *Over budget*: sizes that fall too evenly for the first rule would pile up. Above [`MergePolicy::budget`] parts,
//!   the run that costs the fewest bytes for each part it removes is merged.
//! - *Final*: a day that is over and settled becomes one part.

use std::ops::Range;

/// Limits of merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergePolicy {
    /// The ratio of the size of a run to its largest part's from which the run is merged, at least 2.
    pub growth: u64,
    /// Smaller parts count as this many bytes, so that many tiny ones are merged whatever their ratios.
    pub floor_bytes: u64,
    /// Parts of a merge, at least 2.
    pub max_inputs: usize,
    /// Parts of a day that are left alone.
    pub budget: usize,
    /// How long a day that is over must be unchanged before it becomes one part.
    pub settled_ms: u64,
}

impl Default for MergePolicy {
    fn default() -> Self {
        Self {
            growth: 4,
            floor_bytes: 1 << 20,
            max_inputs: 32,
            budget: 16,
            settled_ms: 2 * 60 * 60 * 1000,
        }
    }
}

/// A part as far as the choice depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Bytes of the file.
    pub bytes: u64,
    /// Whether another merge reads it.
    pub busy: bool,
}

/// A run of parts that could be merged.
struct Run {
    range: Range<usize>,
    /// Bytes of all parts, and of the largest, at least [`MergePolicy::floor_bytes`] each.
    counted: u128,
    largest: u128,
    bytes: u64,
}

impl MergePolicy {
    /// The parts to merge next; `None` if the day is in order or the choice is larger than `limit_bytes`.
    pub fn choose(&self, parts: &[Candidate], limit_bytes: u64) -> Option<Range<usize>> {
        let by_size = self
            .runs(parts, limit_bytes)
            .filter(|run| run.counted >= run.largest * u128::from(self.growth))
            // The highest ratio; of equal ones the cheapest.
            .max_by(|a, b| {
                let ratios = (a.counted * b.largest).cmp(&(b.counted * a.largest));
                ratios.then(b.bytes.cmp(&a.bytes))
            });
        let chosen = by_size.or_else(|| {
            let removed = |run: &Run| run.range.len() as u128 - 1;
            (parts.len() > self.budget)
                .then(|| self.runs(parts, limit_bytes))?
                .min_by_key(|run| (run.counted * SCALE / removed(run), run.bytes))
        });
        chosen.map(|run| run.range)
    }

    /// The parts to merge into one; `None` if there is one already, unless points of it `were_deleted`.
    pub fn choose_final(
        &self,
        parts: &[Candidate],
        were_deleted: bool,
        limit_bytes: u64,
    ) -> Option<Range<usize>> {
        let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        let pointless = parts.is_empty() || (parts.len() == 1 && !were_deleted);
        if pointless || bytes > limit_bytes || parts.iter().any(|part| part.busy) {
            return None;
        }
        Some(0..parts.len())
    }

    /// Bytes that merges will read until the day is in order.
    pub fn debt_bytes(&self, parts: &[Candidate]) -> u64 {
        let mut left: Vec<Candidate> = parts.to_vec();
        left.iter_mut().for_each(|part| part.busy = false);
        let mut debt = 0;
        while let Some(range) = self.choose(&left, u64::MAX) {
            let bytes: u64 = left[range.clone()].iter().map(|part| part.bytes).sum();
            debt += bytes;
            left.splice(range, [Candidate { bytes, busy: false }]);
        }
        debt
    }

    /// All runs of two or more neighbours that are free and within the limits.
    fn runs<'a>(&'a self, parts: &'a [Candidate], limit_bytes: u64) -> impl Iterator<Item = Run> + 'a {
        (0..parts.len()).flat_map(move |first| {
            let mut run = Run {
                range: first..first,
                counted: 0,
                largest: 0,
                bytes: 0,
            };
            parts[first..]
                .iter()
                .take(self.max_inputs)
                .take_while(|part| !part.busy)
                .map_while(move |part| {
                    let counted = u128::from(part.bytes.max(self.floor_bytes));
                    run = Run {
                        range: first..run.range.end + 1,
                        counted: run.counted + counted,
                        largest: run.largest.max(counted),
                        bytes: run.bytes.saturating_add(part.bytes),
                    };
                    (run.bytes <= limit_bytes).then(|| Run {
                        range: run.range.clone(),
                        ..run
                    })
                })
                .skip(1)
        })
    }
}

/// Keeps fractions of a division.
const SCALE: u128 = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn free(sizes: &[u64]) -> Vec<Candidate> {
        let candidate = |bytes: &u64| Candidate {
            bytes: *bytes,
            busy: false,
        };
        sizes.iter().map(candidate).collect()
    }

    fn choose(sizes: &[u64]) -> Option<Range<usize>> {
        MergePolicy::default().choose(&free(sizes), u64::MAX)
    }

    /// Adds parts one after the other, merges as chosen; returns the sizes that are left and the bytes written.
    fn run(policy: &MergePolicy, added: &[u64]) -> (Vec<u64>, u64) {
        let mut sizes: Vec<u64> = Vec::new();
        let mut written = 0;
        for bytes in added {
            sizes.push(*bytes);
            written += bytes;
            while let Some(range) = policy.choose(&free(&sizes), u64::MAX) {
                let merged = sizes[range.clone()].iter().sum();
                written += merged;
                sizes.splice(range, [merged]);
            }
        }
        (sizes, written)
    }

    #[test]
    fn merges_equal_neighbours_once_there_are_enough() {
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[9 * MIB; 3]), None);
        assert_eq!(choose(&[9 * MIB; 4]), Some(0..4));
        assert_eq!(
            choose(&[90 * MIB, 9 * MIB, 9 * MIB, 9 * MIB, 9 * MIB]),
            Some(1..5)
        );
    }

    #[test]
    fn counts_tiny_parts_as_equal() {
        assert_eq!(choose(&[900, 30, 2, 1]), Some(0..4));
    }

    #[test]
    fn merges_the_cheapest_run_over_budget() {
        let mut sizes: Vec<u64> = (0..17).map(|power| MIB << (17 - power)).collect();
        assert_eq!(choose(&sizes), Some(15..17));
        sizes.pop();
        assert_eq!(choose(&sizes), None);
    }

    #[test]
    fn leaves_busy_parts_and_large_runs_alone() {
        let policy = MergePolicy::default();
        let mut parts = free(&[9 * MIB; 5]);
        assert_eq!(policy.choose(&parts, 35 * MIB), None);
        parts[1].busy = true;
        assert_eq!(policy.choose(&parts, u64::MAX), None);
        parts.push(parts[0]);
        assert_eq!(policy.choose(&parts, u64::MAX), Some(2..6));
    }

    #[test]
    fn makes_one_part_of_a_day_that_is_over() {
        let policy = MergePolicy::default();
        let parts = free(&[9, 1]);
        assert_eq!(policy.choose_final(&parts, false, 10), Some(0..2));
        assert_eq!(policy.choose_final(&parts, false, 9), None);
        assert_eq!(policy.choose_final(&parts[..1], false, 10), None);
        assert_eq!(policy.choose_final(&parts[..1], true, 10), Some(0..1));
        assert_eq!(policy.choose_final(&[], true, 10), None);
    }

    #[test]
    fn rewrites_equal_flushes_about_log_times() {
        let (sizes, written) = run(&MergePolicy::default(), &[32 * MIB; 300]);
        assert!(sizes.len() <= 13, "{sizes:?}");
        assert!(
            written <= 5 * 300 * 32 * MIB,
            "{} times",
            written / (300 * 32 * MIB)
        );
    }

    proptest! {
        #[test]
        fn keeps_the_budget_and_bounds_rewrites(
            sizes in prop::collection::vec((1_u64..1 << 10, 0_u32..20), 1..300),
        ) {
            let policy = MergePolicy { floor_bytes: 1 << 8, ..MergePolicy::default() };
            let added: Vec<u64> = sizes.iter().map(|(mantissa, shift)| mantissa << shift).collect();
            let (left, written) = run(&policy, &added);
            prop_assert!(left.len() <= policy.budget);
            let total: u64 = added.iter().sum();
            prop_assert_eq!(left.iter().sum::<u64>(), total);
            // Twice the bound of equal flushes, and the floor for tiny ones.
            let levels = u64::from(added.len().ilog(4)) + 1;
            let counted = total + added.len() as u64 * policy.floor_bytes;
            prop_assert!(written <= counted * (1 + 2 * levels), "{written} of {counted}");
        }

        #[test]
        fn debt_is_what_merges_read(sizes in prop::collection::vec(1_u64..1 << 30, 0..60)) {
            let policy = MergePolicy::default();
            let debt = policy.debt_bytes(&free(&sizes));
            prop_assert_eq!(debt == 0, policy.choose(&free(&sizes), u64::MAX).is_none());
        }
    }
}
