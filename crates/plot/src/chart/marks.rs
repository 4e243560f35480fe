//! Marks: dashed lines at instants, with texts at their tops.

use super::data::Drawn;
use crate::canvas::{Canvas, Paint, Stroke, Text};
use crate::font;
use crate::geometry::{Path, Rect, Spot};
use crate::layout::Fonts;
use crate::plot::Plot;
use crate::text;

/// Texts are on this number of lines; those without space are left out.
const LINES: usize = 3;

/// Returns the x coordinates and texts of the marks in the range, from left to right.
fn places<'a>(plot: &'a Plot<'_>, area: Rect, drawn: &Drawn) -> Vec<(f64, &'a str)> {
    let mut places: Vec<(f64, &str)> = plot
        .marks
        .iter()
        .map(|mark| (drawn.range.along(mark.timestamp_ms), mark.text.as_str()))
        .filter(|(along, _)| (0.0..=1.0).contains(along))
        .map(|(along, text)| (area.left + along * area.width(), text))
        .collect();
    places.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    places
}

pub(super) fn draw_lines(plot: &Plot<'_>, canvas: &mut dyn Canvas, area: Rect, drawn: &Drawn) {
    let mut lines = Path::default();
    let mut last = f64::NEG_INFINITY;
    for (x, _) in places(plot, area, drawn) {
        // Marks in one pixel are one line.
        let x = x.floor() + 0.5;
        if x > last {
            lines.start();
            lines.push(x, area.bottom);
            lines.push(x, area.top);
        }
        last = x;
    }
    canvas.stroke(
        &lines,
        Stroke {
            paint: plot.theme.axis().into(),
            width: 1.0,
            dashes: &[4.0, 3.0],
        },
    );
}

pub(super) fn draw_texts(plot: &Plot<'_>, canvas: &mut dyn Canvas, area: Rect, drawn: &Drawn, fonts: &Fonts) {
    let size = fonts.small;
    let line_height = fonts.line() + 2.0;
    let mut ends = [f64::NEG_INFINITY; LINES];
    for (x, label) in places(plot, area, drawn) {
        // The first line with space: earlier texts end left of it.
        let Some(line) = ends.iter().position(|end| *end <= x - 2.0) else {
            continue;
        };
        let label = text::cut(&text::clean(label), size, (area.width() * 0.3).min(size * 16.0));
        let width = font::width(&label, size) + 8.0;
        let top = area.top + 2.0 + line as f64 * line_height;
        if label.is_empty() || width > area.width() || top + line_height > area.bottom {
            continue;
        }
        // To the right of the line, or to its left at the end of the plot.
        let fits = x + width <= area.right;
        let left = if fits {
            x.floor() + 1.0
        } else {
            (x.floor() - width).ceil()
        };
        if left < ends[line] {
            continue;
        }
        ends[line] = left + width + 2.0;
        let frame = Rect::new(left, top, (left + width).round(), top + line_height);
        canvas.rect(
            frame,
            Paint {
                color: plot.theme.background,
                opacity: 0.82,
            },
        );
        let base = (top + (line_height + size * font::CAP_HEIGHT) / 2.0).round();
        let color = plot.theme.quiet_text();
        let at = Spot::new(left + 4.0, base);
        canvas.text(Text::new(&label, at, size, color));
    }
}
