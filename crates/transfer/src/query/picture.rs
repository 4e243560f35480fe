//! A picture of all series as a file.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use jiff::tz::TimeZone;
use oxtsdb_plot::{Mark, Plot, Point, Points, Series as Line, Size, TimeRange};

use super::output::tags;
use super::result::{QueryOutput, Series};

/// Most characters of an annotation in a picture.
const MARK_CHARS: usize = 40;

/// The forms of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Png,
    Svg,
}

impl Form {
    /// The form of a file, by its name.
    ///
    /// # Errors
    ///
    /// The name ends otherwise.
    pub(super) fn from_path(path: &Path) -> anyhow::Result<Self> {
        let extension = path.extension().unwrap_or_default();
        match extension.to_ascii_lowercase().to_str() {
            Some("png") => Ok(Self::Png),
            Some("svg") => Ok(Self::Svg),
            _ => bail!("--plot `{}`: a picture is a file .svg or .png", path.display()),
        }
    }
}

/// Writes the picture of a result, from its first to its last point.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write(path: &Path, size: Size, result: &QueryOutput, zone: &TimeZone) -> anyhow::Result<()> {
    let times = result.series.iter().flat_map(|series| &series.points);
    let times = || times.clone().map(|(timestamp_ms, _)| *timestamp_ms);
    let range = TimeRange {
        start_ms: times().min().unwrap_or(0),
        end_ms: times().max().unwrap_or(0),
    };
    let mut plot = Plot::new(size, range);
    plot.series = result.series.iter().map(line).collect();
    plot.zone = zone.clone();
    let of_series = result.series.iter().flat_map(|series| &series.annotations);
    let annotations = of_series.chain(&result.global);
    plot.marks = annotations
        .map(|annotation| Mark {
            timestamp_ms: annotation.start.millis(),
            text: annotation.description.chars().take(MARK_CHARS).collect(),
        })
        .collect();
    let picture = match Form::from_path(path)? {
        Form::Png => plot.png(),
        Form::Svg => plot.svg().into_bytes(),
    };
    fs::write(path, picture).with_context(|| format!("--plot `{}`", path.display()))
}

fn line(series: &Series) -> Line<'static> {
    let points: Vec<Point> = series
        .points
        .iter()
        .map(|(timestamp_ms, value)| Point {
            timestamp_ms: *timestamp_ms,
            value: value.as_f64(),
        })
        .collect();
    Line::new(
        format!("{}{{{}}}", series.metric, tags(series, ", ")),
        Points::Values(points.into()),
    )
}
