//! Sizes of fonts, and the places of title, axes, legend and plot in the picture.

use crate::font;
use crate::geometry::Rect;
use crate::size::Size;

/// Font sizes in pixels. They grow slower than the picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fonts {
    pub(crate) small: f64,
    pub(crate) title: f64,
}

impl Fonts {
    pub(crate) fn new(size: Size) -> Self {
        let side = (size.pixels() as f64).sqrt();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "5 to 11")]
        let x_height = ((9.9 + 0.0027 * side) * 0.536).round().clamp(5.0, 11.0) as u32;
        Self {
            small: font::size_from_x_height(x_height),
            title: font::size_from_x_height(x_height + if side < 400.0 { 1 } else { 2 }),
        }
    }

    /// The height of a line of labels.
    pub(crate) fn line(&self) -> f64 {
        (self.small * 1.3).round()
    }

    /// The width of a series' line.
    pub(crate) fn line_width(&self, series: usize) -> f64 {
        let base = self.small / 11.2 * 1.5;
        match series {
            0..=20 => base,
            21..=200 => (base * 0.67).max(1.05),
            // Lines of up to 1 pixel are drawn in a third of the time, and paler.
            _ => 1.0,
        }
    }
}

/// The widths of a y axis' parts; 0 for parts that it does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AxisSpace {
    /// The widest number.
    pub(crate) numbers: f64,
    pub(crate) has_label: bool,
    pub(crate) used: bool,
}

/// The sizes of the parts around the plot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) has_title: bool,
    pub(crate) axes: [AxisSpace; 2],
    /// Width and height of the legend, by side.
    pub(crate) legend_right: f64,
    pub(crate) legend_top: f64,
    pub(crate) legend_bottom: f64,
}

/// The places of the parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) plot: Rect,
    /// The base line of the title.
    pub(crate) title_base: f64,
    pub(crate) legend_top: f64,
    /// Base lines of the two lines of labels below the x axis.
    pub(crate) time_base: f64,
    pub(crate) date_base: f64,
    pub(crate) legend_bottom: f64,
    /// The right side of a legend beside the plot.
    pub(crate) legend_right: f64,
    /// The middle of the labels of the y axes.
    pub(crate) label_x: [f64; 2],
    pub(crate) shows_numbers: bool,
    pub(crate) shows_times: bool,
}

/// Pixels between a tick's line and its label, and the length of the line.
pub(crate) const TICK: f64 = 4.0;

/// Returns the height that the x axis' labels take.
pub(crate) fn time_labels_height(fonts: &Fonts) -> f64 {
    TICK + 3.0 + 2.0 * fonts.line()
}

impl Layout {
    pub(crate) fn new(size: Size, fonts: &Fonts, parts: &Parts) -> Self {
        let (width, height) = (f64::from(size.width()), f64::from(size.height()));
        let margin = if width.min(height) < 300.0 {
            6.0
        } else {
            (fonts.small * 0.9).round()
        };
        // Small pictures: labels go before the plot gets too small.
        let shows_times = height - time_labels_height(fonts) >= 30.0;
        let numbers = parts.axes.iter().map(|axis| axis.numbers).sum::<f64>();
        let shows_numbers = width - numbers - 4.0 * TICK >= 40.0;

        let mut top = margin;
        let title_base = (top + fonts.title * font::CAP_HEIGHT).round();
        if parts.has_title {
            top = (title_base + fonts.title * font::DESCENT + fonts.small * 0.5).round();
        } else {
            // Half of the number at the top.
            top = top.max((fonts.small * 0.5).ceil() + 2.0);
        }
        let legend_top = top;
        top += parts.legend_top;
        let mut bottom = height - if shows_times { 3.0 } else { margin };
        bottom -= parts.legend_bottom;
        let legend_bottom = bottom;
        if shows_times {
            bottom -= time_labels_height(fonts);
        }

        let label = fonts.line() + 4.0;
        let space = |axis: &AxisSpace| {
            let numbers = if shows_numbers && axis.used {
                axis.numbers + 2.0 * TICK
            } else {
                0.0
            };
            let label = if axis.has_label && shows_numbers {
                label
            } else {
                0.0
            };
            (numbers + label).ceil() + margin
        };
        let [left_axis, right_axis] = &parts.axes;
        let left = space(left_axis);
        let legend_right = width - margin * 0.5;
        let right = width - space(right_axis) - parts.legend_right;
        let plot = Rect::new(
            left.round(),
            top.round(),
            right.round().max(left.round() + 4.0),
            bottom.round().max(top.round() + 4.0),
        );
        let time_base = plot.bottom + TICK + 3.0 + (fonts.small * font::CAP_HEIGHT).round();
        Self {
            plot,
            title_base,
            legend_top,
            time_base,
            date_base: time_base + fonts.line(),
            legend_bottom,
            legend_right,
            label_x: [
                margin + fonts.small * 0.75,
                right + (if right_axis.used { right_axis.numbers } else { 0.0 }) + 2.0 * TICK + label
                    - fonts.small * 0.3,
            ],
            shows_numbers,
            shows_times,
        }
    }
}
