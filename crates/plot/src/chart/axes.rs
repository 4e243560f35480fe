//! Grid, axes, and their labels.

use super::ScaledAxis;
use super::data::Drawn;
use crate::canvas::{Anchor, Canvas, Text};
use crate::color::Color;
use crate::font;
use crate::geometry::{Rect, Spot};
use crate::layout::{Fonts, Layout, Parts, TICK};
use crate::plot::Plot;
use crate::text;
use crate::time_ticks::time_ticks;
use crate::trace_path::Plane;

/// Fills a line of one pixel.
fn horizontal(canvas: &mut dyn Canvas, left: f64, right: f64, y: f64, color: Color) {
    let y = y.floor();
    canvas.rect(Rect::new(left, y, right, y + 1.0), color.into());
}

fn vertical(canvas: &mut dyn Canvas, x: f64, top: f64, bottom: f64, color: Color) {
    let x = x.floor();
    canvas.rect(Rect::new(x, top, x + 1.0, bottom), color.into());
}

/// Draws the four sides of a rectangle, inside of it.
pub(super) fn draw_frame(canvas: &mut dyn Canvas, frame: Rect, color: Color) {
    horizontal(canvas, frame.left, frame.right, frame.top, color);
    horizontal(canvas, frame.left, frame.right, frame.bottom - 1.0, color);
    vertical(canvas, frame.left, frame.top + 1.0, frame.bottom - 1.0, color);
    vertical(
        canvas,
        frame.right - 1.0,
        frame.top + 1.0,
        frame.bottom - 1.0,
        color,
    );
}

/// Draws lines at the ticks, and the labels of the x axis.
pub(super) fn draw_grid(
    plot: &Plot<'_>,
    canvas: &mut dyn Canvas,
    layout: &Layout,
    fonts: &Fonts,
    axes: &[ScaledAxis; 2],
    drawn: &Drawn,
) {
    let area = layout.plot;
    let grid = plot.theme.grid();
    // The lines of one axis: two grids cannot be read.
    if let Some(axis) = axes.iter().find(|axis| axis.used) {
        let plane = Plane {
            plot: area,
            scale: &axis.scale,
        };
        for tick in &axis.ticks {
            let y = plane.y(tick.value).round();
            if (area.top..area.bottom - 1.0).contains(&y) {
                horizontal(canvas, area.left, area.right, y, grid);
            }
        }
    }

    let measure = |label: &str| font::width(label, fonts.small);
    let ticks = time_ticks(drawn.range, &plot.zone, area.width(), measure);
    let picture = f64::from(plot.size.width());
    let mut label = |label: &str, x: f64, base: f64, color: Color| {
        let half = measure(label) / 2.0;
        // Labels at the ends move into the picture.
        let x = x.max(half + 2.0).min(picture - half - 2.0);
        let at = Spot::new(x, base);
        canvas.text(Text {
            anchor: Anchor::Middle,
            ..Text::new(label, at, fonts.small, color)
        });
        (x - half, x + half)
    };
    let gap = measure("0");
    let mut free_from = f64::NEG_INFINITY;
    let mut dates: Vec<(f64, &str)> = Vec::new();
    if layout.shows_times {
        for tick in &ticks {
            let x = area.left + drawn.range.along(tick.timestamp_ms) * area.width();
            if x - measure(&tick.label) / 2.0 >= free_from {
                free_from = label(&tick.label, x, layout.time_base, plot.theme.quiet_text()).1 + gap;
            }
            if let Some(context) = &tick.context {
                // The date of a part of a day gives way to the date of the next day.
                let half = measure(context) / 2.0;
                if let Some((last, text)) = dates.last()
                    && x - half < last + measure(text) / 2.0 + gap
                {
                    if dates.len() > 1 {
                        continue;
                    }
                    dates.pop();
                }
                dates.push((x, context));
            }
        }
        let mut dates_end = area.left;
        for (x, date) in dates {
            dates_end = label(date, x, layout.date_base, plot.theme.quiet_text()).1;
        }
        let offset = || {
            plot.zone
                .to_fixed_offset()
                .map_or_else(|_| String::new(), |offset| offset.to_string())
        };
        let zone = plot.zone.iana_name().map_or_else(offset, text::clean);
        if area.right - measure(&zone) > dates_end + gap * 2.0 {
            label(
                &zone,
                area.right - measure(&zone) / 2.0,
                layout.date_base,
                plot.theme.axis(),
            );
        }
    }
    for tick in &ticks {
        let x = area.left + drawn.range.along(tick.timestamp_ms) * area.width();
        if (area.left + 1.0..area.right).contains(&x.floor()) {
            vertical(canvas, x, area.top, area.bottom, grid);
        }
        vertical(
            canvas,
            x.min(area.right - 1.0),
            area.bottom,
            area.bottom + TICK,
            plot.theme.axis(),
        );
    }
}

/// Draws the lines of the axes, and numbers and labels of the y axes.
pub(super) fn draw_axes(
    plot: &Plot<'_>,
    canvas: &mut dyn Canvas,
    layout: &Layout,
    fonts: &Fonts,
    axes: &[ScaledAxis; 2],
    parts: &Parts,
) {
    let area = layout.plot;
    let line = plot.theme.axis();
    horizontal(canvas, area.left, area.right, area.bottom - 1.0, line);
    for (side, axis) in axes.iter().enumerate().filter(|(_, axis)| axis.used) {
        let is_left = side == 0;
        let x = if is_left { area.left } else { area.right - 1.0 };
        vertical(canvas, x, area.top, area.bottom, line);
        if !layout.shows_numbers {
            continue;
        }
        let plane = Plane {
            plot: area,
            scale: &axis.scale,
        };
        let mut free_below = f64::INFINITY;
        for tick in &axis.ticks {
            let y = plane.y(tick.value);
            if y < area.top - 1.0 || y > area.bottom + 1.0 || y > free_below {
                continue;
            }
            free_below = y - fonts.small * 1.05;
            let mark = y.round().min(area.bottom - 1.0);
            let (from, to) = if is_left {
                (area.left - TICK, area.left)
            } else {
                (area.right, area.right + TICK)
            };
            horizontal(canvas, from, to, mark, line);
            let x = if is_left {
                area.left - TICK - 3.0
            } else {
                area.right + TICK + 3.0
            };
            let at = Spot::new(x, (y + fonts.small * font::CAP_HEIGHT / 2.0).round());
            let anchor = if is_left { Anchor::End } else { Anchor::Start };
            let (size, color) = (fonts.small, plot.theme.quiet_text());
            canvas.text(Text {
                anchor,
                ..Text::new(&tick.label, at, size, color)
            });
        }
        if parts.axes[side].has_label {
            let label = text::cut(&axis.label, fonts.small, area.height());
            let at = Spot::new(layout.label_x[side], area.center().y);
            let (size, color) = (fonts.small, plot.theme.foreground);
            canvas.text(Text {
                anchor: Anchor::Middle,
                upright: true,
                ..Text::new(&label, at, size, color)
            });
        }
    }
}
