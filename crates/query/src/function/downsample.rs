//! Downsampling: one value for each window of a series.
//!
//! [`Downsample`] is the request, [`Windows`] the windows of its range, and [`Downsampler`] computes the values
//! of a series. The result is always floating point. A fill policy gives a value to windows without points, up to the
//! last that ends inside.
//!
//! Source: OpenTSDB 2.4, `Downsampler`, `FillingDownsampler`.

use std::sync::Arc;

use oxtsdb_point_store::BlockSummary;

pub use self::spec::{Downsample, DownsampleError, Fill, Interval};
pub use self::windows::{FilledWindows, WindowLayout, WindowRuns, Windows};
use crate::function::aggregator::{Accumulator, Function};
use crate::points::{Points, Values};

mod spec;
mod windows;

/// Downsamples one series, as its points come, in order of time.
#[derive(Clone, Debug)]
pub struct Downsampler {
    /// Shared by the series of a read.
    windows: Arc<Windows>,
    fold: Accumulator,
    /// Start of the window that is being filled, and of the one behind it.
    open: Option<(i64, i64)>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
    /// How many of the windows of the fill policy were taken.
    filled: usize,
}

impl Downsampler {
    /// A downsampler without points.
    pub fn new(windows: Arc<Windows>, function: Function) -> Self {
        let fold = Accumulator::new(function);
        Self {
            windows,
            fold,
            open: None,
            times_ms: Vec::new(),
            values: Vec::new(),
            filled: 0,
        }
    }

    /// Memory of the windows that it holds, and of the values that it keeps of the open one, in bytes.
    pub const fn held_bytes(&self) -> u64 {
        let windows = self.times_ms.capacity() * size_of::<i64>() + self.values.capacity() * size_of::<f64>();
        windows as u64 + self.fold.kept_bytes()
    }

    /// How many windows of a fill policy there are.
    pub fn filled_count(&self) -> u64 {
        self.windows.filled_count()
    }

    /// How many windows of a fill policy [`Downsampler::take`] would give.
    pub fn filled_until(&self, until_ms: i64) -> usize {
        self.windows
            .filled
            .as_ref()
            .map_or(0, |filled| filled.count_between(self.filled, until_ms))
    }

    /// Takes points; columns of one length. `runs` may be from an earlier series with the same windows.
    pub fn feed(&mut self, times_ms: &[i64], values: &[f64], runs: &mut WindowRuns) {
        let (from_ms, stop_ms) = match self.windows.layout {
            WindowLayout::Whole { start_ms, stop_ms } => (start_ms, stop_ms),
            WindowLayout::Fixed { .. } | WindowLayout::Calendar(_) => (self.windows.from_ms, i64::MAX),
        };
        let from = times_ms.partition_point(|time| *time < from_ms);
        let to = times_ms.partition_point(|time| *time < stop_ms).max(from);
        let (times_ms, values) = (&times_ms[from..to], &values[from..to]);
        if self.open.is_none() && times_ms.len() <= WindowRuns::MOST_POINTS {
            self.feed_runs(runs.update(times_ms, &self.windows.layout), values);
        } else {
            self.feed_inside(times_ms, values);
        }
    }

    /// Takes the first points.
    fn feed_runs(&mut self, runs: &WindowRuns, values: &[f64]) {
        self.times_ms.reserve(runs.windows.len());
        self.values.reserve(runs.windows.len());
        let mut from = 0;
        for (start, end) in &runs.windows {
            self.close();
            self.fold.feed(&values[from..*end]);
            // The last one stays open.
            self.open = Some((*start, i64::MIN));
            from = *end;
        }
        if let Some((start, end)) = &mut self.open {
            *end = self.windows.layout.next(*start);
        }
    }

    fn feed_inside(&mut self, mut times_ms: &[i64], mut values: &[f64]) {
        while let Some(&first) = times_ms.first() {
            let end = self.open_at(first);
            // Not a binary search: windows are short.
            let inside = times_ms
                .iter()
                .position(|time| *time >= end)
                .unwrap_or(times_ms.len());
            self.fold.feed(&values[..inside]);
            (times_ms, values) = (&times_ms[inside..], &values[inside..]);
        }
    }

    /// Opens the window of an instant, unless it is open; returns the start of the one behind it.
    fn open_at(&mut self, time_ms: i64) -> i64 {
        let previous = match self.open {
            Some((_, end)) if time_ms < end => return end,
            previous => previous,
        };
        self.close();
        let layout = &self.windows.layout;
        let start = match previous {
            Some((start, _)) => layout.advance(start, time_ms),
            None => layout.floor(time_ms),
        };
        let end = layout.next(start);
        self.open = Some((start, end));
        end
    }

    /// Takes the points of a block, which [`Summarizer`](super::summary::Summarizer) accepts.
    pub(crate) fn feed_block(&mut self, block: &BlockSummary) {
        self.open_at(block.range.first_ms);
        self.fold.feed_block(block);
    }

    /// The function's state in the window that is being filled.
    pub(crate) const fn state(&self) -> f64 {
        self.fold.state()
    }

    fn close(&mut self) {
        if let Some((start, _)) = self.open.take() {
            self.times_ms.push(start);
            self.values.push(self.fold.take());
        }
    }

    /// The windows that begin before an instant, with their values, from where it was called last. All
    /// points before that instant have come, and it is the start of a window: see
    /// [`Windows::final_until`].
    pub fn take(&mut self, until_ms: i64) -> Points {
        if self.open.is_some_and(|(start, _)| start < until_ms) {
            self.close();
        }
        self.fold.free_kept();
        let (times_ms, values) = (
            std::mem::take(&mut self.times_ms),
            std::mem::take(&mut self.values),
        );
        match &self.windows.filled {
            None => Points::new(times_ms, Values::Doubles(values)),
            Some(filled) => {
                let from = self.filled;
                self.filled += filled.count_between(from, until_ms);
                fill(
                    &filled.starts_ms[from..self.filled],
                    filled.value,
                    &times_ms,
                    &values,
                )
            }
        }
    }
}

/// The windows of a fill policy, with the values that the series has for them. Other windows of the series are dropped.
fn fill(starts_ms: &[i64], filled: f64, times_ms: &[i64], values: &[f64]) -> Points {
    let mut own = times_ms.iter().zip(values).peekable();
    let value_at = |start: &i64| {
        while own.next_if(|(time_ms, _)| *time_ms < start).is_some() {}
        own.next_if(|(time_ms, _)| *time_ms == start)
            .map_or(filled, |(_, value)| *value)
    };
    let values = starts_ms.iter().map(value_at).collect();
    Points::new(starts_ms.to_vec(), Values::Doubles(values))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::points::Number;

    const MINUTE: i64 = 60_000;

    fn minutes() -> Arc<Windows> {
        Arc::new(Windows::new(WindowLayout::Fixed { length_ms: MINUTE }))
    }

    fn downsample(points: &Points, windows: Arc<Windows>, function: Function) -> Points {
        let mut downsampler = Downsampler::new(windows, function);
        let values: Vec<f64> = points.iter().map(|(_, value)| value.as_f64()).collect();
        downsampler.feed(points.times_ms(), &values, &mut WindowRuns::default());
        downsampler.take(i64::MAX)
    }

    fn points(points: &[(i64, f64)]) -> Points {
        points
            .iter()
            .map(|(seconds, value)| (seconds * 1000, Number::Double(*value)))
            .collect()
    }

    fn pairs(points: &Points) -> Vec<(i64, f64)> {
        points
            .iter()
            .map(|(time_ms, value)| (time_ms / 1000, value.as_f64()))
            .collect()
    }

    #[test]
    fn windows_begin_at_multiples_of_their_length() {
        let series = points(&[(59, 1.0), (60, 2.0), (119, 4.0), (240, 8.0)]);
        let result = downsample(&series, minutes(), Function::Sum);
        assert_eq!(pairs(&result), [(0, 1.0), (60, 6.0), (240, 8.0)]);
    }

    #[test]
    fn portions_do_not_break_a_window() {
        let mut downsampler = Downsampler::new(minutes(), Function::Avg);
        let runs = &mut WindowRuns::default();
        downsampler.feed(&[1000, 2000], &[1.0, 2.0], runs);
        downsampler.feed(&[], &[], runs);
        downsampler.feed(&[3000, 61_000], &[6.0, 5.0], runs);
        assert_eq!(pairs(&downsampler.take(i64::MAX)), [(0, 3.0), (60, 5.0)]);
    }

    proptest! {
        /// Series after each other, with the instants of one before or others, whole or in portions.
        #[test]
        fn windows_of_shared_instants_are_those_of_each_point(
            columns in prop::collection::vec(prop::collection::btree_set(-400_000_i64..400_000, 0..40), 1..3),
            picks in prop::collection::vec((0_usize..3, 0_usize..40), 1..6),
            length_ms in 1_i64..200_000,
            whole in any::<bool>(),
        ) {
            let layout = if whole {
                WindowLayout::Whole { start_ms: -length_ms, stop_ms: length_ms }
            } else {
                WindowLayout::Fixed { length_ms }
            };
            let windows = Arc::new(Windows::new(layout));
            let mut runs = WindowRuns::default();
            for (pick, split) in picks {
                let times_ms: Vec<i64> = columns[pick % columns.len()].iter().copied().collect();
                let values: Vec<f64> = (0_u32..).map(f64::from).take(times_ms.len()).collect();
                let mut by_run = Downsampler::new(Arc::clone(&windows), Function::Sum);
                let split = split.min(times_ms.len());
                by_run.feed(&times_ms[..split], &values[..split], &mut runs);
                by_run.feed(&times_ms[split..], &values[split..], &mut runs);
                let mut by_point = Downsampler::new(Arc::clone(&windows), Function::Sum);
                for (time_ms, value) in times_ms.iter().zip(&values) {
                    by_point.feed(&[*time_ms], &[*value], &mut WindowRuns::default());
                }
                prop_assert_eq!(by_run.take(i64::MAX), by_point.take(i64::MAX));
            }
        }
    }

    #[test]
    fn a_fill_policy_gives_every_window_of_the_scan_a_value() {
        let layout = WindowLayout::Fixed {
            length_ms: 7 * MINUTE,
        };
        let from_ms = layout.ceil(60 * MINUTE);
        let starts_ms: Arc<[i64]> = layout.starts(from_ms, layout.floor(120 * MINUTE)).collect();
        assert_eq!(
            (starts_ms[0] / MINUTE, starts_ms[7] / MINUTE, starts_ms.len()),
            (63, 112, 8)
        );
        let windows = Windows {
            layout,
            from_ms,
            filled: Some(FilledWindows {
                starts_ms,
                value: 0.0,
            }),
        };
        // The first point is before the first window that begins inside the scan.
        let series = points(&[(3600, 100.0), (63 * 60, 1.0), (90 * 60, 2.0)]);
        let result = downsample(&series, Arc::new(windows), Function::Sum);
        let values: Vec<f64> = pairs(&result).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_whole_range_is_one_window_at_its_start() {
        let series = points(&[(-10, 1000.0), (0, 1.0), (10, 2.0), (20, 4.0)]);
        let windows = Arc::new(Windows::new(WindowLayout::Whole {
            start_ms: 0,
            stop_ms: 20_000,
        }));
        assert_eq!(pairs(&downsample(&series, windows, Function::Sum)), [(0, 3.0)]);
        let empty = Arc::new(Windows::new(WindowLayout::Whole {
            start_ms: 11_000,
            stop_ms: 20_000,
        }));
        assert!(downsample(&series, empty, Function::Sum).is_empty());
    }
}
