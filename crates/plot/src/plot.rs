//! A plot, as callers describe it.

use jiff::tz::TimeZone;

use crate::chart;
use crate::color::Theme;
use crate::format::NumberFormat;
use crate::png;
use crate::raster::RasterCanvas;
use crate::reduce;
use crate::series::Series;
use crate::size::Size;
use crate::svg::SvgCanvas;
use crate::text;

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

    /// Returns the picture as an SVG document: valid XML without scripts and references, for a file or an HTML page.
    pub fn svg(&self) -> String {
        let title = text::clean(&self.title);
        let spoken = if title.is_empty() {
            chart::spoken_title(self)
        } else {
            title
        };
        let mut canvas = SvgCanvas::new(self.size, &spoken);
        chart::draw(self, &mut canvas);
        canvas.finish()
    }

    /// Returns the picture as a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut canvas = RasterCanvas::new(self.size, self.theme.background);
        chart::draw(self, &mut canvas);
        png::encode(&canvas.finish())
    }

    /// Returns an upper estimate of the memory in bytes that `svg` or `png` allocates at a time, with the result, for a
    /// plot of `series` series of values. Heat maps and marks take less than the histograms and texts themselves.
    pub fn memory_bytes(size: Size, series: usize) -> u64 {
        // The pixels, and those within the plot a second time, or the file while it grows.
        let png = size.pixels() * (4 + 6);
        let points = reduce::max_points(size, series);
        // A reduced point and its place; up to 14 bytes of SVG, twice while it grows.
        let reduced = points * (16 + 28);
        // Outlines and edges of one line's dashes.
        let stroke = u64::from(size.width()) * 4096;
        // Labels are cut. The compressor has 350 KiB.
        let texts = series as u64 * 2048;
        png + reduced + stroke + texts + 512 * 1024
    }
}

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
