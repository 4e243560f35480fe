//! Moving averages: each value becomes the mean of the values up to it.
//!
//! Source: OpenTSDB 2.4, `MovingAverage`.

use super::combine::Work;
use super::error::ExpressionError;
use crate::{Points, Values};

/// The window of a mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// A number of values, the current one included; at least 1.
    Values(usize),
    /// The values that are less than this many milliseconds old.
    Millis(i64),
}

/// The mean of each window that is whole: that has its number of values, or a value before its time.
/// NaN does not count. Where a window is not whole yet there is no point, or 0 with OpenTSDB's oddity.
///
/// # Errors
///
/// See [`Work::step`].
pub(super) fn apply(points: &Points, window: Window, work: &mut Work<'_>) -> Result<Points, ExpressionError> {
    let values: Vec<f64> = points.iter().map(|(_, value)| value.as_f64()).collect();
    let times = points.times_ms();
    let (mut times_ms, mut means) = (Vec::new(), Vec::new());
    for (end, time_ms) in times.iter().enumerate() {
        let (mean, steps) = mean(&values[..=end], &times[..=end], window);
        work.step(steps)?;
        match mean {
            Some(mean) => means.push(mean),
            None if work.quirks().moving_averages_begin_with_zeros => means.push(0.0),
            None => continue,
        }
        times_ms.push(*time_ms);
    }
    Ok(Points::new(times_ms, Values::Doubles(means)))
}

/// The mean of the window at the end, and how many values were looked at. They are added from the
/// newest to the oldest, as in OpenTSDB: the last digit depends on it.
fn mean(values: &[f64], times: &[i64], window: Window) -> (Option<f64>, usize) {
    let now_ms = times.last().copied().unwrap_or_default();
    let (mut sum, mut count, mut steps) = (0.0, 0_usize, 0);
    for (value, time_ms) in values.iter().zip(times).rev() {
        steps += 1;
        if let Window::Millis(length_ms) = window
            && now_ms - time_ms >= length_ms
        {
            return (divided(sum, count), steps);
        }
        if !value.is_nan() {
            sum += value;
            count += 1;
        }
        if let Window::Values(length) = window
            && count >= length
        {
            return (divided(sum, count), steps);
        }
    }
    (None, steps)
}

#[expect(clippy::cast_precision_loss, reason = "windows have fewer than 2^53 values")]
fn divided(sum: f64, count: usize) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{Number, Quirks};

    fn averages(window: Window, quirks: Quirks) -> Vec<(i64, f64)> {
        let values = [1.0, 2.0, f64::NAN, 6.0, 7.0];
        let points: Points = (0_i64..)
            .zip(values)
            .map(|(second, value)| (second * 1000, Number::Double(value)))
            .collect();
        let cancelled = CancellationToken::new();
        let points = apply(
            &points,
            window,
            &mut Work::new(quirks, (i64::MIN, i64::MAX), &cancelled),
        )
        .unwrap();
        points
            .iter()
            .map(|(time_ms, value)| (time_ms / 1000, value.as_f64()))
            .collect()
    }

    #[test]
    fn a_mean_is_there_once_its_window_is_whole() {
        let counted = Window::Values(2);
        assert_eq!(
            averages(counted, Quirks::NONE),
            [(1, 1.5), (2, 1.5), (3, 4.0), (4, 6.5)]
        );
        let timed = Window::Millis(2000);
        assert_eq!(averages(timed, Quirks::NONE), [(2, 2.0), (3, 6.0), (4, 6.5)]);
    }

    #[test]
    fn opentsdb_begins_with_zeros() {
        let counted = averages(Window::Values(3), Quirks::OPENTSDB);
        assert_eq!(counted, [(0, 0.0), (1, 0.0), (2, 0.0), (3, 3.0), (4, 5.0)]);
    }
}
