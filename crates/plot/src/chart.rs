//! A plot on a canvas: reduces the series, scales the axes, places the parts, and draws them from back to front.

mod axes;
mod data;
mod marks;

use self::data::{AxisData, Drawn};
use crate::canvas::{Anchor, Canvas, Text};
use crate::font;
use crate::format::short;
use crate::geometry::{Rect, Spot};
use crate::layout::{AxisSpace, Fonts, Layout, Parts, TICK, time_labels_height};
use crate::legend::{Entry, LegendBlock, Sample};
use crate::plot::{LegendPlace, Plot, Position};
use crate::scale::Scale;
use crate::series::{Points, Style};
use crate::text;
use crate::value_ticks::{ValueTick, value_ticks};

/// A y axis with its ticks.
struct ScaledAxis {
    scale: Scale,
    ticks: Vec<ValueTick>,
    used: bool,
    label: String,
}

/// The title for screen readers of a plot that has none.
pub(crate) fn spoken_title(plot: &Plot<'_>) -> String {
    match plot.series.as_slice() {
        [] => "plot without series".to_owned(),
        [only] => format!("plot of {}", text::clean(&only.label)),
        series => format!("plot of {} series", series.len()),
    }
}

/// Draws a plot.
pub(crate) fn draw(plot: &Plot<'_>, canvas: &mut dyn Canvas) {
    let fonts = Fonts::new(plot.size);
    let (width, height) = (f64::from(plot.size.width()), f64::from(plot.size.height()));
    let drawn = Drawn::new(plot);
    canvas.rect(Rect::new(0.0, 0.0, width, height), plot.theme.background.into());

    let axes = scaled_axes(plot, &drawn, &fonts);
    let widest = |axis: &ScaledAxis| {
        let widths = axis
            .ticks
            .iter()
            .map(|tick| font::width(&tick.label, fonts.small));
        widths.fold(0.0, f64::max).min(width * 0.3).ceil()
    };
    let mut parts = Parts {
        has_title: !plot.title.trim().is_empty() && height >= 100.0,
        ..Parts::default()
    };
    parts.axes = [0, 1].map(|side| AxisSpace {
        numbers: widest(&axes[side]),
        has_label: axes[side].used && !axes[side].label.is_empty() && width >= 160.0,
        used: axes[side].used,
    });
    let legend = outside_legend(plot, &drawn, &fonts, &mut parts);
    let layout = Layout::new(plot.size, &fonts, &parts);
    let area = layout.plot;

    if parts.has_title {
        let title = text::cut(&text::clean(&plot.title), fonts.title, width - 2.0 * fonts.small);
        let at = Spot::new(width / 2.0, layout.title_base);
        let (size, color) = (fonts.title, plot.theme.foreground);
        canvas.text(Text {
            anchor: Anchor::Middle,
            ..Text::new(&title, at, size, color)
        });
    }
    axes::draw_grid(plot, canvas, &layout, &fonts, &axes, &drawn);
    // A line at the side of the plot is drawn in full width.
    canvas.begin_clip(area.grown(1.0));
    drawn.draw(plot, canvas, area, &axes, &fonts);
    marks::draw_lines(plot, canvas, area, &drawn);
    canvas.end_clip();
    axes::draw_axes(plot, canvas, &layout, &fonts, &axes, &parts);
    marks::draw_texts(plot, canvas, area, &drawn, &fonts);

    match (legend, plot.legend.place) {
        (Some(block), LegendPlace::Right) => {
            draw_legend(
                plot,
                canvas,
                &block,
                Spot::new((layout.legend_right - block.width).round(), area.top),
                None,
            );
        }
        (Some(block), LegendPlace::Top) => {
            let left = centered(area, block.width, width);
            draw_legend(plot, canvas, &block, Spot::new(left, layout.legend_top), None);
        }
        (Some(block), LegendPlace::Bottom) => {
            let left = centered(area, block.width, width);
            draw_legend(plot, canvas, &block, Spot::new(left, layout.legend_bottom), None);
        }
        _ => {}
    }
    if let LegendPlace::Inside(position) = plot.legend.place {
        let space = (area.width() * 0.7, area.height() * 0.7);
        if let Some(block) = LegendBlock::fit(entries(plot, &drawn, &fonts), fonts.small, space, false) {
            let corner = inside(area, position, (block.width, block.height));
            draw_legend(plot, canvas, &block, corner, Some(0.88));
        }
    }
    if drawn.is_empty() {
        let at = Spot::new(
            area.center().x,
            area.center().y + fonts.title * font::CAP_HEIGHT / 2.0,
        );
        let (size, color) = (fonts.title, plot.theme.axis());
        canvas.text(Text {
            anchor: Anchor::Middle,
            ..Text::new("no data", at, size, color)
        });
    }
}

fn scaled_axes(plot: &Plot<'_>, drawn: &Drawn, fonts: &Fonts) -> [ScaledAxis; 2] {
    // The height of the plot without legend, about: the number of ticks must not depend on the widths that they have.
    let title = if plot.title.is_empty() {
        0.0
    } else {
        fonts.title * 1.6
    };
    let height = f64::from(plot.size.height()) - time_labels_height(fonts) - title - fonts.small;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some hundreds"
    )]
    let max_ticks = (height / (fonts.small * 3.2)).max(2.0) as usize + 1;
    let AxisData { extents, used } = &drawn.axes;
    [0, 1].map(|side| {
        let settings = &plot.axes[side];
        let mut scale = Scale::new(settings, extents[side]);
        let mut ticks = value_ticks(&mut scale, max_ticks.min(12), settings.format.as_ref());
        let width = f64::from(plot.size.width()) * 0.3;
        for tick in &mut ticks {
            tick.label = text::cut(&text::clean(&tick.label), fonts.small, width);
        }
        ScaledAxis {
            scale,
            ticks,
            used: used[side],
            label: text::clean(&settings.label),
        }
    })
}

/// Fits a legend outside of the plot, and reserves its space.
fn outside_legend(plot: &Plot<'_>, drawn: &Drawn, fonts: &Fonts, parts: &mut Parts) -> Option<LegendBlock> {
    let (width, height) = (f64::from(plot.size.width()), f64::from(plot.size.height()));
    let gap = fonts.small * 0.5;
    let space = match plot.legend.place {
        LegendPlace::Hidden | LegendPlace::Inside(_) => return None,
        LegendPlace::Right => (
            width * 0.36,
            height - 2.0 * fonts.title - time_labels_height(fonts),
        ),
        LegendPlace::Top | LegendPlace::Bottom => (width - fonts.small * 2.0, height * 0.3),
    };
    let rows = plot.legend.place != LegendPlace::Right;
    let block = LegendBlock::fit(entries(plot, drawn, fonts), fonts.small, space, rows)?;
    match plot.legend.place {
        LegendPlace::Right => parts.legend_right = block.width + gap,
        LegendPlace::Top => parts.legend_top = block.height + gap,
        _ => parts.legend_bottom = block.height + gap * 0.5,
    }
    Some(block)
}

fn entries(plot: &Plot<'_>, drawn: &Drawn, fonts: &Fonts) -> Vec<Entry> {
    let line_width = fonts.line_width(plot.series.len());
    let named = plot
        .series
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.label.trim().is_empty());
    let entry = |(index, series): (usize, &crate::series::Series<'_>)| {
        let (color, dashes) = data::look(plot, index);
        let sample = match (&series.points, series.style) {
            (Points::Histograms(_), _) => Sample::Heat,
            (_, Style::Line | Style::Steps) => Sample::Line { dots: false },
            (_, Style::LineAndPoints) => Sample::Line { dots: true },
            (_, Style::Points) => Sample::Dots,
            (_, Style::StackedArea) => Sample::Area,
        };
        let label = match drawn.largest_count(index) {
            Some(count) => format!("{} (max {})", series.label, short(count, count / 100.0, count)),
            None => series.label.clone(),
        };
        Entry {
            label: text::clean(&label),
            sample,
            color,
            dashes,
            line_width,
        }
    };
    named.map(entry).collect()
}

/// Returns the left side of a block in the middle of the plot, moved into the picture.
fn centered(area: Rect, block: f64, width: f64) -> f64 {
    (area.center().x - block / 2.0)
        .min(width - block)
        .max(0.0)
        .round()
}

/// Returns the top left corner of a block in the plot.
fn inside(area: Rect, position: Position, (width, height): (f64, f64)) -> Spot {
    use Position::{Bottom, BottomLeft, BottomRight, Center, Left, Right, Top, TopLeft, TopRight};
    let x = match position {
        TopLeft | Left | BottomLeft => area.left + TICK * 2.0,
        Top | Center | Bottom => area.center().x - width / 2.0,
        TopRight | Right | BottomRight => area.right - TICK * 2.0 - width,
    };
    let y = match position {
        TopLeft | Top | TopRight => area.top + TICK * 2.0,
        Left | Center | Right => area.center().y - height / 2.0,
        BottomLeft | Bottom | BottomRight => area.bottom - TICK * 2.0 - height,
    };
    Spot::new(x.round(), y.round())
}

fn draw_legend(
    plot: &Plot<'_>,
    canvas: &mut dyn Canvas,
    block: &LegendBlock,
    corner: Spot,
    cover: Option<f64>,
) {
    let frame = Rect::new(
        corner.x,
        corner.y,
        (corner.x + block.width).round(),
        (corner.y + block.height).round(),
    );
    if let Some(opacity) = cover {
        let color = plot.theme.background;
        canvas.rect(frame, crate::canvas::Paint { color, opacity });
    }
    if plot.legend.boxed {
        axes::draw_frame(canvas, frame, plot.theme.axis());
    }
    block.draw(canvas, corner, &plot.theme);
}
