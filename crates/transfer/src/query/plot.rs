//! A small chart in the terminal, drawn with braille dots.

use jiff::tz::TimeZone;
use oxtsdb_client::Annotation;
use oxtsdb_command::time_zone;
use textplots::{Chart, Plot as _, Shape};

use super::output::{heading, notes};
use super::result::{QueryOutput, Series};

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
    // A single instant lies in the middle, too.
    let axis = match (*first_ms, *last_ms) {
        (first_ms, last_ms) if first_ms < last_ms => (first_ms, last_ms),
        (only_ms, _) => (only_ms.saturating_sub(500), only_ms.saturating_add(500)),
    };
    let seconds = |timestamp_ms: i64| (timestamp_ms - axis.0) as f32 / 1000.0;
    let length = seconds(axis.1);
    let dots: Vec<(f32, f32)> = points
        .iter()
        .map(|(timestamp_ms, value)| (seconds(*timestamp_ms), height(*value) as f32))
        .collect();
    // A line needs two points; a cross is seen better than a dot.
    let (dot_width, dot_height) = (length / WIDTH as f32, 1.0 / HEIGHT as f32);
    let cross = dots.iter().flat_map(|(x, y)| {
        let offsets = [(0.0, 0.0), (-1.0, 0.0), (1.0, 0.0), (0.0, -1.0), (0.0, 1.0)];
        offsets.map(|(across, up)| (x + across * dot_width, y + up * dot_height))
    });
    let cross: Vec<(f32, f32)> = cross.collect();
    let shape = match dots.as_slice() {
        [_] => Shape::Points(&cross),
        dots => Shape::Lines(dots),
    };
    let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, 0.0, length, 0.0, 1.0);
    let chart = chart.lineplot(&shape);
    chart.axis();
    chart.figures();
    let frame = chart.frame();
    let labels = if range > 0.0 {
        Labels {
            top: Some(high),
            middle: None,
            bottom: Some(low),
        }
    } else {
        Labels {
            top: None,
            middle: Some(low),
            bottom: None,
        }
    };
    let marked = series.annotations.iter().chain(global);
    let below = format!("{}\n{}", marks(marked, axis), times((*first_ms, *last_ms), zone));
    format!(
        "{heading}\n{}  {} to {}, values {low} to {high}\n{}",
        labels.beside(&frame, &below),
        time_zone::show(*first_ms, zone),
        time_zone::show(*last_ms, zone),
        notes("annotations", &series.annotations, zone)
    )
}

/// Values beside the lines of a chart.
struct Labels {
    top: Option<f64>,
    middle: Option<f64>,
    bottom: Option<f64>,
}

impl Labels {
    /// The lines of a chart with the values to their left, and the lines below it.
    fn beside(&self, chart: &str, below: &str) -> String {
        let chart: Vec<&str> = chart.trim_end().lines().collect();
        let label = |line: usize| {
            let value = match line {
                0 => self.top,
                _ if line + 1 == chart.len() => self.bottom,
                _ if line == chart.len() / 2 => self.middle,
                _ => None,
            };
            value.map(|value| value.to_string()).unwrap_or_default()
        };
        let labels: Vec<String> = (0..chart.len()).map(label).collect();
        let width = labels
            .iter()
            .map(|label| label.chars().count())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (label, line) in labels.iter().zip(&chart) {
            text += &format!("{label:>width$} {line}\n");
        }
        for line in below.lines().filter(|line| !line.trim().is_empty()) {
            text += &format!("{:>width$} {line}\n", "");
        }
        text
    }
}

/// A line with the first and the last instant at the ends of a chart, or the only one in its middle.
fn times((first_ms, last_ms): (i64, i64), zone: &TimeZone) -> String {
    let columns = usize::try_from(WIDTH / 2).unwrap_or(1);
    let (first, last) = (time_zone::show(first_ms, zone), time_zone::show(last_ms, zone));
    if first_ms == last_ms {
        return format!("{first:^columns$}").trim_end().to_owned();
    }
    let rest = columns.saturating_sub(first.chars().count() + 1);
    format!("{first} {last:>rest$}")
}

/// A line below a chart with a mark in the column of each annotation that begins in its range; empty without any.
fn marks<'a>(annotations: impl Iterator<Item = &'a Annotation>, (first_ms, last_ms): (i64, i64)) -> String {
    let columns = usize::try_from(WIDTH / 2).unwrap_or(1);
    let last_column = i128::try_from(columns - 1).unwrap_or(0);
    let length = i128::from(last_ms - first_ms).max(1);
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
    line.trim_end().to_owned()
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
        // Behind the labels of values.
        assert_eq!(places, [2, 39, 76], "{text}");
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
    fn axes_have_labels() {
        let text = plots(&output(vec![series(&[1.0, 15.5, 3.0])]), 1, &TimeZone::UTC);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].starts_with("15.5 ") && lines[13].starts_with("   1 "),
            "{text}"
        );
        assert!(lines[2].starts_with("     "), "{text}");
        let expected = format!("     1970-01-01 00:00:00Z{:>55}", "1970-01-01 00:00:02Z");
        assert_eq!(lines[14], expected, "{text}");
        let flat = plots(&output(vec![series(&[7.0, 7.0])]), 1, &TimeZone::UTC);
        assert!(flat.lines().nth(7).unwrap().starts_with("7 "), "{flat}");
    }

    #[test]
    fn a_single_point_is_drawn_in_the_middle() {
        let text = plots(&output(vec![series(&[7.0])]), 1, &TimeZone::UTC);
        let empty = {
            let mut chart = Chart::new_with_y_range(WIDTH, HEIGHT, 0.0, 1.0, 0.0, 1.0);
            chart.axis();
            chart.frame()
        };
        let lines: Vec<&str> = text.lines().skip(1).take(12).collect();
        let drawn = lines
            .iter()
            .zip(empty.lines())
            .filter(|(line, empty)| line[2..].trim_end() != empty.trim_end());
        let drawn: Vec<&str> = drawn.map(|(line, _)| *line).collect();
        assert!(matches!(drawn[..], [_] | [_, _]), "{text}");
        let is_dots = |c: &char| ('\u{2801}'..='\u{28ff}').contains(c);
        let columns = drawn[0].chars().enumerate().skip(20).filter(|(_, c)| is_dots(c));
        let columns: Vec<usize> = columns.map(|(column, _)| column).collect();
        assert!(
            columns.iter().any(|column| (38..=41).contains(column)),
            "{columns:?} {text}"
        );
        assert!(
            text.contains("\n                             1970-01-01 00:00:00Z\n"),
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
