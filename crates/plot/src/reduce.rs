//! Reduces points to the width of the picture, before anything is drawn.
//!
//! Of the points in a pixel column only the first, the smallest, the largest and the last stay, in the order of time. A
//! line through them covers the same pixels as a line through all of them, so a spike of one point in a million stays.
//!
//! A picture with many series has wider columns: all series together have about `MAX_POINTS` points.

use std::ops::ControlFlow;

use crate::axis::TimeRange;
use crate::series::{Gaps, Points};
use crate::size::Size;

/// The number of points of all series together, about. SVG takes some 8 bytes for each.
const MAX_POINTS: u64 = 400_000;
/// First, smallest, largest, last.
const PER_COLUMN: u64 = 4;
/// A series has this number of columns, however many series there are.
const MIN_COLUMNS: u64 = 4;

/// Returns the number of columns for a picture with `series` series.
pub(crate) fn columns(size: Size, series: usize) -> u32 {
    let share = MAX_POINTS / PER_COLUMN / (series as u64).max(1);
    let columns = share.clamp(MIN_COLUMNS, u64::from(size.width()));
    u32::try_from(columns).unwrap_or(u32::MAX)
}

/// Returns an upper bound for the number of points that stay of `series` series, with a point at either end.
pub(crate) fn max_points(size: Size, series: usize) -> u64 {
    (u64::from(columns(size, series)) * PER_COLUMN + 2) * series as u64
}

/// A point that is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The time as a share of the range, from 0.0 at its start to 1.0 at its end.
    pub(crate) along: f64,
    pub(crate) value: f64,
}

/// The points of a series that stay, in runs without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Trace {
    samples: Vec<Sample>,
    /// The index of each run's first sample.
    starts: Vec<usize>,
    /// Whether points were left out.
    pub(crate) reduced: bool,
}

impl Trace {
    pub(crate) fn runs(&self) -> impl Iterator<Item = &[Sample]> {
        let ends = self.starts.iter().skip(1).copied().chain([self.samples.len()]);
        self.starts
            .iter()
            .zip(ends)
            .map(|(start, end)| &self.samples[*start..end])
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    pub(crate) fn push(&mut self, sample: Sample, starts_run: bool) {
        if starts_run || self.samples.is_empty() {
            self.starts.push(self.samples.len());
        }
        self.samples.push(sample);
    }
}

impl TimeRange {
    /// Returns the instant as a share of the range; outside of 0.0 to 1.0 for instants outside of the range.
    pub(crate) fn along(&self, timestamp_ms: i64) -> f64 {
        // Exact for 285,000 years.
        (timestamp_ms as f64 - self.start_ms as f64) / (self.end_ms as f64 - self.start_ms as f64)
    }
}

/// How values between two points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Between {
    /// On a straight line.
    Line,
    /// As the point before.
    Step,
    /// Not at all.
    Nothing,
}

/// Settings of a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub(crate) range: TimeRange,
    pub(crate) columns: u32,
    pub(crate) gaps: Gaps,
    pub(crate) between: Between,
    /// Values of 0 and less are gaps.
    pub(crate) only_positive: bool,
}

impl Reduction {
    /// Reduces points. The lines to the neighbours outside of the range end at its sides.
    pub(crate) fn reduce(&self, points: &Points<'_>) -> Trace {
        let mut state = State {
            reduction: self,
            trace: Trace::default(),
            column: None,
            previous: None,
            gap: false,
        };
        points.visit(&mut |timestamp_ms, value| state.point(timestamp_ms, value));
        state.finish()
    }
}

/// A point within the range and its number among the points.
#[derive(Clone, Copy)]
struct Numbered {
    number: u32,
    sample: Sample,
}

/// The points of a column.
struct Column {
    index: u32,
    starts_run: bool,
    count: u32,
    first: Numbered,
    smallest: Numbered,
    largest: Numbered,
    last: Numbered,
}

struct State<'a> {
    reduction: &'a Reduction,
    trace: Trace,
    column: Option<Column>,
    /// The last point with a value that can be drawn, of those before the range too.
    previous: Option<(i64, f64)>,
    /// Whether the line breaks before the next point.
    gap: bool,
}

impl State<'_> {
    fn point(&mut self, timestamp_ms: i64, value: f64) -> ControlFlow<()> {
        let Reduction {
            range,
            gaps,
            only_positive,
            ..
        } = *self.reduction;
        if self
            .previous
            .is_some_and(|(previous_ms, _)| timestamp_ms < previous_ms)
        {
            return ControlFlow::Continue(());
        }
        if !value.is_finite() || (only_positive && value <= 0.0) {
            self.gap |= gaps != Gaps::Connect;
            return ControlFlow::Continue(());
        }
        if let (Gaps::LongerThanMs(longest), Some((previous_ms, _))) = (gaps, self.previous) {
            self.gap |= timestamp_ms.saturating_sub(previous_ms) > longest;
        }
        if timestamp_ms < range.start_ms {
            self.previous = Some((timestamp_ms, value));
            self.gap = false;
            return ControlFlow::Continue(());
        }
        if timestamp_ms > range.end_ms {
            self.close_right(timestamp_ms, value);
            return ControlFlow::Break(());
        }
        self.point_in_range(timestamp_ms, value);
        self.previous = Some((timestamp_ms, value));
        self.gap = false;
        ControlFlow::Continue(())
    }

    fn point_in_range(&mut self, timestamp_ms: i64, value: f64) {
        let Reduction { range, columns, .. } = *self.reduction;
        let along = range.along(timestamp_ms);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "along is 0 to 1"
        )]
        let index = ((along * f64::from(columns)) as u32).min(columns.saturating_sub(1));
        let sample = Sample { along, value };
        let mut starts_run = self.gap;
        match &mut self.column {
            Some(column) if column.index == index => return column.add(sample),
            Some(_) => {}
            None => match self.previous {
                Some(previous) if !self.gap => {
                    self.push_at_side(0.0, range.start_ms, previous, (timestamp_ms, value));
                    starts_run = self.trace.samples.is_empty();
                }
                _ => starts_run = true,
            },
        }
        self.flush();
        self.column = Some(Column::new(index, starts_run, sample));
    }

    /// Ends the line on the way to a point after the range.
    fn close_right(&mut self, timestamp_ms: i64, value: f64) {
        let next = (timestamp_ms, value);
        let range = self.reduction.range;
        let Some(previous) = self.previous.filter(|_| !self.gap) else {
            return;
        };
        if self.column.is_none() {
            // No point lies in the range: the line crosses all of it.
            self.push_at_side(0.0, range.start_ms, previous, next);
        }
        self.flush();
        self.push_at_side(1.0, range.end_ms, previous, next);
    }

    /// Adds the value between two points at a side of the range.
    fn push_at_side(&mut self, along: f64, side_ms: i64, before: (i64, f64), after: (i64, f64)) {
        let value = match self.reduction.between {
            Between::Nothing => return,
            Between::Step => before.1,
            Between::Line => {
                let length = i128::from(after.0) - i128::from(before.0);
                let part = (i128::from(side_ms) - i128::from(before.0)) as f64 / length.max(1) as f64;
                before.1 * (1.0 - part) + after.1 * part
            }
        };
        if value.is_finite() {
            self.trace.push(Sample { along, value }, false);
        }
    }

    fn flush(&mut self) {
        let Some(column) = self.column.take() else { return };
        let mut kept = [column.first, column.smallest, column.largest, column.last];
        kept.sort_by_key(|point| point.number);
        let mut previous = None;
        for point in kept {
            if previous != Some(point.number) {
                self.trace
                    .push(point.sample, previous.is_none() && column.starts_run);
            }
            previous = Some(point.number);
        }
        self.trace.reduced |= column.count > 4;
    }

    fn finish(mut self) -> Trace {
        self.flush();
        self.trace
    }
}

impl Column {
    fn new(index: u32, starts_run: bool, sample: Sample) -> Self {
        let only = Numbered { number: 0, sample };
        Self {
            index,
            starts_run,
            count: 1,
            first: only,
            smallest: only,
            largest: only,
            last: only,
        }
    }

    /// Adds a point. A gap within a column is too narrow to be seen.
    fn add(&mut self, sample: Sample) {
        let point = Numbered {
            number: self.count,
            sample,
        };
        self.count = self.count.saturating_add(1);
        if sample.value < self.smallest.sample.value {
            self.smallest = point;
        }
        if sample.value > self.largest.sample.value {
            self.largest = point;
        }
        self.last = point;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Point;

    fn points(values: &[(i64, f64)]) -> Points<'static> {
        let point = |(timestamp_ms, value): &(i64, f64)| Point {
            timestamp_ms: *timestamp_ms,
            value: *value,
        };
        values.iter().map(point).collect::<Vec<_>>().into()
    }

    fn reduction(end_ms: i64, columns: u32, gaps: Gaps) -> Reduction {
        let range = TimeRange { start_ms: 0, end_ms };
        Reduction {
            range,
            columns,
            gaps,
            between: Between::Line,
            only_positive: false,
        }
    }

    fn runs(trace: &Trace) -> Vec<Vec<f64>> {
        trace
            .runs()
            .map(|run| run.iter().map(|sample| sample.value).collect())
            .collect()
    }

    #[test]
    fn keeps_a_spike_of_one_point_in_a_million() {
        let values: Vec<(i64, f64)> = (0..1_000_000)
            .map(|time| (time, if time == 123_456 { 1e9 } else { (time % 7) as f64 }))
            .collect();
        let trace = reduction(1_000_000, 1200, Gaps::NotFinite).reduce(&points(&values));
        assert!(trace.samples().len() <= 4 * 1200);
        assert_eq!(
            trace
                .samples()
                .iter()
                .filter(|sample| sample.value == 1e9)
                .count(),
            1
        );
        assert!(trace.samples().is_sorted_by(|a, b| a.along <= b.along));
        assert!(trace.reduced);
    }

    #[test]
    fn keeps_first_smallest_largest_last_in_order_of_time() {
        let values = [
            (0, 5.0),
            (1, 6.0),
            (2, 9.0),
            (3, 7.0),
            (4, 1.0),
            (5, 2.0),
            (6, 3.0),
        ];
        let trace = reduction(100, 10, Gaps::NotFinite).reduce(&points(&values));
        assert_eq!(runs(&trace), [[5.0, 9.0, 1.0, 3.0]]);
    }

    #[test]
    fn lines_break_at_gaps() {
        let values = [(0, 1.0), (20, 2.0), (30, f64::NAN), (40, 3.0), (90, 4.0)];
        let broken = |gaps| runs(&reduction(100, 100, gaps).reduce(&points(&values)));
        assert_eq!(broken(Gaps::Connect), [vec![1.0, 2.0, 3.0, 4.0]]);
        assert_eq!(broken(Gaps::NotFinite), [vec![1.0, 2.0], vec![3.0, 4.0]]);
        assert_eq!(
            broken(Gaps::LongerThanMs(20)),
            [vec![1.0, 2.0], vec![3.0], vec![4.0]]
        );
    }

    #[test]
    fn lines_to_points_outside_end_at_the_sides() {
        let values = [(-10, 0.0), (10, 2.0), (90, 4.0), (110, 6.0), (120, 100.0)];
        let trace = reduction(100, 100, Gaps::NotFinite).reduce(&points(&values));
        assert_eq!(runs(&trace), [[1.0, 2.0, 4.0, 5.0]]);
        let across = reduction(100, 100, Gaps::NotFinite).reduce(&points(&[(-100, 0.0), (300, 4.0)]));
        assert_eq!(runs(&across), [[1.0, 2.0]]);
        let gap = reduction(100, 100, Gaps::LongerThanMs(50)).reduce(&points(&[(-100, 0.0), (300, 4.0)]));
        assert!(gap.samples().is_empty());
    }

    #[test]
    fn leaves_out_values_without_logarithm() {
        let positive = Reduction {
            only_positive: true,
            ..reduction(100, 100, Gaps::NotFinite)
        };
        let trace = positive.reduce(&points(&[(0, 1.0), (10, 0.0), (20, 2.0), (30, -5.0), (40, 3.0)]));
        assert_eq!(runs(&trace), [[1.0], [2.0], [3.0]]);
    }

    #[test]
    fn more_series_have_wider_columns() {
        let size = Size::new(1200, 600).unwrap();
        assert_eq!(columns(size, 1), 1200);
        assert_eq!(columns(size, 1000), 100);
        assert_eq!(columns(size, 1_000_000), 4);
        assert_eq!(columns(size, 0), 1200);
    }
}
