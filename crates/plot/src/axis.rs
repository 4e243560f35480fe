//! Axes, as callers describe them: the time range, and the settings of a y axis.

use crate::format::NumberFormat;

/// The time range of a plot in milliseconds since the epoch.
///
/// A range that is empty or reversed has a length of 1 ms; ends before the year -9999 or after 9999 are moved there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The instant at the left side.
    pub start_ms: i64,
    /// The instant at the right side.
    pub end_ms: i64,
}

/// A side of the plot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisSide {
    /// OpenTSDB's `axis x1y1`, the default.
    #[default]
    Left,
    /// OpenTSDB's `axis x1y2`.
    Right,
}

/// The settings of a y axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The text beside the axis; empty for none.
    pub label: String,
    /// The arrangement of values.
    pub scale: ValueScale,
    /// The value at the bottom; `None` for the smallest value that is drawn.
    pub lower: Option<f64>,
    /// The value at the top; `None` for the largest value that is drawn.
    pub upper: Option<f64>,
    /// The format of numbers; `None` for short ones: `1.5M`.
    pub format: Option<NumberFormat>,
}

/// The arrangement of values along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueScale {
    /// Equal differences have equal distances.
    #[default]
    Linear,
    /// Equal ratios have equal distances. Values of 0 or less are not drawn, and are gaps.
    Logarithmic,
}
