//! The points of a series after the end of a query.
//!
//! The hours of a plan end up to an hour after the query. The result needs less: interpolation, and the rate at the
//! first instant after the end, need one point or window there. So a series is read up to a limit shortly after the
//! end first, and the rest of the hours only if that had not enough:
//!
//! ```text
//!   hours    ├──────────────────────────────┼──────────────────────────────┤
//!   query        ├──────────────────────────┤ end
//!   first    ├───────────────────────────────────┤ limit, the end of a window
//!   rest                                          ├────────────────────────┤
//! ```
//!
//! A series that has no points in the query is read as a whole: it names its group, and its first rate may count
//! (see [`crate::Quirks`]).

use oxtsdb_point_store::{BlockSummary, TimeRange};

use crate::function::downsample::Windows;
use crate::spec::{QuerySpec, SubQuery};

/// How far after the end points are read first: the usual intervals of points are shorter.
const FIRST_MS: i64 = 10 * 60 * 1000;

/// The points after the end of a query that a series needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lookahead {
    /// Points before this instant have no effect.
    begin_ms: i64,
    /// The first point or window that is not in the query begins here, or later.
    after_ms: i64,
    /// The first instant that is not read first.
    limit_ms: i64,
}

impl Lookahead {
    /// For a sub-query with these windows; `None` if all points of the hours may count.
    pub(crate) fn for_sub_query(
        query: &QuerySpec,
        sub_query: &SubQuery,
        windows: Option<&Windows>,
    ) -> Option<Self> {
        // A rate that is dropped leaves none at the first instant after the end.
        let drops_rates = sub_query.rate.is_some_and(|rate| rate.drop_resets);
        if query.with_surroundings || drops_rates {
            return None;
        }
        let Some(windows) = windows else {
            let after_ms = query.end_ms.saturating_add(1);
            return Some(Self {
                begin_ms: i64::MIN,
                after_ms,
                limit_ms: after_ms.saturating_add(FIRST_MS),
            });
        };
        // The windows of a series must not depend on its points.
        windows.final_until(query.end_ms)?;
        let after_ms = windows.layout.next(windows.layout.floor(query.end_ms));
        Some(Self {
            begin_ms: windows.from_ms,
            after_ms,
            limit_ms: windows
                .layout
                .next(windows.layout.floor(after_ms.saturating_add(FIRST_MS))),
        })
    }

    /// Divides a range into the part that is read first and the rest; `None` if all of it is read.
    pub(crate) fn divide(&self, range: TimeRange) -> Option<(TimeRange, TimeRange)> {
        let is_inside = range.first_ms < self.after_ms && self.limit_ms <= range.last_ms;
        let first = TimeRange {
            last_ms: self.limit_ms - 1,
            ..range
        };
        let rest = TimeRange {
            first_ms: self.limit_ms,
            ..range
        };
        is_inside.then_some((first, rest))
    }

    /// Whether the points of the first range, ascending, and the blocks between them are enough. Each of these is in one
    /// window.
    pub(crate) fn is_enough(&self, times_ms: &[i64], blocks: &[BlockSummary]) -> bool {
        let after = times_ms.partition_point(|time_ms| *time_ms < self.after_ms);
        let last_inside = after.checked_sub(1).and_then(|last| times_ms.get(last));
        let is_after = |block: &BlockSummary| block.range.first_ms >= self.after_ms;
        let mut ends = blocks
            .iter()
            .filter(|block| !is_after(block))
            .map(|block| block.range.last_ms);
        (after < times_ms.len() || blocks.iter().any(is_after))
            && (last_inside.is_some_and(|last| *last >= self.begin_ms)
                || ends.any(|last_ms| last_ms >= self.begin_ms))
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use oxtsdb_schema::DuplicatePolicy;

    use super::*;
    use crate::function::downsample::WindowLayout;
    use crate::language::parse_metric_query;
    use crate::quirks::Quirks;
    use crate::spec::AnnotationSelection;

    const MINUTE: i64 = 60_000;

    /// Of a query for the first 30 minutes and a second.
    fn lookahead(sub_query: &str, window_ms: Option<i64>) -> Option<Lookahead> {
        let sub_query = parse_metric_query(sub_query, &TimeZone::UTC).unwrap();
        let query = QuerySpec {
            start_ms: 0,
            end_ms: 30 * MINUTE + 1000,
            sub_queries: Vec::new(),
            duplicates: DuplicatePolicy::Error,
            max_scanned_points: None,
            quirks: Quirks::NONE,
            skip_damaged_rows: false,
            with_surroundings: false,
            with_infinities: false,
            annotations: AnnotationSelection::default(),
        };
        let windows = window_ms.map(|length_ms| Windows::new(WindowLayout::Fixed { length_ms }));
        Lookahead::for_sub_query(&query, &sub_query, windows.as_ref())
    }

    #[test]
    fn a_series_needs_a_point_in_the_query_and_one_after_it() {
        let lookahead = lookahead("sum:m", None).unwrap();
        for (times_ms, is_enough) in [
            (vec![], false),
            (vec![20 * MINUTE], false),
            (vec![35 * MINUTE], false),
            (vec![30 * MINUTE + 1000], false),
            (vec![30 * MINUTE + 1000, 30 * MINUTE + 1001], true),
            (vec![0, MINUTE, 35 * MINUTE, 36 * MINUTE], true),
        ] {
            assert_eq!(lookahead.is_enough(&times_ms, &[]), is_enough, "{times_ms:?}");
        }
    }

    #[test]
    fn windows_are_read_as_a_whole() {
        let mut lookahead = lookahead("sum:7m-avg:m", Some(7 * MINUTE)).unwrap();
        let range = TimeRange {
            first_ms: 0,
            last_ms: 60 * MINUTE - 1,
        };
        let (first, rest) = lookahead.divide(range).unwrap();
        assert_eq!((first.first_ms, first.last_ms), (0, 49 * MINUTE - 1));
        assert_eq!((rest.first_ms, rest.last_ms), (49 * MINUTE, range.last_ms));
        let is_enough = |times: [i64; 2]| lookahead.is_enough(&times.map(|time| time * MINUTE), &[]);
        assert!(!is_enough([29, 34]), "both in the last window of the query");
        assert!(is_enough([34, 35]));
        lookahead.begin_ms = 7 * MINUTE;
        assert!(
            !lookahead.is_enough(&[0, 40 * MINUTE], &[]),
            "in no window of the query"
        );
    }

    #[test]
    fn reads_all_where_any_point_may_count() {
        let divided = |lookahead: Option<Lookahead>, first_ms, last_ms| {
            lookahead.and_then(|lookahead| lookahead.divide(TimeRange { first_ms, last_ms }))
        };
        let raw = lookahead("sum:rate{counter}:m", None);
        assert!(divided(raw, 0, 60 * MINUTE).is_some());
        assert_eq!(
            divided(raw, 0, 40 * MINUTE),
            None,
            "the range ends before the limit"
        );
        assert_eq!(
            divided(raw, 31 * MINUTE, 60 * MINUTE),
            None,
            "the range begins after the query"
        );
        assert_eq!(lookahead("sum:rate{dropcounter}:m", None), None);
    }
}
