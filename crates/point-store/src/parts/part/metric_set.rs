//! The metrics of a part, as runs of their numbers.
//!
//! ```text
//!   runs | gap, length | gap, length | …     varints
//! ```
//!
//! `gap` is the distance to the end of the previous run (0 only for the first), `length` the number of metrics after the
//! first of the run. Numbers are given in the order in which metrics are first seen, so most parts have few runs.

use super::lost::Lost;
use super::{MetricNumber, SeriesKey};
use crate::{SeriesNumber, TimeRange};
use oxtsdb_storage_file::varint::{Reader, put};

/// Runs of metrics that are kept apart, at most: bounds memory, and the list of a day's files.
pub(super) const MOST_METRIC_RUNS: usize = 256;

/// Metrics in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricSet {
    /// First and last number of each run; ascending, not adjacent.
    runs: Vec<(u32, u32)>,
}

impl MetricSet {
    /// Adds a metric behind all others, or one of the last run.
    pub fn push(&mut self, metric: MetricNumber) {
        self.push_run(metric.0, metric.0);
    }

    /// Adds metrics from a first to a last number; the first is not before the last run's first.
    pub(super) fn push_run(&mut self, first: u32, last: u32) {
        match self.runs.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => self.runs.push((first, last)),
        }
    }

    /// Adds the metrics of another set.
    pub fn extend(&mut self, other: &Self) {
        let mut runs: Vec<_> = self.runs.drain(..).chain(other.runs.iter().copied()).collect();
        runs.sort_unstable();
        for (first, last) in runs {
            self.push_run(first, last);
        }
    }

    /// Joins the runs with the smallest gaps, so that at most `most` remain: the set then has metrics between them, too.
    pub fn bound(&mut self, most: usize) {
        let excess = self.runs.len().saturating_sub(most.max(1));
        if excess == 0 {
            return;
        }
        let gap = |pair: &[(u32, u32)]| pair[1].0 - pair[0].1;
        let mut gaps: Vec<(u32, usize)> = self.runs.windows(2).map(gap).zip(1..).collect();
        gaps.sort_unstable();
        let mut joined: Vec<usize> = gaps[..excess].iter().map(|(_, index)| *index).collect();
        joined.sort_unstable();
        let mut joined = joined.into_iter().peekable();
        let mut runs: Vec<(u32, u32)> = Vec::with_capacity(most);
        for (index, run) in self.runs.iter().enumerate() {
            match runs.last_mut().filter(|_| joined.next_if_eq(&index).is_some()) {
                Some((_, last)) => *last = run.1,
                None => runs.push(*run),
            }
        }
        self.runs = runs;
    }

    /// Whether it has no metric.
    pub const fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The number of runs.
    pub(super) const fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Bytes of memory behind it.
    pub const fn byte_len(&self) -> usize {
        size_of_val(self.runs.as_slice())
    }

    /// All series of the metrics, in a range.
    pub fn lost(&self, range: TimeRange) -> Vec<Lost> {
        let key = |metric, series| SeriesKey {
            metric: MetricNumber(metric),
            series: SeriesNumber(series),
        };
        let runs = self.runs.iter();
        runs.map(|(first, last)| Lost {
            first: key(*first, 0),
            last: key(*last, u32::MAX),
            range,
        })
        .collect()
    }

    /// Appends the set.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        put(bytes, self.runs.len() as u64);
        let mut end = 0;
        for (first, last) in &self.runs {
            put(bytes, u64::from(first - end));
            put(bytes, u64::from(last - first));
            end = *last;
        }
    }

    /// Reverses [`Self::encode`]; `None` for other bytes.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let count = reader.length()?;
        // A run has two bytes or more.
        let mut runs = Vec::with_capacity(count.min(reader.0.len() / 2));
        let mut end = 0_u32;
        for index in 0..count {
            let gap = u32::try_from(reader.number()?).ok()?;
            let first = end.checked_add(gap)?;
            let last = first.checked_add(u32::try_from(reader.number()?).ok()?)?;
            if index > 0 && gap < 2 {
                return None;
            }
            runs.push((first, last));
            end = last;
        }
        Some(Self { runs })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(metrics: &BTreeSet<u32>) -> MetricSet {
        let mut set = MetricSet::default();
        metrics.iter().for_each(|metric| set.push(MetricNumber(*metric)));
        set
    }

    fn has(set: &MetricSet, metric: u32) -> bool {
        set.runs
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&metric))
    }

    #[test]
    fn one_metric_takes_three_bytes_and_many_in_a_row_a_few() {
        let len = |set: &MetricSet| {
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            bytes.len()
        };
        assert_eq!(len(&set(&[5].into())), 3);
        assert_eq!(len(&set(&(0..100_000).collect())), 5);
    }

    #[test]
    fn joins_the_closest_runs() {
        let mut metrics = set(&[1, 2, 10, 12, 100, 103, 1000].into());
        metrics.bound(3);
        assert_eq!(metrics.runs, [(1, 12), (100, 103), (1000, 1000)]);
    }

    proptest! {
        #[test]
        fn sets_round_trip_and_bounds_keep_all(
            one in prop::collection::btree_set(prop_oneof![0_u32..200, any::<u32>()], 0..60),
            two in prop::collection::btree_set(prop_oneof![0_u32..200, any::<u32>()], 0..60),
            most in 1_usize..9,
        ) {
            let mut both = set(&one);
            both.extend(&set(&two));
            let union: BTreeSet<u32> = one.union(&two).copied().collect();
            prop_assert_eq!(&both, &set(&union));
            let mut bytes = Vec::new();
            both.encode(&mut bytes);
            prop_assert_eq!(MetricSet::decode(&mut Reader(&bytes)), Some(both.clone()));
            both.bound(most);
            prop_assert!(both.runs.len() <= most);
            prop_assert!(union.iter().all(|metric| has(&both, *metric)));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            let _ = MetricSet::decode(&mut Reader(&bytes));
        }
    }
}
