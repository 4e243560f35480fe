//! Points of one series from several sources, in order of time, newest wins.

use crate::TimeRange;
use crate::parts::part::Columns;

/// Removes the points from index `from` on that are in one of the ranges.
pub(super) fn delete(columns: &mut Columns, from: usize, ranges: &[TimeRange]) {
    if ranges.is_empty() {
        return;
    }
    let mut kept = from;
    for index in from..columns.len() {
        if !ranges.iter().any(|range| range.contains(columns.times_ms[index])) {
            copy(columns, index, kept);
            kept += 1;
        }
    }
    columns.truncate(kept);
}

/// Sorts the points from index `from` on by instant. Of points of the same instant the last one remains.
pub(in crate::parts) fn settle(columns: &mut Columns, from: usize) {
    if columns.times_ms[from..].is_sorted_by(|a, b| a < b) {
        return;
    }
    let mut order: Vec<usize> = (from..columns.len()).collect();
    // Stable: the last of equal instants is the newest.
    order.sort_by_key(|index| columns.times_ms[*index]);
    let newest = |pair: &[usize]| {
        pair.get(1)
            .is_none_or(|next| columns.times_ms[pair[0]] != columns.times_ms[*next])
    };
    let kept: Vec<usize> = (0..order.len())
        .filter(|index| newest(&order[*index..order.len().min(index + 2)]))
        .map(|index| order[index])
        .collect();
    let sorted = Columns {
        times_ms: kept.iter().map(|index| columns.times_ms[*index]).collect(),
        kinds: kept.iter().map(|index| columns.kinds[*index]).collect(),
        bits: kept.iter().map(|index| columns.bits[*index]).collect(),
    };
    columns.truncate(from);
    columns.extend_from(&sorted, 0..sorted.len());
}

/// Copies a point to a place before it.
fn copy(columns: &mut Columns, from: usize, to: usize) {
    columns.times_ms[to] = columns.times_ms[from];
    columns.kinds[to] = columns.kinds[from];
    columns.bits[to] = columns.bits[from];
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::{Point, PointKind};

    fn points(points: &[(i64, u64)]) -> Columns {
        let point = |(time_ms, bits): &(i64, u64)| Point {
            time_ms: *time_ms,
            kind: PointKind::from_byte([0, 1, 2][usize::try_from(bits % 3).unwrap()]).unwrap(),
            bits: *bits,
        };
        points.iter().map(point).collect()
    }

    proptest! {
        #[test]
        fn settles_like_a_map(
            before in prop::collection::vec((0_i64..9, any::<u64>()), 0..9),
            settled in prop::collection::vec((0_i64..20, any::<u64>()), 0..30),
            deleted in prop::collection::vec((0_i64..20, 0_i64..5), 0..3),
        ) {
            let mut all = points(&[before.clone(), settled.clone()].concat());
            let ranges: Vec<TimeRange> = deleted
                .iter()
                .map(|(first_ms, length)| TimeRange { first_ms: *first_ms, last_ms: first_ms + length })
                .collect();
            delete(&mut all, before.len(), &ranges);
            settle(&mut all, before.len());
            let mut newest: BTreeMap<i64, u64> = settled.into_iter().collect();
            newest.retain(|time_ms, _| !ranges.iter().any(|range| range.contains(*time_ms)));
            let newest: Vec<(i64, u64)> = newest.into_iter().collect();
            prop_assert_eq!(all, points(&[before, newest].concat()));
        }
    }
}
