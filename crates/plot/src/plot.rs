//! A plot, as callers describe it.

use jiff::tz::TimeZone;

use crate::axis::{Axis, TimeRange};
use crate::color::Theme;
use crate::series::Series;
use crate::size::Size;

/// A picture of series over time.
///
/// Series and texts are drawn as they are: the caller limits their number. Long texts are cut to their space.
#[derive(Clone, Debug)]
pub struct Plot<'a> {
    /// The size of the picture.
    pub size: Size,
    /// Above the plot; empty for none.
    pub title: String,
    /// Later series are drawn above earlier ones. Heat maps are drawn first, then stacked areas, then the others.
    pub series: Vec<Series<'a>>,
    /// The settings of the left and the right y axis. An axis is drawn if a series uses it.
    pub axes: [Axis; 2],
    /// Where the names of the series are.
    pub legend: Legend,
    /// The time range of the x axis.
    pub range: TimeRange,
    /// The time zone of the labels of the x axis.
    pub zone: TimeZone,
    /// Background and foreground.
    pub theme: Theme,
    /// Instants to mark, for example annotations.
    pub marks: Vec<Mark>,
}

impl<'a> Plot<'a> {
    /// Returns a plot without title, series and marks, in UTC, with the light theme and a legend inside at the top right.
    pub fn new(size: Size, range: TimeRange) -> Self {
        Self {
            size,
            title: String::new(),
            series: Vec::new(),
            axes: [Axis::default(), Axis::default()],
            legend: Legend::default(),
            range,
            zone: TimeZone::UTC,
            theme: Theme::default(),
            marks: Vec::new(),
        }
    }
}

/// The place and the look of the legend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Legend {
    /// The place.
    pub place: LegendPlace,
    /// Whether a frame is drawn around it.
    pub boxed: bool,
}

/// The place of the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegendPlace {
    /// No legend.
    Hidden,
    /// Above the lines.
    Inside(Position),
    /// A column right of the plot.
    Right,
    /// Rows between the title and the plot.
    Top,
    /// Rows below the plot.
    Bottom,
}

impl Default for LegendPlace {
    fn default() -> Self {
        Self::Inside(Position::TopRight)
    }
}

/// A position within the plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Position {
    TopLeft,
    Top,
    TopRight,
    Left,
    Center,
    Right,
    BottomLeft,
    Bottom,
    BottomRight,
}

/// A marked instant: a vertical line with a text at its top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Milliseconds since the epoch. A mark outside of the plot's range is not drawn.
    pub timestamp_ms: i64,
    /// A number or a few words. It is left out where texts of other marks leave no space.
    pub text: String,
}
