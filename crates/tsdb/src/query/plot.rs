//! A small chart in the terminal, drawn with braille dots.

use jiff::tz::TimeZone;
use textplots::{Chart, Plot as _, Shape};

use super::output::heading;
use super::result::Series;
use crate::time_zone;

/// Dots of a chart: two to a column of the terminal, four to a line.
const WIDTH: u32 = 150;
const HEIGHT: u32 = 48;

/// A chart for each of the first `limit` groups, and how many were left out.
pub(super) fn plots(series: &[Series], limit: usize, zone: &TimeZone) -> String {
    let mut text = String::new();
    for series in series.iter().take(limit) {
        text += &plot(series, zone);
    }
    if series.len() > limit {
        text += &format!(
            "{} more series are not drawn, see --plot-series\n",
            series.len() - limit
        );
    }
    text
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a dot is coarser than an f32; times are taken from the first point on, values as parts of their range"
)]
fn plot(series: &Series, zone: &TimeZone) -> String {
    let heading = heading(series);
    let finite = series
        .points
        .iter()
        .filter(|(_, value)| value.as_f64().is_finite());
    let points: Vec<(i64, f64)> = finite
        .map(|(timestamp_ms, value)| (*timestamp_ms, value.as_f64()))
        .collect();
    let (Some((first_ms, _)), Some((last_ms, _))) = (points.first(), points.last()) else {
        return format!("{heading}\n  nothing to draw\n");
    };
    let extend = |(low, high): (f64, f64), (_, value): &(i64, f64)| (low.min(*value), high.max(*value));
    let (low, high) = points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), extend);
    // Halves, because the range of doubles does not fit a double. A flat line lies in the middle.
    let range = high / 2.0 - low / 2.0;
    let height = |value: f64| {
        if range > 0.0 {
            (value / 2.0 - low / 2.0) / range
        } else {
            0.5
        }
    };
    let seconds = |timestamp_ms: i64| (timestamp_ms - first_ms) as f32 / 1000.0;
    let dots: Vec<(f32, f32)> = points
        .iter()
        .map(|(timestamp_ms, value)| (seconds(*timestamp_ms), height(*value) as f32))
        .collect();
    let length = seconds(*last_ms).max(1.0);
    let shape = Shape::Lines(&dots);
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, 0.0, length, 0.0, 1.0);
    let chart = chart.lineplot(&shape);
    chart.axis();
    chart.figures();
    let frame = chart.frame();
    format!(
        "{heading}\n{}\n  {} to {}, values {low} to {high}\n",
        frame.trim_end(),
        time_zone::show(*first_ms, zone),
        time_zone::show(*last_ms, zone)
    )
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::Value;

    use super::*;

    fn series(values: &[f64]) -> Series {
        let points = values
            .iter()
            .zip(0..)
            .map(|(value, i)| (i * 1000, Value::Double(*value)));
        Series {
            metric: "m".to_owned(),
            points: points.collect(),
            ..Series::default()
        }
    }

    #[test]
    fn charts_have_dots_and_their_range() {
        let text = plots(&[series(&[1.0, 5.0, 3.0])], 1, &TimeZone::UTC);
        assert!(text.starts_with("m{}: 3 points\n"), "{text}");
        assert!(
            text.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)),
            "{text}"
        );
        assert!(
            text.ends_with("1970-01-01 00:00:00Z to 1970-01-01 00:00:02Z, values 1 to 5\n"),
            "{text}"
        );
    }

    #[test]
    fn flat_single_empty_and_extreme_series_are_drawn_too() {
        for values in [
            &[][..],
            &[7.0],
            &[7.0, 7.0],
            &[f64::NAN],
            &[f64::MIN, f64::MAX],
            &[0.0, 0.0],
        ] {
            let text = plots(&[series(values)], 1, &TimeZone::UTC);
            assert!(text.starts_with("m{}"), "{text}");
        }
    }

    #[test]
    fn counts_series_that_are_not_drawn() {
        let all = vec![series(&[1.0, 2.0]); 5];
        let text = plots(&all, 2, &TimeZone::UTC);
        assert!(
            text.ends_with("3 more series are not drawn, see --plot-series\n"),
            "{text}"
        );
    }
}
