//! SVG: a canvas that writes text.
//!
//! The document names no ids, scripts, links or fonts of its own, so several can be parts of one HTML page. A clip is a
//! nested `svg` element: a `clipPath` needs an id. Coordinates have one decimal, paths are relative to their last place.

use std::fmt::Write;

use crate::canvas::{Anchor, Canvas, Paint, Stroke, Text};
use crate::font;
use crate::geometry::{Path, Rect};
use crate::size::Size;

const FONTS: &str = "'Noto Sans','Open Sans','Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif";

/// Texts of this number of characters have the width of the layout, in whatever font the viewer has.
const FITTED_CHARS: usize = 10;

/// A document that is being written.
pub(crate) struct SvgCanvas {
    document: String,
}

impl SvgCanvas {
    /// Begins a document. Screen readers read `title`, cleaned by `text::clean`.
    pub(crate) fn new(size: Size, title: &str) -> Self {
        let (width, height) = (size.width(), size.height());
        let mut document = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" font-family="{FONTS}"><title>"#
        );
        push_escaped(&mut document, title);
        document.push_str("</title>\n");
        Self { document }
    }

    pub(crate) fn finish(mut self) -> String {
        self.document.push_str("</svg>\n");
        self.document
    }

    fn push(&mut self, arguments: std::fmt::Arguments<'_>) {
        // A `String` accepts all text.
        let _ = self.document.write_fmt(arguments);
    }

    fn push_fill(&mut self, paint: Paint) {
        self.push(format_args!(r#" fill="{}""#, paint.color));
        if paint.opacity < 1.0 {
            self.push(format_args!(r#" fill-opacity="{:.2}""#, paint.opacity));
        }
    }

    fn push_stroke(&mut self, stroke: Stroke) {
        let Stroke { paint, width, dashes } = stroke;
        self.push(format_args!(
            r#" fill="none" stroke="{}" stroke-width="{}" stroke-linejoin="round""#,
            paint.color,
            decimal(width)
        ));
        if paint.opacity < 1.0 {
            self.push(format_args!(r#" stroke-opacity="{:.2}""#, paint.opacity));
        }
        if !dashes.is_empty() {
            self.document.push_str(r#" stroke-dasharray=""#);
            for (index, length) in dashes.iter().enumerate() {
                let separator = if index == 0 { "" } else { " " };
                self.push(format_args!("{separator}{}", decimal(length * width)));
            }
            self.document.push('"');
        } else {
            self.document.push_str(r#" stroke-linecap="round""#);
        }
    }

    /// Writes the data of a path: relative lines, or closed polygons.
    fn push_path(&mut self, path: &Path, closed: bool) {
        self.document.push_str(" d=\"");
        for run in path.runs() {
            let mut last = (0, 0);
            for (index, spot) in run.iter().enumerate() {
                let (x, y) = (tenths(spot.x), tenths(spot.y));
                if index == 0 {
                    self.document.push('M');
                    push_tenths(&mut self.document, x);
                    self.document.push(' ');
                    push_tenths(&mut self.document, y);
                } else if (x, y) != last || run.len() == 2 {
                    let (dx, dy) = (x - last.0, y - last.1);
                    if dx == 0 {
                        self.document.push('v');
                    } else {
                        self.document.push(if dy == 0 { 'h' } else { 'l' });
                        push_tenths(&mut self.document, dx);
                        if dy > 0 {
                            self.document.push(' ');
                        }
                    }
                    if dx == 0 || dy != 0 {
                        push_tenths(&mut self.document, dy);
                    }
                }
                last = (x, y);
            }
            if closed {
                self.document.push('Z');
            } else if run.len() == 1 {
                self.document.push_str("h0");
            }
        }
        self.document.push('"');
    }
}

impl Canvas for SvgCanvas {
    fn rect(&mut self, rect: Rect, paint: Paint) {
        self.push(format_args!(
            r#"<rect x="{}" y="{}" width="{}" height="{}""#,
            decimal(rect.left),
            decimal(rect.top),
            decimal(rect.width()),
            decimal(rect.height())
        ));
        self.push_fill(paint);
        self.document.push_str("/>\n");
    }

    fn fill(&mut self, path: &Path, paint: Paint) {
        if path.spots().is_empty() {
            return;
        }
        self.document.push_str("<path");
        self.push_fill(paint);
        self.push_path(path, true);
        self.document.push_str("/>\n");
    }

    fn stroke(&mut self, path: &Path, stroke: Stroke) {
        if path.spots().is_empty() {
            return;
        }
        self.document.push_str("<path");
        self.push_stroke(stroke);
        self.push_path(path, false);
        self.document.push_str("/>\n");
    }

    fn dots(&mut self, path: &Path, radius: f64, paint: Paint) {
        // A line without length and with round ends is a dot: shorter than a `circle` for each.
        let dots = path.spots().iter().fold(Path::default(), |mut dots, spot| {
            dots.start();
            dots.push(spot.x, spot.y);
            dots
        });
        self.stroke(
            &dots,
            Stroke {
                paint,
                width: radius * 2.0,
                dashes: &[],
            },
        );
    }

    fn text(&mut self, text: Text<'_>) {
        if text.text.is_empty() {
            return;
        }
        let (x, y) = (decimal(text.at.x), decimal(text.at.y));
        self.push(format_args!(
            r#"<text x="{x}" y="{y}" font-size="{:.2}" fill="{}""#,
            text.size, text.color
        ));
        match text.anchor {
            Anchor::Start => {}
            Anchor::Middle => self.document.push_str(r#" text-anchor="middle""#),
            Anchor::End => self.document.push_str(r#" text-anchor="end""#),
        }
        if text.text.chars().nth(FITTED_CHARS - 1).is_some() {
            let width = decimal(font::width(text.text, text.size));
            self.push(format_args!(
                r#" textLength="{width}" lengthAdjust="spacingAndGlyphs""#
            ));
        }
        if text.upright {
            self.push(format_args!(r#" transform="rotate(-90 {x} {y})""#));
        }
        self.document.push('>');
        push_escaped(&mut self.document, text.text);
        self.document.push_str("</text>\n");
    }

    fn begin_clip(&mut self, clip: Rect) {
        let (x, y) = (decimal(clip.left), decimal(clip.top));
        let (width, height) = (decimal(clip.width()), decimal(clip.height()));
        self.push(format_args!(
            r#"<svg x="{x}" y="{y}" width="{width}" height="{height}" viewBox="{x} {y} {width} {height}" overflow="hidden">"#
        ));
        self.document.push('\n');
    }

    fn end_clip(&mut self) {
        self.document.push_str("</svg>\n");
    }
}

/// Returns tenths of pixels. Coordinates lie within some pictures' widths, so they fit.
fn tenths(value: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
    let tenths = (value * 10.0).round() as i64;
    tenths.clamp(-10_000_000, 10_000_000)
}

fn push_tenths(document: &mut String, tenths: i64) {
    let sign = if tenths < 0 { "-" } else { "" };
    let (whole, tenth) = (tenths.abs() / 10, tenths.abs() % 10);
    let _ = match (whole, tenth) {
        (0, 0) => document.write_str("0"),
        (_, 0) => write!(document, "{sign}{whole}"),
        (0, _) => write!(document, "{sign}.{tenth}"),
        _ => write!(document, "{sign}{whole}.{tenth}"),
    };
}

fn decimal(value: f64) -> String {
    let mut text = String::new();
    push_tenths(&mut text, tenths(value));
    text
}

/// Appends a text for content or attributes. `text::clean` has removed characters that XML does not allow.
fn push_escaped(document: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => document.push_str("&amp;"),
            '<' => document.push_str("&lt;"),
            '>' => document.push_str("&gt;"),
            '"' => document.push_str("&quot;"),
            '\'' => document.push_str("&#39;"),
            _ => document.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(points: &[(f64, f64)], closed: bool) -> String {
        let mut canvas = SvgCanvas {
            document: String::new(),
        };
        let mut path = Path::default();
        points.iter().for_each(|(x, y)| path.push(*x, *y));
        canvas.push_path(&path, closed);
        canvas.document
    }

    #[test]
    fn paths_are_relative_and_short() {
        assert_eq!(
            data(&[(1.0, 2.0), (3.5, 2.0), (3.5, 1.5), (4.5, 2.25)], false),
            r#" d="M1 2h2.5v-.5l1 .8""#
        );
        assert_eq!(
            data(&[(1.0, 2.0), (0.5, 1.0), (2.0, 0.0)], true),
            r#" d="M1 2l-.5-1l1.5-1Z""#
        );
        assert_eq!(data(&[(1.0, 2.0)], false), r#" d="M1 2h0""#);
        assert_eq!(
            data(&[(f64::NAN, f64::INFINITY), (0.0, 0.0)], false),
            r#" d="M0 1000000v-1000000""#
        );
    }

    #[test]
    fn markup_is_escaped() {
        let mut document = String::new();
        push_escaped(&mut document, r#"<a href="x">&'"#);
        assert_eq!(document, "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
    }
}
