//! Pixels: a canvas that fills and strokes paths with `tiny_skia`.
//!
//! A clip is a picture of its own, which `end_clip` copies back: masks take time for each pixel of each shape.

use std::f64::consts::TAU;

use tiny_skia::{FillRule, IntRect, LineCap, LineJoin, PathBuilder, Pixmap, StrokeDash, Transform};
use ttf_parser::OutlineBuilder;

use crate::canvas::{Anchor, Canvas, Paint, Stroke, Text};
use crate::color::Color;
use crate::font;
use crate::geometry::{Path, Rect, Spot};
use crate::size::Size;

/// Lines with more dashes for each column of pixels are solid: no dash of them could be seen.
const MAX_DASHES: f64 = 8.0;

/// A picture that is being drawn.
pub(crate) struct RasterCanvas {
    /// The picture, or its part within the clip.
    pixmap: Pixmap,
    /// The left and the upper side of `pixmap` in the picture.
    origin: Spot,
    /// The whole picture while `pixmap` is a part of it.
    whole: Option<Pixmap>,
}

impl RasterCanvas {
    pub(crate) fn new(size: Size, background: Color) -> Self {
        let mut pixmap = Pixmap::new(size.width(), size.height()).expect("a size within the limits");
        pixmap.fill(skia_color(background, 1.0));
        Self {
            pixmap,
            origin: Spot::new(0.0, 0.0),
            whole: None,
        }
    }

    /// Returns the picture.
    pub(crate) fn finish(mut self) -> Pixmap {
        self.end_clip();
        self.pixmap
    }

    fn fill_path(&mut self, path: PathBuilder, paint: Paint) {
        if let Some(path) = path.finish() {
            self.pixmap.fill_path(
                &path,
                &skia_paint(paint),
                FillRule::Winding,
                Transform::identity(),
                None,
            );
        }
    }

    /// Fills a rectangle on whole pixels. Dense lines have one for each column.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the picture"
    )]
    fn fill_pixels(&mut self, rect: Rect, color: Color) {
        let (width, height) = (self.pixmap.width() as usize, self.pixmap.height() as usize);
        let [left, right] =
            [rect.left, rect.right].map(|x| (x - self.origin.x).clamp(0.0, width as f64) as usize);
        let [top, bottom] =
            [rect.top, rect.bottom].map(|y| (y - self.origin.y).clamp(0.0, height as f64) as usize);
        if left >= right {
            return;
        }
        let color = skia_color(color, 1.0).premultiply().to_color_u8();
        let rows = self.pixmap.pixels_mut().chunks_exact_mut(width);
        for row in rows.take(bottom).skip(top) {
            row[left..right].fill(color);
        }
    }

    /// Returns the coordinates of a place in `pixmap`.
    fn point(&self, spot: Spot) -> (f32, f32) {
        (narrow(spot.x - self.origin.x), narrow(spot.y - self.origin.y))
    }

    fn move_to(&self, lines: &mut PathBuilder, spot: Spot) {
        let (x, y) = self.point(spot);
        lines.move_to(x, y);
    }

    fn line_to(&self, lines: &mut PathBuilder, spot: Spot) {
        let (x, y) = self.point(spot);
        lines.line_to(x, y);
    }

    /// Adds connected places to a path.
    fn push_run(&self, lines: &mut PathBuilder, run: impl IntoIterator<Item = Spot>) {
        for (index, spot) in run.into_iter().enumerate() {
            if index == 0 {
                self.move_to(lines, spot);
            } else {
                self.line_to(lines, spot);
            }
        }
    }

    /// Returns the parts of lines to draw with dashes, or `None` for solid lines. Values far outside of the picture and
    /// dense points would have millions of dashes.
    fn dashed_parts(&self, path: &Path, stroke: Stroke) -> Option<Path> {
        let Stroke { width, dashes, .. } = stroke;
        let height = f64::from(self.pixmap.height());
        if dashes.is_empty() {
            return None;
        }
        let parts = cut(path, self.origin.y - width, self.origin.y + height + width);
        let number = length(&parts) / (dashes.iter().sum::<f64>() * width);
        (number <= MAX_DASHES * f64::from(self.pixmap.width())).then_some(parts)
    }

    /// Adds a run to a path, but for steep parts from one column of pixels to the next, which are drawn as bars on whole
    /// pixels: `tiny_skia` steps along each edge of a line for each row of pixels.
    fn push_sparse_parts(&mut self, lines: &mut PathBuilder, run: &[Spot], width: f64, paint: Paint) {
        let half = width / 2.0;
        // The last place of the column before, and whether the column is a bar.
        let mut last: Option<(Spot, bool)> = None;
        for spots in run.chunk_by(|a, b| a.x.floor() == b.x.floor()) {
            let (first, end) = (spots[0], spots[spots.len() - 1]);
            let before = last.filter(|(spot, _)| spot.x.floor() + 1.0 == first.x.floor());
            let ys = || {
                spots
                    .iter()
                    .chain(before.as_ref().map(|(spot, _)| spot))
                    .map(|spot| spot.y)
            };
            let left = (first.x - half).round();
            let bar = Rect::new(
                left,
                (ys().fold(f64::INFINITY, f64::min) - half).round(),
                (first.x + half).round().max(left + 1.0),
                (ys().fold(f64::NEG_INFINITY, f64::max) + half).round(),
            );
            let is_bar = (spots.len() > 2 || before.is_some()) && bar.height() > 3.0 * width;
            match last {
                // Bars side by side touch.
                Some(_) if is_bar && before.is_some() => {}
                Some((spot, was_bar)) => {
                    if was_bar {
                        self.move_to(lines, spot);
                    }
                    self.line_to(lines, first);
                }
                None if is_bar => {}
                None => self.move_to(lines, first),
            }
            if is_bar {
                self.rect(bar, paint);
            } else {
                spots[1..].iter().for_each(|spot| self.line_to(lines, *spot));
            }
            last = Some((end, is_bar));
        }
    }
}

/// Returns the parts of lines between two heights.
fn cut(path: &Path, top: f64, bottom: f64) -> Path {
    let mut parts = Path::default();
    for run in path.runs() {
        let mut end = None;
        for pair in run.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if from.y.max(to.y) < top || from.y.min(to.y) > bottom {
                continue;
            }
            let inside = |spot: Spot| {
                if (top..=bottom).contains(&spot.y) {
                    return spot;
                }
                let y = spot.y.clamp(top, bottom);
                Spot::new(from.x + (to.x - from.x) * (y - from.y) / (to.y - from.y), y)
            };
            let (start, stop) = (inside(from), inside(to));
            if end != Some(start) {
                parts.start();
                parts.push(start.x, start.y);
            }
            parts.push(stop.x, stop.y);
            end = Some(stop);
        }
    }
    parts
}

/// Returns the length of a path's lines in pixels.
fn length(path: &Path) -> f64 {
    let pairs = path.runs().flat_map(|run| run.windows(2));
    pairs
        .map(|pair| (pair[1].x - pair[0].x).hypot(pair[1].y - pair[0].y))
        .sum()
}

/// Returns a length or a coordinate for `tiny_skia`.
#[expect(clippy::cast_possible_truncation, reason = "a thousandth of a pixel suffices")]
fn narrow(pixels: f64) -> f32 {
    pixels as f32
}

fn skia_color(color: Color, opacity: f64) -> tiny_skia::Color {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most 255"
    )]
    let alpha = (opacity.clamp(0.0, 1.0) * 255.0).round() as u8;
    tiny_skia::Color::from_rgba8(color.red, color.green, color.blue, alpha)
}

fn skia_paint(paint: Paint) -> tiny_skia::Paint<'static> {
    let mut skia = tiny_skia::Paint::default();
    skia.set_color(skia_color(paint.color, paint.opacity));
    skia
}

impl Canvas for RasterCanvas {
    fn rect(&mut self, rect: Rect, paint: Paint) {
        if paint.opacity >= 1.0
            && [rect.left, rect.top, rect.right, rect.bottom]
                .iter()
                .all(|side| side.fract() == 0.0)
        {
            return self.fill_pixels(rect, paint.color);
        }
        let (left, top) = self.point(Spot::new(rect.left, rect.top));
        let (right, bottom) = self.point(Spot::new(rect.right, rect.bottom));
        if let Some(rect) = tiny_skia::Rect::from_ltrb(left, top, right, bottom) {
            self.pixmap
                .fill_rect(rect, &skia_paint(paint), Transform::identity(), None);
        }
    }

    fn fill(&mut self, path: &Path, paint: Paint) {
        let mut builder = PathBuilder::new();
        for run in path.runs() {
            self.push_run(&mut builder, run.iter().copied());
            builder.close();
        }
        self.fill_path(builder, paint);
    }

    fn stroke(&mut self, path: &Path, stroke: Stroke) {
        let Stroke { paint, width, dashes } = stroke;
        let single = path.runs().filter_map(|run| match run {
            [first, others @ ..] if others.iter().all(|spot| spot == first) => Some(*first),
            _ => None,
        });
        self.dots(&single.collect(), width.max(2.0) / 2.0, paint);

        let mut pen = tiny_skia::Stroke {
            width: narrow(width),
            line_cap: LineCap::Round,
            // Takes a third less time, and a corner this small looks the same.
            line_join: if width < 2.0 {
                LineJoin::Bevel
            } else {
                LineJoin::Round
            },
            ..tiny_skia::Stroke::default()
        };
        let mut lines = PathBuilder::new();
        if let Some(visible) = self.dashed_parts(path, stroke) {
            for run in visible.runs() {
                self.push_run(&mut lines, run.iter().copied());
            }
            pen.line_cap = LineCap::Butt;
            pen.dash = StrokeDash::new(dashes.iter().map(|length| narrow(length * width)).collect(), 0.0);
        } else {
            for run in path.runs().filter(|run| run.len() > 1) {
                self.push_sparse_parts(&mut lines, run, width, paint);
            }
        }
        if let Some(lines) = lines.finish() {
            self.pixmap
                .stroke_path(&lines, &skia_paint(paint), &pen, Transform::identity(), None);
        }
    }

    fn dots(&mut self, path: &Path, radius: f64, paint: Paint) {
        // Polygons take half the time of curves.
        let corners = if radius < 1.5 { 8 } else { 16 };
        let corners: Vec<Spot> = (0..corners)
            .map(|corner| f64::from(corner) / f64::from(corners) * TAU)
            .map(|angle| Spot::new(radius * angle.cos(), radius * angle.sin()))
            .collect();
        // Edges take some kB for each dot.
        for centers in path.spots().chunks(64) {
            let mut polygons = PathBuilder::new();
            for center in centers {
                let place = |corner: &Spot| Spot::new(center.x + corner.x, center.y + corner.y);
                self.push_run(&mut polygons, corners.iter().map(place));
                polygons.close();
            }
            self.fill_path(polygons, paint);
        }
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
        let mut glyphs = Glyphs {
            builder: PathBuilder::new(),
            at: self.point(at),
            along: start,
            scale: font::scale(text.size),
            upright: text.upright,
        };
        for character in text.text.chars() {
            font::outline(character, &mut glyphs);
            glyphs.along += font::char_width(character, text.size);
        }
        self.fill_path(glyphs.builder, text.color.into());
    }

    #[expect(clippy::cast_possible_truncation, reason = "within the picture")]
    fn begin_clip(&mut self, clip: Rect) {
        self.end_clip();
        let (width, height) = (f64::from(self.pixmap.width()), f64::from(self.pixmap.height()));
        let [left, right] = [clip.left, clip.right].map(|x| x.round().clamp(0.0, width) as i32);
        let [top, bottom] = [clip.top, clip.bottom].map(|y| y.round().clamp(0.0, height) as i32);
        let rect = IntRect::from_ltrb(left, top, right, bottom);
        if let Some(part) = rect.and_then(|rect| self.pixmap.clone_rect(rect)) {
            self.origin = Spot::new(f64::from(left), f64::from(top));
            self.whole = Some(std::mem::replace(&mut self.pixmap, part));
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within the picture"
    )]
    fn end_clip(&mut self) {
        let Some(whole) = self.whole.take() else { return };
        let part = std::mem::replace(&mut self.pixmap, whole);
        let (stride, width) = (self.pixmap.width() as usize, part.width() as usize);
        let (left, top) = (self.origin.x as usize, self.origin.y as usize);
        let rows = self.pixmap.pixels_mut().chunks_exact_mut(stride).skip(top);
        for (row, part) in rows.zip(part.pixels().chunks_exact(width)) {
            row[left..left + width].copy_from_slice(part);
        }
        self.origin = Spot::new(0.0, 0.0);
    }
}

/// Builds the path of a text from outlines of glyphs.
struct Glyphs {
    builder: PathBuilder,
    at: (f32, f32),
    /// Pixels from `at` to the glyph along the base line.
    along: f64,
    /// Pixels of a unit of the font.
    scale: f64,
    upright: bool,
}

impl Glyphs {
    fn point(&self, x: f32, y: f32) -> (f32, f32) {
        let along = narrow(self.along + f64::from(x) * self.scale);
        let above = narrow(f64::from(y) * self.scale);
        if self.upright {
            (self.at.0 - above, self.at.1 - along)
        } else {
            (self.at.0 + along, self.at.1 - above)
        }
    }
}

impl OutlineBuilder for Glyphs {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.point(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.point(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.point(x1, y1), self.point(x, y));
        self.builder.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2), (x, y)) = (self.point(x1, y1), self.point(x2, y2), self.point(x, y));
        self.builder.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(places: &[(f64, f64)]) -> Path {
        places.iter().map(|(x, y)| Spot::new(*x, *y)).collect()
    }

    fn canvas() -> RasterCanvas {
        RasterCanvas::new(Size::new(64, 48).unwrap(), Color::rgb(255, 255, 255))
    }

    /// The pixels that are not white.
    fn drawn(canvas: RasterCanvas) -> Vec<(usize, usize)> {
        let picture = canvas.finish();
        let pixels = picture.pixels().iter().enumerate();
        let drawn = pixels.filter(|(_, pixel)| pixel.red() < 255);
        drawn.map(|(at, _)| (at % 64, at / 64)).collect()
    }

    const BLACK: Paint = Paint {
        color: Color::rgb(0, 0, 0),
        opacity: 1.0,
    };

    #[test]
    fn lines_are_cut_at_heights() {
        let parts = cut(
            &path(&[(0.0, -10.0), (20.0, 10.0), (30.0, 5.0), (40.0, 100.0)]),
            0.0,
            10.0,
        );
        let runs: Vec<_> = parts.runs().collect();
        let places = [(10.0, 0.0), (20.0, 10.0), (30.0, 5.0)];
        assert_eq!(runs.len(), 1);
        assert_eq!(runs[0][..3], *path(&places).spots());
        assert!((runs[0][3].y - 10.0).abs() < 1e-9);
        assert_eq!(
            cut(&path(&[(0.0, -5.0), (9.0, -1.0)]), 0.0, 10.0).runs().count(),
            0
        );
    }

    #[test]
    fn shapes_end_at_the_clip() {
        let mut canvas = canvas();
        canvas.begin_clip(Rect::new(10.0, 20.0, 12.0, 22.0));
        canvas.fill(
            &path(&[(-1e4, -1e4), (1e4, -1e4), (1e4, 1e4), (-1e4, 1e4)]),
            BLACK,
        );
        canvas.end_clip();
        assert_eq!(drawn(canvas), [(10, 20), (11, 20), (10, 21), (11, 21)]);
    }

    #[test]
    fn a_spike_among_dense_points_is_drawn() {
        let mut canvas = canvas();
        let places: Vec<_> = (0..640)
            .map(|at| (f64::from(at) / 10.0, if at == 305 { 3.0 } else { 40.0 }))
            .collect();
        let stroke = Stroke {
            paint: BLACK,
            width: 1.5,
            dashes: &[],
        };
        canvas.stroke(&path(&places), stroke);
        let drawn = drawn(canvas);
        assert!(drawn.contains(&(30, 5)), "{drawn:?}");
        assert!((0..64).all(|x| drawn.contains(&(x, 40))), "{drawn:?}");
    }
}
