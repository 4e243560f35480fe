//! The scan converter: from edges of polygons to the covered share of each pixel.
//!
//! Each cell holds by how much the coverage changes from the pixel on its left. An edge adds its height to the cells right
//! of it, with its direction as the sign, so the sum of a row from the left is the winding number at that pixel, and a
//! fraction where edges cross the pixel. No edge lists, no sorting, exact areas.
//!
//! Polygons that turn in the same direction unite where they overlap: the sum is cut off at 1.
//!
//! Source: the idea is Raph Levien's, of font-rs.

use std::f64::consts::FRAC_1_SQRT_2;

use crate::geometry::{Rect, Spot};

/// Changes of coverage smaller than this are errors of rounding.
const NOTHING: f32 = 1.0 / 512.0;

/// The covered share of each pixel of one shape.
pub(super) struct Mask {
    width: usize,
    height: usize,
    clip: Rect,
    /// `width + 2` cells for each row: an edge on the right side touches two cells behind the row.
    cells: Vec<f32>,
    /// The cells of each row that edges have touched, first and last.
    touched: Vec<(u32, u32)>,
}

const UNTOUCHED: (u32, u32) = (u32::MAX, 0);

impl Mask {
    pub(super) fn new(width: usize, height: usize) -> Self {
        let mut mask = Self {
            width,
            height,
            clip: Rect::new(0.0, 0.0, 0.0, 0.0),
            cells: vec![0.0; (width + 2) * height],
            touched: vec![UNTOUCHED; height],
        };
        mask.set_clip(None);
        mask
    }

    /// Restricts edges to a rectangle of whole coordinates, or to the picture.
    pub(super) fn set_clip(&mut self, clip: Option<Rect>) {
        let all = Rect::new(0.0, 0.0, self.width as f64, self.height as f64);
        let clip = clip.unwrap_or(all);
        let left = clip.left.clamp(0.0, all.right).round();
        let top = clip.top.clamp(0.0, all.bottom).round();
        self.clip = Rect::new(
            left,
            top,
            clip.right.clamp(left, all.right.max(left)).round(),
            clip.bottom.clamp(top, all.bottom.max(top)).round(),
        );
    }

    /// Returns the part of a rectangle within the clip.
    pub(super) fn clipped(&self, rect: Rect) -> Rect {
        let Rect {
            left,
            top,
            right,
            bottom,
        } = self.clip;
        Rect::new(
            rect.left.clamp(left, right),
            rect.top.clamp(top, bottom),
            rect.right.clamp(left, right),
            rect.bottom.clamp(top, bottom),
        )
    }

    /// Adds a polygon. Its direction does not matter.
    pub(super) fn polygon(&mut self, spots: &[Spot]) {
        let (Some(first), Some(last)) = (spots.first(), spots.last()) else {
            return;
        };
        let inner = || spots.windows(2).map(|pair| (pair[0], pair[1]));
        let cross = |(a, b): (Spot, Spot)| a.x * b.y - b.x * a.y;
        let doubled_area = inner().map(cross).sum::<f64>() + cross((*last, *first));
        for (from, to) in inner().chain([(*last, *first)]) {
            if doubled_area < 0.0 {
                self.edge(to, from)
            } else {
                self.edge(from, to)
            }
        }
    }

    /// Adds a disc.
    pub(super) fn disc(&mut self, center: Spot, radius: f64) {
        // Corners of an eighth of the circle, by sines: 22.5 and 45 degrees.
        let (near, middle, far) = (radius * 0.382_683, radius * FRAC_1_SQRT_2, radius * 0.923_880);
        let spots = [
            (radius, 0.0),
            (far, near),
            (middle, middle),
            (near, far),
            (0.0, radius),
            (-near, far),
            (-middle, middle),
            (-far, near),
            (-radius, 0.0),
            (-far, -near),
            (-middle, -middle),
            (-near, -far),
            (0.0, -radius),
            (near, -far),
            (middle, -middle),
            (far, -near),
        ];
        let spots = spots.map(|(x, y)| Spot::new(center.x + x, center.y + y));
        if radius < 1.5 {
            // Every other corner.
            self.polygon(&std::array::from_fn::<Spot, 8, _>(|corner| spots[corner * 2]));
        } else {
            self.polygon(&spots);
        }
    }

    /// Adds an edge of a polygon. The edges of a polygon must close.
    pub(super) fn edge(&mut self, from: Spot, to: Spot) {
        let all_finite = from.x.is_finite() && from.y.is_finite() && to.x.is_finite() && to.y.is_finite();
        if from.y == to.y || !all_finite {
            return;
        }
        let (direction, upper, lower) = if from.y < to.y {
            (1.0, from, to)
        } else {
            (-1.0, to, from)
        };
        let Rect { left, right, .. } = self.clip;
        let (top, bottom) = (upper.y.max(self.clip.top), lower.y.min(self.clip.bottom));
        if top >= bottom {
            return;
        }
        let slope = (lower.x - upper.x) / (lower.y - upper.y);
        let x_at = |y: f64| (upper.x + (y - upper.y) * slope).clamp(left, right);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the clip"
        )]
        let first_row = top as usize;
        let stride = self.width + 2;
        let rows = self
            .cells
            .chunks_exact_mut(stride)
            .zip(&mut self.touched)
            .enumerate()
            .skip(first_row);
        let (mut y, mut x) = (top, x_at(top));
        for (row, (cells, touched)) in rows {
            if y >= bottom {
                break;
            }
            let next_y = (row as f64 + 1.0).min(bottom);
            let next_x = x_at(next_y);
            let (first, last) = edge_in_row(cells, direction * (next_y - y), x.min(next_x), x.max(next_x));
            *touched = (touched.0.min(first), touched.1.max(last));
            (x, y) = (next_x, next_y);
        }
    }

    /// Calls `paint` with the place and the coverage of each covered pixel, and clears the mask.
    pub(super) fn drain(&mut self, mut paint: impl FnMut(usize, usize, f32)) {
        let stride = self.width + 2;
        for (y, (cells, touched)) in self
            .cells
            .chunks_exact_mut(stride)
            .zip(&mut self.touched)
            .enumerate()
        {
            let (first, last) = std::mem::replace(touched, UNTOUCHED);
            let (first, last) = (first as usize, last as usize);
            let Some(cells) = cells.get_mut(first..=last) else {
                continue;
            };
            let mut sum = 0.0;
            for (x, cell) in (first..).zip(cells) {
                sum += std::mem::take(cell);
                let coverage = sum.abs().min(1.0);
                if coverage > NOTHING && x < self.width {
                    paint(x, y, coverage);
                }
            }
        }
    }
}

/// Adds the part of an edge in one row, and returns the first and the last cell that it touches. `height` is its share of
/// the row, with the sign of its direction; `x0 <= x1`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the clip; f32 suffices"
)]
fn edge_in_row(cells: &mut [f32], height: f64, x0: f64, x1: f64) -> (u32, u32) {
    // Coordinates are not negative: a cast rounds down, and is faster than `floor`.
    let first = x0 as u32;
    let mut add = |cell: u32, share: f64| {
        if let Some(cell) = cells.get_mut(cell as usize) {
            *cell += share as f32;
        }
    };
    let left = f64::from(first);
    if x1 <= left + 1.0 {
        // Within one pixel: the middle of the edge divides it.
        let right_share = (x0 + x1) * 0.5 - left;
        add(first, height * (1.0 - right_share));
        add(first + 1, height * right_share);
        return (first, first + 1);
    }
    // Across several pixels: the covered share grows as a square in the first and the last one, evenly between.
    let truncated = x1 as u32;
    let end = if f64::from(truncated) < x1 {
        truncated + 1
    } else {
        truncated
    };
    let per_pixel = 1.0 / (x1 - x0);
    let in_first = left + 1.0 - x0;
    let mut before = 0.5 * per_pixel * in_first * in_first;
    add(first, height * before);
    for cell in first + 1..end {
        let left = f64::from(cell);
        let covered = if cell + 1 == end {
            1.0 - 0.5 * per_pixel * (x1 - left) * (x1 - left)
        } else {
            (left + 0.5 - x0) * per_pixel
        };
        add(cell, height * (covered - before));
        before = covered;
    }
    add(end, height * (1.0 - before));
    (first, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(width: usize, height: usize, spots: &[(f64, f64)]) -> Vec<f32> {
        let mut mask = Mask::new(width, height);
        mask.polygon(&spots.iter().map(|(x, y)| Spot::new(*x, *y)).collect::<Vec<_>>());
        let mut shares = vec![0.0; width * height];
        mask.drain(|x, y, share| shares[y * width + x] = share);
        shares
    }

    fn assert_close(actual: &[f32], expected: &[f32]) {
        let close = actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4);
        assert!(
            close && actual.len() == expected.len(),
            "{actual:?}, expected {expected:?}"
        );
    }

    #[test]
    fn rectangles_cover_shares_of_pixels() {
        let shares = coverage(4, 2, &[(0.5, 0.0), (2.25, 0.0), (2.25, 1.5), (0.5, 1.5)]);
        assert_close(&shares, &[0.5, 1.0, 0.25, 0.0, 0.25, 0.5, 0.125, 0.0]);
        let reversed = coverage(4, 2, &[(0.5, 1.5), (2.25, 1.5), (2.25, 0.0), (0.5, 0.0)]);
        assert_close(&shares, &reversed);
    }

    #[test]
    fn slopes_cover_exact_areas() {
        // A triangle with the slope y = x / 4 above it.
        let shares = coverage(4, 1, &[(0.0, 1.0), (0.0, 0.0), (4.0, 1.0)]);
        assert_close(&shares, &[0.875, 0.625, 0.375, 0.125]);
        // From inside of a pixel to inside of another one.
        let total: f32 = coverage(5, 3, &[(0.3, 0.2), (4.6, 1.1), (2.0, 2.9)]).iter().sum();
        // Without the least shares.
        assert!((total - 5.04).abs() < 4e-3, "{total}");
    }

    #[test]
    fn the_outside_is_cut_off() {
        let shares = coverage(2, 2, &[(-1e5, -1e5), (1e5, -1e5), (1e5, 1e5), (-1e5, 1e5)]);
        assert_close(&shares, &[1.0; 4]);
        assert_close(
            &coverage(2, 1, &[(-5.0, -5.0), (-1.0, 5.0), (-3.0, 5.0)]),
            &[0.0; 2],
        );
    }
}
