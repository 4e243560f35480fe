//! Series and their points, as callers pass them.

use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

use crate::axis::AxisSide;
use crate::color::Color;

/// A value at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// Values that are not finite are not drawn: they are gaps.
    pub value: f64,
}

/// The count of values within two bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
    /// Counts of 0 or less are not drawn.
    pub count: f64,
}

/// A histogram at an instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Milliseconds since the epoch.
    pub timestamp_ms: i64,
    /// In any order.
    pub buckets: Vec<Bucket>,
}

/// Points in a form of the caller, which need not be copied to be drawn.
pub trait PointSource {
    /// Calls `visit` with the timestamp in milliseconds and the value of each point, ascending by time, until `visit`
    /// breaks. Called several times for one picture, and must emit the same points each time.
    fn visit(&self, visit: &mut dyn FnMut(i64, f64) -> ControlFlow<()>);
}

impl PointSource for [Point] {
    fn visit(&self, visit: &mut dyn FnMut(i64, f64) -> ControlFlow<()>) {
        for point in self {
            if visit(point.timestamp_ms, point.value).is_break() {
                return;
            }
        }
    }
}

/// The points of a series, ascending by time. A point that is earlier than the one before it is not drawn.
#[derive(Clone)]
pub enum Points<'a> {
    /// Values, borrowed or owned.
    Values(Cow<'a, [Point]>),
    /// Values in a form of the caller.
    Source(&'a dyn PointSource),
    /// Histograms: drawn as a heat map, whatever the style of the series.
    Histograms(Cow<'a, [Histogram]>),
}

impl Points<'_> {
    /// Emits the values; none of histograms.
    pub(crate) fn visit(&self, visit: &mut dyn FnMut(i64, f64) -> ControlFlow<()>) {
        match self {
            Self::Values(points) => points.visit(visit),
            Self::Source(source) => source.visit(visit),
            Self::Histograms(_) => {}
        }
    }
}

impl fmt::Debug for Points<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(points) => f.debug_tuple("Values").field(points).finish(),
            Self::Source(_) => f.write_str("Source(..)"),
            Self::Histograms(histograms) => f.debug_tuple("Histograms").field(histograms).finish(),
        }
    }
}

impl From<Vec<Point>> for Points<'_> {
    fn from(points: Vec<Point>) -> Self {
        Self::Values(points.into())
    }
}

impl<'a> From<&'a [Point]> for Points<'a> {
    fn from(points: &'a [Point]) -> Self {
        Self::Values(points.into())
    }
}

impl From<Vec<Histogram>> for Points<'_> {
    fn from(histograms: Vec<Histogram>) -> Self {
        Self::Histograms(histograms.into())
    }
}

/// The look of a series of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Straight lines between the points.
    #[default]
    Line,
    /// Lines, and a dot at each point. Dots are left out where they would touch.
    LineAndPoints,
    /// Dots.
    Points,
    /// A value lasts until the next point.
    Steps,
    /// Areas, each on top of the one before it on the same axis.
    StackedArea,
}

/// Where the line of a series breaks. Stacked areas count a gap as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gaps {
    /// Nowhere: lines cross values that are not finite.
    Connect,
    /// At values that are not finite.
    #[default]
    NotFinite,
    /// At values that are not finite, and between points that are further apart than this number of milliseconds.
    LongerThanMs(i64),
}

/// A series of a plot.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The name in the legend. A series with an empty label has no entry.
    pub label: String,
    /// The y axis of its values.
    pub axis: AxisSide,
    /// The look of its values.
    pub style: Style,
    /// Where its line breaks.
    pub gaps: Gaps,
    /// `None` for the next colour of the theme, which people with colour blindness can tell apart.
    pub color: Option<Color>,
    /// Its values or histograms.
    pub points: Points<'a>,
}

impl<'a> Series<'a> {
    /// Returns a series on the left axis with the defaults of the other fields.
    pub fn new(label: impl Into<String>, points: impl Into<Points<'a>>) -> Self {
        Self {
            label: label.into(),
            axis: AxisSide::Left,
            style: Style::default(),
            gaps: Gaps::default(),
            color: None,
            points: points.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis::TimeRange;
    use crate::plot::Plot;
    use crate::size::Size;

    struct Squares;

    impl PointSource for Squares {
        fn visit(&self, visit: &mut dyn FnMut(i64, f64) -> ControlFlow<()>) {
            for time in 0..100 {
                if visit(time, (time * time) as f64).is_break() {
                    return;
                }
            }
        }
    }

    #[test]
    fn a_source_draws_as_its_points_do() {
        let points: Vec<Point> = (0..100)
            .map(|time| Point {
                timestamp_ms: time,
                value: (time * time) as f64,
            })
            .collect();
        let svg = |points: Points<'_>| {
            let mut plot = Plot::new(
                Size::new(300, 200).unwrap(),
                TimeRange {
                    start_ms: 10,
                    end_ms: 80,
                },
            );
            plot.series = vec![Series {
                points,
                ..Series::new("squares", Vec::new() as Vec<Point>)
            }];
            plot.svg()
        };
        assert_eq!(svg(Points::Source(&Squares)), svg(points.as_slice().into()));
    }
}
