//! A small chart in the terminal, drawn with braille dots.

use jiff::tz::TimeZone;
use oxtsdb_client::Annotation;
use textplots::{Chart, Plot as _, Shape};

use super::output::{heading, notes};
use super::result::{QueryOutput, Series};
use crate::time_zone;

/// Dots of a chart: two to a column of the terminal, four to a line.
const WIDTH: u32 = 150;
const HEIGHT: u32 = 48;

/// A chart for each of the first `limit` groups with its annotations, and how many were left out. Global annotations
/// are marked in all charts.
pub(super) fn plots(result: &QueryOutput, limit: usize, zone: &TimeZone) -> String {
    let series = &result.series;
    let mut text = String::new();
    for series in series.iter().take(limit) {
        text += &plot(series, &result.global, zone);
    }
    text += &notes("global annotations", &result.global, zone);
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
fn plot(series: &Series, global: &[Annotation], zone: &TimeZone) -> String {
    let heading = heading(series);
    let finite = series
        .points
        .iter()
        .filter(|(_, value)| value.as_f64().is_finite());
    let points: Vec<(i64, f64)> = finite
        .map(|(timestamp_ms, value)| (*timestamp_ms, value.as_f64()))
        .collect();
    let (Some((first_ms, _)), Some((last_ms, _))) = (points.first(), points.last()) else {
        let notes = notes("annotations", &series.annotations, zone);
        return format!("{heading}\n  nothing to draw\n{notes}");
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
    let marked = series.annotations.iter().chain(global);
    let marks = marks(marked, (*first_ms, *last_ms));
    format!(
        "{heading}\n{}\n{marks}  {} to {}, values {low} to {high}\n{}",
        frame.trim_end(),
        time_zone::show(*first_ms, zone),
        time_zone::show(*last_ms, zone),
        notes("annotations", &series.annotations, zone)
    )
}

/// A line below a chart with a mark in the column of each annotation that begins in its range; empty without any.
fn marks<'a>(annotations: impl Iterator<Item = &'a Annotation>, (first_ms, last_ms): (i64, i64)) -> String {
    let columns = usize::try_from(WIDTH / 2).unwrap_or(1);
    let last_column = i128::try_from(columns - 1).unwrap_or(0);
    let length = i128::from(last_ms - first_ms).max(1000);
    let mut line = vec![' '; columns];
    for annotation in annotations {
        let start_ms = annotation.start.millis();
        if (first_ms..=last_ms).contains(&start_ms) {
            let column = i128::from(start_ms - first_ms) * last_column / length;
            if let Some(place) = usize::try_from(column)
                .ok()
                .and_then(|column| line.get_mut(column))
            {
                *place = '▲';
            }
        }
    }
    let line: String = line.into_iter().collect();
    match line.trim_end() {
        "" => String::new(),
        line => format!("{line}\n"),
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::{Timestamp, Value};

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

    fn output(series: Vec<Series>) -> QueryOutput {
        QueryOutput {
            series,
            global: Vec::new(),
        }
    }

    fn annotation(millis: i64) -> Annotation {
        Annotation {
            tsuid: Vec::new().into(),
            start: Timestamp::from_millis(millis),
            end: None,
            description: format!("at {millis}"),
            notes: String::new(),
            custom: std::collections::BTreeMap::new(),
            etag: String::new(),
        }
    }

    #[test]
    fn annotations_are_marks_below_the_chart() {
        let mut result = output(vec![series(&[1.0, 5.0, 3.0])]);
        result.series[0].annotations = [0, 1000, 5000].map(annotation).into();
        result.global.push(annotation(2000));
        let text = plots(&result, 1, &TimeZone::UTC);
        let line = text.lines().find(|line| line.contains('▲')).unwrap();
        let places: Vec<usize> = line
            .chars()
            .enumerate()
            .filter_map(|(place, char)| (char == '▲').then_some(place))
            .collect();
        assert_eq!(places, [0, 37, 74], "{text}");
        assert!(
            text.contains("annotations:\n  1970-01-01 00:00:00Z\t\tat 0\n"),
            "{text}"
        );
        assert!(
            text.contains("at 5000")
                && text.ends_with("global annotations:\n  1970-01-01 00:00:02Z\t\tat 2000\n"),
            "{text}"
        );
    }

    #[test]
    fn charts_have_dots_and_their_range() {
        let text = plots(&output(vec![series(&[1.0, 5.0, 3.0])]), 1, &TimeZone::UTC);
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
            let text = plots(&output(vec![series(values)]), 1, &TimeZone::UTC);
            assert!(text.starts_with("m{}"), "{text}");
        }
    }

    #[test]
    fn counts_series_that_are_not_drawn() {
        let all = vec![series(&[1.0, 2.0]); 5];
        let text = plots(&output(all), 2, &TimeZone::UTC);
        assert!(
            text.ends_with("3 more series are not drawn, see --plot-series\n"),
            "{text}"
        );
    }
}
