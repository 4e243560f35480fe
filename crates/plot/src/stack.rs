//! Stacked areas: the values of all series at common times, added up.
//!
//! The common times are the times of all series' points, if they are few enough. Else they are the middles of the pixel
//! columns, where each series has its value farthest from 0 in the column: the sum may then be above the largest real
//! one, but no spike is lost. Between points a series has the value on the straight line, before its first point, after
//! its last one and in gaps 0.

use crate::reduce::Trace;

/// The areas of the series of one axis.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    /// The common times as shares of the range, ascending.
    pub(crate) times: Vec<f64>,
    pub(crate) layers: Vec<Layer>,
}

/// The area of a series.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The sum of the series up to this one, at each of the times.
    pub(crate) tops: Vec<f64>,
    /// Whether the series has a value, at each of the times.
    pub(crate) present: Vec<bool>,
}

impl Stack {
    /// Stacks the traces of series that were reduced to `columns` columns.
    pub(crate) fn new(traces: &[&Trace], columns: u32) -> Self {
        let mut times: Vec<f64> = traces
            .iter()
            .flat_map(|trace| trace.samples())
            .map(|sample| sample.along)
            .collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let exact = times.len() <= columns as usize * 4 && traces.iter().all(|trace| !trace.reduced);
        let half_column = if exact { 0.0 } else { 0.5 / f64::from(columns) };
        if !exact {
            times = (0..columns)
                .map(|column| (f64::from(column) + 0.5) / f64::from(columns))
                .collect();
        }
        let mut sums = vec![0.0; times.len()];
        let layer = |trace: &&Trace| {
            let values = values(trace, &times, half_column);
            for (sum, value) in sums.iter_mut().zip(&values) {
                *sum += value.unwrap_or(0.0);
            }
            Layer {
                tops: sums.clone(),
                present: values.iter().map(Option::is_some).collect(),
            }
        };
        let layers = traces.iter().map(layer).collect();
        Self { times, layers }
    }
}

/// Returns the value of a series at each of the times: the one farthest from 0 within `reach`, or between two points.
fn values(trace: &Trace, times: &[f64], reach: f64) -> Vec<Option<f64>> {
    let mut values: Vec<Option<f64>> = vec![None; times.len()];
    for run in trace.runs() {
        let (Some(first), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let begin = times.partition_point(|time| *time < first.along - reach);
        let end = times.partition_point(|time| *time <= last.along + reach);
        // The number of points before the time's reach.
        let mut before = 0;
        for (time, value) in times.iter().zip(&mut values).take(end).skip(begin) {
            while run.get(before).is_some_and(|sample| sample.along < time - reach) {
                before += 1;
            }
            let near = run
                .iter()
                .skip(before)
                .take_while(|sample| sample.along <= time + reach);
            let extreme = near
                .map(|sample| sample.value)
                .max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let between = || {
                let (left, right) = (run.get(before.checked_sub(1)?)?, run.get(before)?);
                let part = (time - left.along) / (right.along - left.along);
                Some(left.value * (1.0 - part) + right.value * part)
            };
            let here = extreme.or_else(between);
            *value = match (*value, here) {
                (Some(other), Some(here)) if other.abs() > here.abs() => Some(other),
                (other, here) => here.or(other),
            };
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::Sample;

    fn trace(runs: &[&[(f64, f64)]]) -> Trace {
        let mut trace = Trace::default();
        for run in runs {
            for (index, (along, value)) in run.iter().enumerate() {
                trace.push(
                    Sample {
                        along: *along,
                        value: *value,
                    },
                    index == 0,
                );
            }
        }
        trace
    }

    #[test]
    fn layers_add_up_at_the_times_of_all_series() {
        let (a, b) = (
            trace(&[&[(0.0, 1.0), (1.0, 3.0)]]),
            trace(&[&[(0.5, 10.0), (1.0, 10.0)]]),
        );
        let stack = Stack::new(&[&a, &b], 100);
        assert_eq!(stack.times, [0.0, 0.5, 1.0]);
        assert_eq!(stack.layers[0].tops, [1.0, 2.0, 3.0]);
        assert_eq!(stack.layers[1].tops, [1.0, 12.0, 13.0]);
        assert_eq!(stack.layers[1].present, [false, true, true]);
    }

    #[test]
    fn a_gap_counts_as_zero() {
        let (a, b) = (
            trace(&[&[(0.0, 1.0), (0.2, 1.0)], &[(0.8, 1.0)]]),
            trace(&[&[(0.0, 5.0), (0.5, 5.0), (1.0, 5.0)]]),
        );
        let stack = Stack::new(&[&a, &b], 100);
        assert_eq!(stack.layers[1].tops, [6.0, 6.0, 5.0, 6.0, 5.0]);
    }

    #[test]
    fn columns_keep_spikes() {
        let points: Vec<(f64, f64)> = (0..1000)
            .map(|at| (f64::from(at) / 999.0, if at == 500 { 1e6 } else { 1.0 }))
            .collect();
        let stack = Stack::new(&[&trace(&[&points])], 10);
        assert_eq!(stack.times.len(), 10);
        assert_eq!(stack.layers[0].tops.iter().filter(|top| **top == 1e6).count(), 1);
    }
}
