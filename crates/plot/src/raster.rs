//! Pixels: a canvas that fills shapes in a picture of 8 bits for each colour.
//!
//! A shape first goes to a `Mask`, the share of each pixel that it covers, and then to the pixels in its colour. So parts
//! of one shape that overlap, such as the segments of a line, have the opacity of the shape.

mod mask;
mod strokes;

use ttf_parser::OutlineBuilder;

use self::mask::Mask;
use self::strokes::stroke_run;
use crate::canvas::{Anchor, Canvas, Paint, Stroke, Text};
use crate::color::Color;
use crate::font;
use crate::geometry::{Path, Rect, Spot};
use crate::size::Size;

/// Shares of pixels are rounded to a multiple of 1 / 16: more are invisible, and most pictures then have at most 256 colours,
/// which halves their files.
const COVERAGES: usize = 16;

/// A picture that is being drawn.
pub(crate) struct RasterCanvas {
    size: Size,
    /// Red, green and blue of each pixel, rows from top to bottom.
    pixels: Vec<u8>,
    mask: Mask,
}

impl RasterCanvas {
    pub(crate) fn new(size: Size, background: Color) -> Self {
        let (width, height) = (size.width() as usize, size.height() as usize);
        let Color { red, green, blue } = background;
        Self {
            size,
            pixels: [red, green, blue].repeat(width * height),
            mask: Mask::new(width, height),
        }
    }

    /// Returns the size and the pixels: red, green and blue, rows from top to bottom.
    pub(crate) fn finish(self) -> (Size, Vec<u8>) {
        (self.size, self.pixels)
    }

    /// Colours the pixels of the mask and clears it.
    fn paint(&mut self, paint: Paint) {
        let width = self.size.width() as usize;
        let colors = [paint.color.red, paint.color.green, paint.color.blue].map(i32::from);
        let opacities: [i32; COVERAGES + 1] =
            std::array::from_fn(|coverage| opacity(coverage, paint.opacity));
        let pixels = self.pixels.as_chunks_mut::<3>().0;
        self.mask.drain(|x, y, coverage| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to COVERAGES"
            )]
            let opacity = opacities[((coverage * COVERAGES as f32 + 0.5) as usize).min(COVERAGES)];
            if let Some(pixel) = pixels.get_mut(y * width + x) {
                blend(pixel, colors, opacity);
            }
        });
    }

    /// Fills a rectangle of whole coordinates within the clip: most are, and need no mask.
    fn fill_whole(&mut self, rect: Rect, paint: Paint) {
        let width = self.size.width() as usize;
        let colors = [paint.color.red, paint.color.green, paint.color.blue].map(i32::from);
        let opacity = opacity(COVERAGES, paint.opacity);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the picture"
        )]
        let [left, right, top, bottom] =
            [rect.left, rect.right, rect.top, rect.bottom].map(|side| side as usize);
        let rows = self.pixels.as_chunks_mut::<3>().0.chunks_exact_mut(width);
        for row in rows.take(bottom).skip(top) {
            row.iter_mut()
                .take(right)
                .skip(left)
                .for_each(|pixel| blend(pixel, colors, opacity));
        }
    }
}

/// Returns the opacity of a share of a pixel: 256 is opaque.
fn opacity(coverage: usize, opacity: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 256")]
    let opacity = (coverage as f64 / COVERAGES as f64 * opacity.clamp(0.0, 1.0) * 256.0).round() as i32;
    opacity
}

/// Mixes a colour into a pixel. In sRGB, as browsers do.
fn blend(pixel: &mut [u8; 3], color: [i32; 3], opacity: i32) {
    for (part, color) in pixel.iter_mut().zip(color) {
        let old = i32::from(*part);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between two bytes"
        )]
        let new = (old + ((color - old) * opacity + 128).div_euclid(256)) as u8;
        *part = new;
    }
}

impl Canvas for RasterCanvas {
    fn rect(&mut self, rect: Rect, paint: Paint) {
        let Rect {
            left,
            top,
            right,
            bottom,
        } = rect;
        if [left, top, right, bottom].iter().all(|side| side.fract() == 0.0) {
            return self.fill_whole(self.mask.clipped(rect), paint);
        }
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
        self.mask.polygon(&corners.map(|(x, y)| Spot::new(x, y)));
        self.paint(paint);
    }

    fn fill(&mut self, path: &Path, paint: Paint) {
        path.runs().for_each(|run| self.mask.polygon(run));
        self.paint(paint);
    }

    fn stroke(&mut self, path: &Path, stroke: Stroke) {
        path.runs()
            .for_each(|run| stroke_run(&mut self.mask, run, stroke.width, stroke.dashes));
        self.paint(stroke.paint);
    }

    fn dots(&mut self, path: &Path, radius: f64, paint: Paint) {
        path.spots().iter().for_each(|spot| self.mask.disc(*spot, radius));
        self.paint(paint);
    }

    fn text(&mut self, text: Text<'_>) {
        let start = match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -font::width(text.text, text.size) / 2.0,
            Anchor::End => -font::width(text.text, text.size),
        };
        // Whole base lines: see `font::size_from_x_height`.
        let at = if text.upright {
            Spot::new(text.at.x.round(), text.at.y)
        } else {
            Spot::new(text.at.x, text.at.y.round())
        };
        let scale = font::scale(text.size);
        let mut glyphs = Glyphs {
            mask: &mut self.mask,
            at,
            along: start,
            scale,
            upright: text.upright,
            first: None,
            last: None,
        };
        for character in text.text.chars() {
            font::outline(character, &mut glyphs);
            glyphs.along += font::char_width(character, text.size);
        }
        self.paint(text.color.into());
    }

    fn begin_clip(&mut self, clip: Rect) {
        self.mask.set_clip(Some(clip));
    }

    fn end_clip(&mut self) {
        self.mask.set_clip(None);
    }
}

/// Draws outlines of glyphs to the mask.
struct Glyphs<'a> {
    mask: &'a mut Mask,
    at: Spot,
    /// Pixels from `at` to the glyph along the base line.
    along: f64,
    /// Pixels of a unit of the font.
    scale: f64,
    upright: bool,
    first: Option<Spot>,
    last: Option<Spot>,
}

impl Glyphs<'_> {
    fn spot(&self, x: f32, y: f32) -> Spot {
        let (along, above) = (self.along + f64::from(x) * self.scale, f64::from(y) * self.scale);
        if self.upright {
            Spot::new(self.at.x - above, self.at.y - along)
        } else {
            Spot::new(self.at.x + along, self.at.y - above)
        }
    }

    fn line(&mut self, to: Spot) {
        if let Some(from) = self.last.replace(to) {
            self.mask.edge(from, to);
        }
    }
}

impl OutlineBuilder for Glyphs<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let spot = self.spot(x, y);
        (self.first, self.last) = (Some(spot), Some(spot));
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.spot(x, y);
        self.line(to);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let Some(from) = self.last else { return };
        let (control, to) = (self.spot(x1, y1), self.spot(x, y));
        // Letters are some pixels high: four lines are within a tenth of a pixel.
        for step in 1..=4 {
            let t = f64::from(step) / 4.0;
            let point = |from: f64, control: f64, to: f64| {
                let u = 1.0 - t;
                u * u * from + 2.0 * u * t * control + t * t * to
            };
            self.line(Spot::new(
                point(from.x, control.x, to.x),
                point(from.y, control.y, to.y),
            ));
        }
    }

    fn curve_to(&mut self, _: f32, _: f32, _: f32, _: f32, x: f32, y: f32) {
        // TrueType outlines have no cubic curves.
        self.line_to(x, y);
    }

    fn close(&mut self) {
        if let Some(first) = self.first.take() {
            self.line(first);
        }
        self.last = None;
    }
}
