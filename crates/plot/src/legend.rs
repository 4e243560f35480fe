//! The legend: a sample and the name of each series, in one column or in rows.

use crate::canvas::{Canvas, Stroke, Text};
use crate::color::{Color, Theme};
use crate::font;
use crate::geometry::{Path, Rect, Spot};
use crate::text;

/// The look of a legend's sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sample {
    Line {
        dots: bool,
    },
    Dots,
    Area,
    /// The colours of a heat map.
    Heat,
}

/// The name of a series and its look.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Cleaned by `text::clean`.
    pub(crate) label: String,
    pub(crate) sample: Sample,
    pub(crate) color: Color,
    pub(crate) dashes: &'static [f64],
    pub(crate) line_width: f64,
}

/// Entries with their places, from the top left corner of the legend.
#[derive(Debug)]
pub(crate) struct LegendBlock {
    entries: Vec<Entry>,
    /// The text below the entries, of entries without space.
    more: Option<String>,
    columns: usize,
    cell_width: f64,
    font_size: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

const PADDING: f64 = 6.0;

fn line_height(font_size: f64) -> f64 {
    (font_size * 1.4).round()
}

fn sample_width(font_size: f64) -> f64 {
    (font_size * 1.8).round()
}

impl LegendBlock {
    /// Fits entries into a space; `None` if there is no entry, or no space for one. With `rows`, entries are beside each
    /// other where there is space.
    pub(crate) fn fit(entries: Vec<Entry>, font_size: f64, space: (f64, f64), rows: bool) -> Option<Self> {
        let (max_width, max_height) = (space.0 - 2.0 * PADDING, space.1 - 2.0 * PADDING);
        let sample = sample_width(font_size) + font_size * 0.5;
        let widest_label = (max_width - sample).min(font_size * 40.0);
        if entries.is_empty() || widest_label < font_size * 2.0 || max_height < line_height(font_size) {
            return None;
        }
        let mut entries = entries;
        let number = entries.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some hundreds"
        )]
        let max_rows = (max_height / line_height(font_size)).floor() as usize;
        // Names that do not fit take no time. A picture has less than 500 rows.
        let candidates = entries.len().min(max_rows * if rows { 64 } else { 1 });
        entries.truncate(candidates);
        for entry in &mut entries {
            entry.label = text::cut(&entry.label, font_size, widest_label);
        }
        let widest = entries
            .iter()
            .map(|entry| font::width(&entry.label, font_size))
            .fold(0.0, f64::max);
        let cell_width = (sample + widest).ceil();
        let gap = font_size * 1.5;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some hundreds"
        )]
        let columns = if rows {
            ((max_width + gap) / (cell_width + gap)).floor().max(1.0) as usize
        } else {
            1
        };
        let columns = columns.min(number);
        let mut more = None;
        if number.div_ceil(columns) > max_rows {
            // The last row has the number of the others.
            let kept = ((max_rows - 1) * columns).min(entries.len());
            entries.truncate(kept);
            let text = if kept == 0 {
                format!("{number} series")
            } else {
                format!("… and {} more", number - kept)
            };
            more = Some(text::cut(&text, font_size, max_width));
        }
        let lines = entries.len().div_ceil(columns) + usize::from(more.is_some());
        let more_width = more.as_ref().map_or(0.0, |more| font::width(more, font_size));
        let width = (cell_width * columns as f64 + gap * (columns - 1) as f64).max(more_width.ceil());
        Some(Self {
            entries,
            more,
            columns,
            cell_width: cell_width + gap,
            font_size,
            width: width + 2.0 * PADDING,
            height: line_height(font_size) * lines as f64 + 2.0 * PADDING,
        })
    }

    pub(crate) fn draw(&self, canvas: &mut dyn Canvas, corner: Spot, theme: &Theme) {
        for (index, entry) in self.entries.iter().enumerate() {
            let (row, column) = (index / self.columns, index % self.columns);
            let left = corner.x + PADDING + column as f64 * self.cell_width;
            let base = self.base_line(corner, row);
            self.draw_sample(canvas, entry, Spot::new(left, base), theme);
            let at = Spot::new(left + sample_width(self.font_size) + self.font_size * 0.5, base);
            self.draw_text(canvas, &entry.label, at, theme);
        }
        if let Some(more) = &self.more {
            let base = self.base_line(corner, self.entries.len().div_ceil(self.columns));
            self.draw_text(canvas, more, Spot::new(corner.x + PADDING, base), theme);
        }
    }

    /// The base line of a row: capitals are in its middle.
    fn base_line(&self, corner: Spot, row: usize) -> f64 {
        let height = line_height(self.font_size);
        (corner.y + PADDING + (row as f64 + 0.5) * height + self.font_size * font::CAP_HEIGHT / 2.0).round()
    }

    fn draw_text(&self, canvas: &mut dyn Canvas, text: &str, at: Spot, theme: &Theme) {
        let (size, color) = (self.font_size, theme.quiet_text());
        canvas.text(Text::new(text, at, size, color));
    }

    fn draw_sample(&self, canvas: &mut dyn Canvas, entry: &Entry, at: Spot, theme: &Theme) {
        let (width, cap) = (sample_width(self.font_size), self.font_size * font::CAP_HEIGHT);
        // Half a pixel up: lines of the legend lie on pixels.
        let middle = (at.y - cap / 2.0).floor() + 0.5;
        let line: Path = [Spot::new(at.x, middle), Spot::new(at.x + width, middle)]
            .into_iter()
            .collect();
        let center: Path = [Spot::new(at.x + width / 2.0, middle)].into_iter().collect();
        let rect = Rect::new(
            at.x.round(),
            (at.y - cap).round(),
            (at.x + width).round(),
            at.y.round(),
        );
        let paint = entry.color.into();
        match entry.sample {
            Sample::Line { dots } => {
                canvas.stroke(
                    &line,
                    Stroke {
                        paint,
                        width: entry.line_width.max(1.5),
                        dashes: entry.dashes,
                    },
                );
                if dots {
                    canvas.dots(&center, entry.line_width * 1.6, paint);
                }
            }
            Sample::Dots => canvas.dots(&center, entry.line_width * 1.6, paint),
            Sample::Area => canvas.rect(rect, paint),
            Sample::Heat => {
                for part in 0..8 {
                    let at = |part: i32| (rect.left + rect.width() * f64::from(part) / 8.0).round();
                    let cell = Rect::new(at(part), rect.top, at(part + 1), rect.bottom);
                    canvas.rect(cell, theme.heat(f64::from(part + 1) / 8.0).into());
                }
            }
        }
    }
}
