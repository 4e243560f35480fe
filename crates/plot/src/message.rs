//! A text as a picture: the error of a request for a picture.

use crate::canvas::{Canvas, Text};
use crate::color::Theme;
use crate::font;
use crate::geometry::{Rect, Spot};
use crate::layout::Fonts;
use crate::png;
use crate::raster::RasterCanvas;
use crate::size::Size;
use crate::svg::SvgCanvas;
use crate::text;

/// A picture of a text: the error of a plot that could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The size of the picture.
    pub size: Size,
    /// Background and foreground.
    pub theme: Theme,
    /// A heading of one line; empty for none.
    pub title: String,
    /// Wrapped to the width, and cut after the last line that has space.
    pub text: String,
}

impl Message {
    /// Returns the picture as an SVG document.
    pub fn svg(&self) -> String {
        let spoken = format!("{} {}", self.title, self.text);
        let mut canvas = SvgCanvas::new(self.size, &text::clean(&spoken));
        self.draw(&mut canvas);
        canvas.finish()
    }

    /// Returns the picture as a PNG file.
    pub fn png(&self) -> Vec<u8> {
        let mut canvas = RasterCanvas::new(self.size, self.theme.background);
        self.draw(&mut canvas);
        png::encode(&canvas.finish())
    }

    fn draw(&self, canvas: &mut dyn Canvas) {
        let fonts = Fonts::new(self.size);
        let (width, height) = (f64::from(self.size.width()), f64::from(self.size.height()));
        canvas.rect(Rect::new(0.0, 0.0, width, height), self.theme.background.into());
        let margin = fonts.small.round();
        let space = width - 2.0 * margin;
        let mut top = margin;
        let mut line = |text: &str, size: f64, top: f64, color| {
            let at = Spot::new(margin, (top + size * font::CAP_HEIGHT).round());
            canvas.text(Text::new(text, at, size, color));
        };
        let title = text::cut(&text::clean(&self.title), fonts.title, space);
        if !title.is_empty() {
            line(&title, fonts.title, top, self.theme.foreground);
            top += fonts.title * 1.6;
        }
        let line_height = (fonts.small * 1.5).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "some hundreds"
        )]
        let lines = ((height - top - margin / 2.0) / line_height).floor().max(0.0) as usize;
        if lines == 0 {
            return;
        }
        for wrapped in text::wrap(&self.text, fonts.small, space, lines) {
            line(&wrapped, fonts.small, top, self.theme.quiet_text());
            top += line_height;
        }
    }
}
