//! The operations that a drawing consists of. SVG and pixels implement them.

use crate::color::Color;
use crate::geometry::{Path, Rect, Spot};

/// A colour and its opacity, 0.0 to 1.0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint {
    pub(crate) color: Color,
    pub(crate) opacity: f64,
}

impl From<Color> for Paint {
    fn from(color: Color) -> Self {
        Self { color, opacity: 1.0 }
    }
}

/// The look of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stroke {
    pub(crate) paint: Paint,
    /// In pixels.
    pub(crate) width: f64,
    /// Dashes and spaces in line widths; empty for a solid line.
    pub(crate) dashes: &'static [f64],
}

/// The part of a text that lies at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A line of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    /// Cleaned by `text::clean`.
    pub(crate) text: &'a str,
    /// On the base line.
    pub(crate) at: Spot,
    /// The font size in pixels.
    pub(crate) size: f64,
    pub(crate) anchor: Anchor,
    pub(crate) color: Color,
    /// Reads from bottom to top.
    pub(crate) upright: bool,
}

impl<'a> Text<'a> {
    /// Returns a text that starts at a place and reads from left to right.
    pub(crate) fn new(text: &'a str, at: Spot, size: f64, color: Color) -> Self {
        Self {
            text,
            at,
            size,
            anchor: Anchor::Start,
            color,
            upright: false,
        }
    }
}

/// A surface to draw on. Later shapes cover earlier ones.
pub(crate) trait Canvas {
    /// Fills a rectangle. Whole coordinates have sharp edges.
    fn rect(&mut self, rect: Rect, paint: Paint);

    /// Fills the runs of a path as polygons.
    fn fill(&mut self, path: &Path, paint: Paint);

    /// Draws the runs of a path as lines. A run of one place is a dot.
    fn stroke(&mut self, path: &Path, stroke: Stroke);

    /// Fills a circle around each place of a path.
    fn dots(&mut self, path: &Path, radius: f64, paint: Paint);

    /// Draws a text.
    fn text(&mut self, text: Text<'_>);

    /// Restricts what follows to a rectangle of whole coordinates, until `end_clip`. Clips do not nest.
    fn begin_clip(&mut self, clip: Rect);

    /// Ends the restriction.
    fn end_clip(&mut self);
}
